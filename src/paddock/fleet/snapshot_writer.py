"""Creates and deletes snapshots of sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from subprocess import CalledProcessError
from typing import Any

from paddock.errors import Conflict, PaddockError
from paddock.events.event_log import EventLog
from paddock.fleet.fleet_requests import new_id
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxSnapshot, SnapshotState
from paddock.sandbox.base import SandboxBackend
from paddock.store.snapshot_store import SnapshotStore


class SnapshotWriter:
    """Writes snapshots in the background, each under the lock of its sandbox."""

    def __init__(
        self,
        backend: SandboxBackend,
        snapshots: SnapshotStore,
        events: EventLog,
        *,
        sandbox_lock: Callable[[str], asyncio.Lock],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._backend = backend
        self._snapshots = snapshots
        self._events = events
        self._sandbox_lock = sandbox_lock
        self._spawn = spawn

    async def start(self, sandbox: Sandbox, name: str | None) -> SandboxSnapshot:
        """Record a snapshot and start to write it; it becomes ready in the background."""
        now = datetime.now(UTC)
        snapshot = await self._snapshots.insert(
            SandboxSnapshot(
                id=new_id("snap"),
                tenant=sandbox.tenant,
                **dict(sandbox.ownership),
                backend=sandbox.backend,
                sandbox_id=sandbox.id,
                image=sandbox.image,
                name=name,
                state=SnapshotState.CREATING,
                created_at=now,
                changed_at=now,
            )
        )
        await self._publish_event(snapshot, EventType.SNAPSHOT_CREATED)
        self._spawn(self._write(sandbox, snapshot))
        return snapshot

    async def delete(self, snapshot: SandboxSnapshot) -> None:
        """Delete a snapshot and its files. Raises `Conflict` while it is being created."""
        if snapshot.state is SnapshotState.CREATING:
            raise Conflict(f"snapshot {snapshot.id} is still being created")
        await self._snapshots.transition(snapshot.id, list(SnapshotState), SnapshotState.DELETING)
        await self._backend.delete_snapshot(snapshot.id)
        await self._snapshots.delete(snapshot.id)
        await self._publish_event(snapshot, EventType.SNAPSHOT_DELETED)

    async def _write(self, sandbox: Sandbox, snapshot: SandboxSnapshot) -> None:
        creating = [SnapshotState.CREATING]
        try:
            async with self._sandbox_lock(sandbox.id):
                await self._backend.snapshot(sandbox.record, snapshot.id)
        except (PaddockError, OSError, CalledProcessError) as error:
            failed = await self._snapshots.transition(
                snapshot.id, creating, SnapshotState.FAILED, "copy_failed", str(error)
            )
            await self._publish_event(failed, EventType.SNAPSHOT_FAILED)
        else:
            ready = await self._snapshots.transition(snapshot.id, creating, SnapshotState.READY)
            await self._publish_event(ready, EventType.SNAPSHOT_READY)

    async def _publish_event(self, snapshot: SandboxSnapshot, kind: EventType) -> None:
        data = {"sandbox_id": snapshot.sandbox_id, "message": snapshot.message}
        await self._events.append(f"snapshot/{snapshot.id}", kind, data, tenant=snapshot.tenant)

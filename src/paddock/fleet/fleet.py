"""What callers use: sandboxes of many tenants, from creation to end."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from paddock.config.schema import Config
from paddock.errors import (
    BoxGone,
    Conflict,
    InvalidInput,
    NameTaken,
    PaddockError,
    QuotaExceeded,
    SandboxNotFound,
    Unavailable,
)
from paddock.events.log import EventLog
from paddock.fleet.admission import ALIVE, Admission, Admitted
from paddock.fleet.attendance import Attendance, Attendant
from paddock.fleet.forwards import Forwards
from paddock.fleet.kinds import Kinds
from paddock.fleet.pools import Pools, Ready
from paddock.fleet.requests import CreateSandbox, ImageSource, new_id
from paddock.fleet.volumes import Granted, Volumes
from paddock.model.events import EventType, sandbox_stream
from paddock.model.owners import Owned, Visibility, check_may_share, owner_of_new, request_key_of, subject_of
from paddock.model.sandbox import (
    KIND_EXTENSION,
    KIND_VARIABLE,
    BoxSpec,
    Image,
    Limits,
    Sandbox,
    SandboxState,
    Snapshot,
    SnapshotState,
)
from paddock.sandbox.base import Backend
from paddock.store.database import Store
from paddock.store.events import Happening
from paddock.store.pools import PoolStore
from paddock.store.sandboxes import SandboxStore
from paddock.store.snapshots import SnapshotStore

if TYPE_CHECKING:
    from paddock.sandbox.client import Inside

ONGOING = [SandboxState.RUNNING, SandboxState.PAUSED]


class Fleet:
    """Keeps sandboxes. Every method takes the tenant that asks; another tenant's things do not exist for it.

    Raises `SandboxNotFound` and its like for unknown ids, `Conflict` for a state that does not allow the call.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        images: ImageSource,
        store: Store,
        events: EventLog,
        config: Config,
        attendants: Sequence[Attendant] = (),
    ) -> None:
        self.backend = backend
        self.images = images
        self.events = events
        self.config = config
        self.sandboxes = SandboxStore(store)
        self.snapshots = SnapshotStore(store)
        self.volumes = Volumes(config.data / "volumes", config.sandboxes.allowed_host_paths)
        ports = config.sandboxes.port_range
        self.forwards = Forwards(
            range(ports.first, ports.last + 1),
            per_sandbox=config.sandboxes.max_endpoints,
            per_tenant=lambda tenant: config.quotas.of(tenant).endpoints,
        )
        self.attendance = Attendance(attendants, backend)
        self.kinds = Kinds.load(config)
        self.pools = Pools(backend, images, self.kinds, PoolStore(store), config, self.attendance.holes)
        self._admission = Admission(config, images, self.kinds, self.sandboxes, self.snapshots, self.pools)
        self.starting: dict[str, asyncio.Future[Sandbox]] = {}
        """Sandboxes under way, so that asking again waits for the first and nobody takes them for leftovers."""
        self._clients: dict[str, Inside] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def check_limits(self, asked: Limits) -> None:
        """Raise `InvalidInput` for more than a sandbox may have."""
        self._admission.limits(asked)

    async def create(self, tenant: str, request: CreateSandbox) -> Sandbox:
        """Make a sandbox and return it running.

        Asking again with the same `request_key` returns the first one. When it raises, nothing is left.
        """
        if (stored := request_key_of(tenant, request.request_key)) and (
            earlier := await self.sandboxes.by_request_key(tenant, stored, subject_of(tenant))
        ):
            return await self._settled(earlier)
        # What is started is finished, even if the caller stops waiting.
        created: Sandbox = await asyncio.shield(self.spawn(self._create(tenant, request)))
        return created

    async def get(self, tenant: str, sandbox_id: str) -> Sandbox:
        return await self.sandboxes.get(sandbox_id, tenant)

    async def list(
        self,
        tenant: str,
        *,
        states: Collection[SandboxState] | None = None,
        metadata: Mapping[str, str] | None = None,
        page: int = 1,
        page_size: int = 20,
    ) -> tuple[Sequence[Sandbox], int]:
        """One page, newest first, and how many there are in all."""
        return await self.sandboxes.list(tenant, states=states, metadata=metadata, page=page, page_size=page_size)

    async def delete(self, tenant: str, sandbox_id: str) -> None:
        """End a sandbox and forget it."""
        sandbox = await self.get(tenant, sandbox_id)
        await self.end(sandbox, "deleted", keep=False)

    async def patch_metadata(self, tenant: str, sandbox_id: str, patch: Mapping[str, str | None]) -> Sandbox:
        """Change single entries; `None` removes one."""
        async with self.lock(sandbox_id):
            sandbox = await self.get(tenant, sandbox_id)
            changed = {k: v for k, v in {**sandbox.metadata, **patch}.items() if v is not None}
            return await self.sandboxes.update(sandbox_id, metadata=changed)

    async def share(self, tenant: str, sandbox_id: str, visibility: Visibility) -> Sandbox:
        """Change who sees a sandbox and what hangs on it. Raises `Forbidden` unless it is the caller's to share."""
        sandbox = await self.get(tenant, sandbox_id)
        check_may_share(tenant, sandbox)
        kept, _ = await self.snapshots.list(sandbox.tenant, sandbox_id=sandbox_id, page_size=100_000)
        streams = [sandbox_stream(sandbox_id), *(f"snapshot/{each.id}" for each in kept)]
        audience = sandbox.model_copy(update={"visibility": visibility}).audience
        changed = Happening(sandbox_stream(sandbox_id), EventType.SANDBOX_SHARED, {"visibility": visibility}, tenant)
        return await self.sandboxes.share(
            sandbox_id, visibility, lambda work: self.events.readdress(work, lambda _: [changed], streams, audience)
        )

    async def share_all(self, tenant: str, metadata: Mapping[str, str], owned: Owned) -> None:
        """Show the owner's sandboxes with this metadata, those of a session or a run, to those who see that."""
        found, _ = await self.list(str(tenant), metadata=metadata, page_size=100_000)
        for sandbox in found:
            if sandbox.subject == owned.subject and sandbox.visibility is not owned.visibility:
                await self.share(str(tenant), sandbox.id, owned.visibility)

    async def renew(self, tenant: str, sandbox_id: str, expires_at: datetime) -> Sandbox:
        """Give a sandbox a new end."""
        now = datetime.now(UTC)
        if expires_at <= now:
            raise InvalidInput("expiresAt lies in the past")
        if expires_at > now + timedelta(seconds=self.config.sandboxes.max_timeout):
            raise InvalidInput("expiresAt is further away than sandboxes.max_timeout allows")
        async with self.lock(sandbox_id):
            sandbox = await self.get(tenant, sandbox_id)
            if not sandbox.state.alive:
                raise Conflict(f"sandbox {sandbox_id} has ended")
            if sandbox.expires_at is None:
                raise Conflict(f"sandbox {sandbox_id} lives until it is deleted; there is nothing to renew")
            renewed = await self.sandboxes.update(sandbox_id, expires_at=expires_at)
            await self.attendance.renewed(renewed)
        await self.tell(renewed, EventType.SANDBOX_RENEWED, expires_at=expires_at.isoformat())
        return renewed

    async def pause(self, tenant: str, sandbox_id: str) -> Sandbox:
        """Stop every process where it stands."""
        # What is begun is finished, even if the caller stops waiting.
        paused: Sandbox = await asyncio.shield(self.spawn(self._pause(tenant, sandbox_id)))
        return paused

    async def resume(self, tenant: str, sandbox_id: str) -> Sandbox:
        resumed: Sandbox = await asyncio.shield(self.spawn(self._resume(tenant, sandbox_id)))
        return resumed

    async def _pause(self, tenant: str, sandbox_id: str) -> Sandbox:
        async with self._changing(tenant, sandbox_id, SandboxState.RUNNING, SandboxState.PAUSING) as sandbox:
            await self.backend.pause(sandbox.record)
            paused = await self.sandboxes.transition(sandbox_id, [SandboxState.PAUSING], SandboxState.PAUSED)
        await self.tell(paused, EventType.SANDBOX_PAUSED)
        return paused

    async def _resume(self, tenant: str, sandbox_id: str) -> Sandbox:
        async with self._changing(tenant, sandbox_id, SandboxState.PAUSED, SandboxState.RESUMING) as sandbox:
            await self.backend.resume(sandbox.record)
            resumed = await self.sandboxes.transition(sandbox_id, [SandboxState.RESUMING], SandboxState.RUNNING)
        await self.tell(resumed, EventType.SANDBOX_RESUMED)
        return resumed

    async def snapshot(self, tenant: str, sandbox_id: str, name: str | None = None) -> Snapshot:
        """Start keeping what a sandbox has written; the snapshot is ready a little later."""
        sandbox = await self.get(tenant, sandbox_id)
        if sandbox.state not in ONGOING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}; only a running or paused one can be kept")
        self._admission.check_disk()
        quota = self.config.quotas.of(tenant).snapshots
        if quota is not None and (await self.snapshots.list(sandbox.tenant, page_size=1))[1] >= quota:
            raise QuotaExceeded(f"tenant {tenant} has its {quota} snapshots; delete one first")
        now = datetime.now(UTC)
        snapshot = await self.snapshots.insert(
            Snapshot(
                id=new_id("snap"),
                tenant=sandbox.tenant,
                **dict(sandbox.ownership),
                backend=sandbox.backend,
                sandbox_id=sandbox_id,
                image=sandbox.image,
                name=name,
                state=SnapshotState.CREATING,
                created_at=now,
                changed_at=now,
            )
        )
        await self._tell_snapshot(snapshot, EventType.SNAPSHOT_CREATED)
        self.spawn(self._keep(sandbox, snapshot))
        return snapshot

    async def delete_snapshot(self, tenant: str, snapshot_id: str) -> None:
        snapshot = await self.snapshots.get(snapshot_id, tenant)
        if snapshot.state is SnapshotState.CREATING:
            raise Conflict(f"snapshot {snapshot_id} is still being made")
        await self.snapshots.transition(snapshot_id, list(SnapshotState), SnapshotState.DELETING)
        await self.backend.delete_snapshot(snapshot_id)
        await self.snapshots.delete(snapshot_id)
        await self._tell_snapshot(snapshot, EventType.SNAPSHOT_DELETED)

    async def inside(self, tenant: str, sandbox_id: str) -> Inside:
        """A client of the sandbox's daemon; the fleet closes it when the sandbox ends."""
        sandbox = await self.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return self.client(sandbox)

    async def endpoint(self, tenant: str, sandbox_id: str, port: int) -> tuple[str, str]:
        """A loopback address of the host that leads to a port of the sandbox, and the daemon's token."""
        sandbox = await self.get(tenant, sandbox_id)
        if sandbox.state not in ONGOING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}")
        host_port = await self.forwards.open(tenant, sandbox_id, port, self.backend.address(sandbox.record))
        return f"127.0.0.1:{host_port}", sandbox.token

    def client(self, sandbox: Sandbox) -> Inside:
        from paddock.sandbox.client import Inside

        if sandbox.id not in self._clients:
            self._clients[sandbox.id] = Inside(self.backend.address(sandbox.record))
        return self._clients[sandbox.id]

    async def end(self, sandbox: Sandbox, reason: str, *, keep: bool, message: str | None = None) -> None:
        """End a sandbox by force. `keep` leaves it listed for a while, with the reason."""
        async with self.lock(sandbox.id):
            current = await self.sandboxes.get(sandbox.id)
            if current.state is SandboxState.PENDING and sandbox.id in self.starting:
                raise Conflict(f"sandbox {sandbox.id} is still starting")
            if current.state.alive and current.state is not SandboxState.STOPPING:
                current = await self.sandboxes.transition(current.id, ALIVE, SandboxState.STOPPING, reason, message)
                await self.tell(current, EventType.SANDBOX_STOPPING, reason=reason)
            await self._release(current)
            if keep:
                await self.sandboxes.transition(
                    current.id, [SandboxState.STOPPING], SandboxState.TERMINATED, reason, message
                )
            else:
                await self.sandboxes.delete(current.id)
        if current.state is SandboxState.STOPPING:
            await self.tell(current, EventType.SANDBOX_ENDED, reason=reason)

    async def died(self, sandbox_id: str) -> None:
        """Take note that a box has ended by itself."""
        async with self.lock(sandbox_id):
            try:
                sandbox = await self.sandboxes.get(sandbox_id)
            except SandboxNotFound:
                return
            if sandbox.state is SandboxState.STOPPING or not sandbox.state.alive:
                return
            status = await self.backend.status(sandbox.record)
            failed = await self.sandboxes.transition(
                sandbox_id, ALIVE, SandboxState.FAILED, status.reason or "lost", status.message
            )
            await self.part(sandbox_id)
        await self.tell(failed, EventType.SANDBOX_FAILED, reason=failed.reason, message=failed.message)

    async def part(self, sandbox_id: str) -> None:
        """Close every way into and out of a sandbox that has ended or is about to. Idempotent."""
        await self._disconnect(sandbox_id)
        await self.attendance.ended(sandbox_id)

    def watch(self, sandbox: Sandbox) -> None:
        """Notice when the box ends, from now on."""

        async def waiting() -> None:
            await self.backend.wait(sandbox.record)
            await self.died(sandbox.id)

        self.spawn(waiting(), name=f"watch {sandbox.id}")

    def lock(self, sandbox_id: str) -> asyncio.Lock:
        """What serialises changes of one sandbox."""
        return self._locks.setdefault(sandbox_id, asyncio.Lock())

    def spawn(self, work: Any, name: str | None = None) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def tell(self, sandbox: Sandbox, kind: EventType, **data: Any) -> None:
        await self.events.append(sandbox_stream(sandbox.id), kind, data, tenant=sandbox.tenant)

    async def close(self) -> None:
        """Let go of everything. Boxes go on; the next fleet adopts them."""
        await asyncio.gather(*list(self.starting.values()), return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pools.close()
        await self.forwards.close()
        for client in self._clients.values():
            await client.close()

    async def _create(self, tenant: str, request: CreateSandbox) -> Sandbox:
        self.attendance.check(request)
        admitted = await self._admission.check(tenant, request)
        async with self.lock(f"tenant {tenant}"):
            await self._admission.check_quota(str(tenant), admitted.limits)
            await self._check_name(tenant, request)
            ready = self.pools.take(tenant, request, admitted.image, admitted.limits, admitted.kind)
            sandbox = self._pending(tenant, request, admitted, ready)
            this = asyncio.current_task()
            assert this is not None
            self.starting[sandbox.id] = this
            try:
                kept = await self.sandboxes.insert(sandbox)
            except BaseException:
                del self.starting[sandbox.id]
                raise
            finally:
                if ready:
                    self.pools.release_claim(ready.id)
        try:
            if kept.id != sandbox.id:  # The same request came in twice at once, and the other was first.
                if ready:
                    await self.backend.remove(ready.id)
                return await self._settled(kept)
            return await self._run(sandbox, request, admitted.image, ready)
        finally:
            del self.starting[sandbox.id]

    async def _check_name(self, tenant: str, request: CreateSandbox) -> None:
        """Raise `NameTaken` when another live sandbox of the tenant has the requested name."""
        if request.name is None:
            return
        found, _ = await self.sandboxes.list(tenant, states=ALIVE, metadata={"name": request.name}, page_size=2)
        same = request_key_of(tenant, request.request_key)
        others = [each.id for each in found if same is None or each.request_key != same]
        if others:
            raise NameTaken(
                f"sandbox {others[0]} is named {request.name} already; choose another name, or delete that sandbox"
            )

    def _pending(self, tenant: str, request: CreateSandbox, admitted: Admitted, ready: Ready | None) -> Sandbox:
        now = datetime.now(UTC)
        return Sandbox(
            id=ready.id if ready else new_id(),
            tenant=str(tenant),
            **dict(request.owner or owner_of_new(tenant, request.visibility or self.config.sharing.default)),
            backend=self.backend.name,
            image=admitted.image.name,
            state=SandboxState.PENDING,
            created_at=now,
            changed_at=now,
            expires_at=self._admission.expiry(request.timeout, now),
            entrypoint=request.entrypoint,
            env=request.env,
            metadata=request.metadata,
            extensions={**request.extensions, **({KIND_EXTENSION: admitted.kind} if admitted.kind else {})},
            limits=admitted.limits,
            snapshot=request.snapshot,
            pool=ready.pool if ready else None,
            network_default=request.network_default,
            request_key=request_key_of(tenant, request.request_key),
            token=ready.token if ready else secrets.token_urlsafe(32),
        )

    async def _run(self, sandbox: Sandbox, request: CreateSandbox, image: Image, ready: Ready | None) -> Sandbox:
        granted = Granted(())
        try:
            granted = self.volumes.grant(sandbox.tenant, request.volumes)
            env = {**await self.attendance.prepare(sandbox), **sandbox.env}
            if sandbox.kind is not None:
                env[KIND_VARIABLE] = sandbox.kind
            record = await self._claim(sandbox, ready, env) if ready else None
            if record is None:
                record = await self._start(sandbox, request, image, granted, env)
            running = await self.sandboxes.transition(
                sandbox.id,
                [SandboxState.PENDING],
                SandboxState.RUNNING,
                record=dict(record),
                volumes=dict(granted.volumes),
                write=lambda work: self.events.together(work, _created),
            )
        except BaseException as error:
            await asyncio.shield(self._undo(sandbox, granted, error))
            raise
        self.watch(running)
        return running

    async def _claim(self, sandbox: Sandbox, ready: Ready, env: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Make a pool's box this sandbox's; None when the box turns out to be broken."""
        try:
            await self.attendance.started(sandbox, ready.record)  # Before anything in it runs that may need it.
            client = self.client(sandbox.model_copy(update={"record": ready.record}))
            await client.claim(env, sandbox.entrypoint)
            if sandbox.limits != ready.limits:
                await self.backend.limit(ready.record, sandbox.limits)
            return ready.record
        except PaddockError:
            await self._disconnect(sandbox.id)
            await self.backend.remove(ready.id)
            return None

    async def _start(
        self, sandbox: Sandbox, request: CreateSandbox, image: Image, granted: Granted, env: Mapping[str, str]
    ) -> Mapping[str, Any]:
        spec = BoxSpec(
            id=sandbox.id,
            image=image,
            token=sandbox.token,
            hostname=sandbox.id,
            env=env,
            entrypoint=sandbox.entrypoint,
            limits=sandbox.limits,
            mounts=granted.mounts,
            holes=(*self.attendance.holes, *request.holes),
            snapshot=sandbox.snapshot,
        )
        async with self.pools.starting(sandbox.tenant):
            record = await self.backend.start(spec)
        await self.attendance.started(sandbox, record)
        return record

    async def _undo(self, sandbox: Sandbox, granted: Granted, error: BaseException) -> None:
        await self.part(sandbox.id)
        await self.backend.remove(sandbox.id)
        await asyncio.to_thread(self.volumes.take_along, sandbox.tenant, granted.volumes)
        await self.sandboxes.delete(sandbox.id)
        await self.tell(sandbox, EventType.SANDBOX_FAILED, reason="start_failed", message=str(error))

    async def _settled(self, sandbox: Sandbox) -> Sandbox:
        under_way = self.starting.get(sandbox.id)
        if under_way is not None:
            return await asyncio.shield(under_way)
        return sandbox

    async def _release(self, sandbox: Sandbox) -> None:
        await self.part(sandbox.id)
        try:
            await self.backend.remove(sandbox.id)
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"sandbox {sandbox.id} could not be ended yet: {error}") from error
        await asyncio.to_thread(self.volumes.take_along, sandbox.tenant, sandbox.volumes)

    async def _disconnect(self, sandbox_id: str) -> None:
        await self.forwards.close(sandbox_id)
        client = self._clients.pop(sandbox_id, None)
        if client is not None:
            await client.close()

    async def _keep(self, sandbox: Sandbox, snapshot: Snapshot) -> None:
        creating = [SnapshotState.CREATING]
        try:
            async with self.lock(sandbox.id):
                await self.backend.snapshot(sandbox.record, snapshot.id)
        except (PaddockError, OSError, CalledProcessError) as error:
            failed = await self.snapshots.transition(
                snapshot.id, creating, SnapshotState.FAILED, "copy_failed", str(error)
            )
            await self._tell_snapshot(failed, EventType.SNAPSHOT_FAILED)
        else:
            ready = await self.snapshots.transition(snapshot.id, creating, SnapshotState.READY)
            await self._tell_snapshot(ready, EventType.SNAPSHOT_READY)

    async def _tell_snapshot(self, snapshot: Snapshot, kind: EventType) -> None:
        data = {"sandbox_id": snapshot.sandbox_id, "message": snapshot.message}
        await self.events.append(f"snapshot/{snapshot.id}", kind, data, tenant=snapshot.tenant)

    @asynccontextmanager
    async def _changing(
        self, tenant: str, sandbox_id: str, before: SandboxState, meanwhile: SandboxState
    ) -> AsyncIterator[Sandbox]:
        """Move a sandbox through a passing state, and back to where it was if that fails."""
        async with self.lock(sandbox_id):
            await self.get(tenant, sandbox_id)
            sandbox = await self.sandboxes.transition(sandbox_id, [before], meanwhile)
            try:
                yield sandbox
            except BoxGone:
                raise
            except BaseException:
                await asyncio.shield(self.sandboxes.transition(sandbox_id, [meanwhile], before))
                raise


def _created(sandbox: Sandbox) -> list[Happening]:
    """What is told of a sandbox that has come to be."""
    stream, about = sandbox_stream(sandbox.id), {"image": sandbox.image, "metadata": dict(sandbox.metadata)}
    return [
        Happening(stream, EventType.SANDBOX_CREATED, about, sandbox.tenant),
        Happening(stream, EventType.SANDBOX_RUNNING, {}, sandbox.tenant),
    ]

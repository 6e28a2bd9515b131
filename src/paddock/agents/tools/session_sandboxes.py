"""Sandboxes of chat sessions: created on first use, and again when lost.

Each kind has one sandbox per session. Its `/workspace` is a volume of the session, which outlives the sandbox and is
deleted with the session.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakValueDictionary

import structlog

from paddock.agents.tools.image_builds import ensure_image_built
from paddock.config.schema import Config
from paddock.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    PaddockError,
    SandboxError,
    SandboxGone,
    SandboxNotFound,
    SessionNotFound,
    Unavailable,
)
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.model.sandbox import SESSION_KEY, Sandbox, SandboxState
from paddock.model.session_events import ImageBuildProgress, SessionEvent, SessionSandbox
from paddock.model.sessions import Session
from paddock.model.task_fields import WORKSPACE
from paddock.sandbox.images import ImageStore
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store

LLM_SESSION_EXTENSION = "paddock.llm.session"
"""Sandbox extension that charges model requests from the sandbox to the session."""
LIFE_MARGIN = 600.0
"""Seconds that a sandbox outlives the idle time of its session."""
RENEW_AFTER = 300.0
"""Seconds of life used up before a sandbox in use is renewed."""
PING_TIMEOUT = 5.0
"""Seconds that a call waits for a ping before it proceeds anyway."""
LAST_PING_TIMEOUT = 30.0
"""Seconds that a failing sandbox has to answer a ping before it is dropped."""
MAX_GENERATIONS = 1000
PAGE_SIZE = 200
log = structlog.get_logger()


@dataclass(frozen=True)
class AcquiredSandbox:
    """A running sandbox, ready for a call."""

    sandbox: Sandbox
    note: str | None = None
    """Note for the agent if the sandbox is new or was paused."""


class SessionSandboxes:
    """Create, find and delete the sandboxes of sessions."""

    def __init__(self, config: Config, fleet: Fleet, events: EventLog, store: Store) -> None:
        self._config = config
        self._fleet = fleet
        self._events = events
        self._session_store = SessionStore(store)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._creations: dict[tuple[str, str], asyncio.Task[AcquiredSandbox]] = {}
        self._builds: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def acquire(self, session: Session, kind: str) -> AcquiredSandbox:
        """Return the session's sandbox of a kind; create it if missing or lost.

        Concurrent callers get the same sandbox. Raises `InvalidInput` for a kind that the session may not use, and
        the fleet's errors if it cannot create one.
        """
        async with self._lock(session.id, kind):
            creation = self._creations.get((session.id, kind))
            if creation is None:
                current = await self._session_store.get(session.id)
                if kind not in current.kinds:
                    allowed = ", ".join(current.kinds) or "no kinds"
                    raise InvalidInput(f"this session may not use {kind}; it has {allowed}")
                sandbox_id, reason = current.sandboxes.get(kind), None
                if sandbox_id is not None:
                    sandbox, reason = await self._find_usable(session.tenant, sandbox_id)
                    if sandbox is not None:
                        return AcquiredSandbox(await self._renew_if_needed(sandbox), reason)
                    await self._drop_sandbox(session, kind, sandbox_id, reason or "lost")
                creation = self._start_creation(session, kind, reason)
            # Creation continues even if the call that needs the sandbox is cancelled.
            return await asyncio.shield(creation)

    async def check_lost(self, session: Session, kind: str, sandbox: Sandbox) -> str | None:
        """Drop a sandbox that failed and does not recover; return the reason, or None if it is healthy."""
        async with self._lock(session.id, kind):
            usable, reason = await self._find_usable(session.tenant, sandbox.id, patient=False)
            if usable is not None:
                return None
            if (await self._session_store.get(session.id)).sandboxes.get(kind) == sandbox.id:
                await self._drop_sandbox(session, kind, sandbox.id, reason or "lost")
            return reason or "lost"

    async def release_all(self, session: Session, reason: str) -> None:
        """Delete the session's sandboxes and emit the change; workspaces are kept. Idempotent."""
        async with AsyncExitStack() as locks:
            for kind in sorted({*session.kinds, *session.sandboxes}):
                await locks.enter_async_context(self._lock(session.id, kind))
            await self._wait_for_creation(session.id)
            try:
                current = await self._session_store.get(session.id)
            except SessionNotFound:
                current = session
            sandboxes, _ = await self._fleet.list(
                session.tenant, metadata={SESSION_KEY: session.id}, page_size=PAGE_SIZE
            )
            created_ids = [
                each.id
                for each in sandboxes
                if (each.request_key or "").startswith(session_sandbox_request_key(session))
            ]
            for sandbox_id in dict.fromkeys([*current.sandboxes.values(), *created_ids]):
                await self._delete_sandbox(session.tenant, sandbox_id)
            if current.sandboxes:
                released_events = [
                    SessionSandbox(kind=kind, sandbox_id=sandbox_id, state="released", reason=reason)
                    for kind, sandbox_id in current.sandboxes.items()
                ]
                await self._update_session(session, released_events, drop=current.sandboxes)

    async def delete_all(self, session: Session) -> None:
        """Delete the session's sandboxes and their workspaces. Idempotent."""
        await self.release_all(session, "deleted")
        volumes = self._fleet.volumes
        for claim in await asyncio.to_thread(
            volumes.list_volume_names, session.tenant, workspace_volume_name(session, "")
        ):
            await asyncio.to_thread(volumes.remove_volume, session.tenant, claim)

    async def change_network(self, session: Session) -> None:
        """Give the session's sandboxes its network policy, or the default of their kinds if it has none."""
        for sandbox_id in session.sandboxes.values():
            try:
                await self._sync_network(session, await self._fleet.get(session.tenant, sandbox_id))
            except (NotFound, Conflict) as error:
                log.info("sandbox of a session has ended", session=session.id, sandbox=sandbox_id, error=error.message)

    async def _sync_network(self, session: Session, sandbox: Sandbox) -> None:
        policy = session.network
        await self._fleet.change_network(session.tenant, sandbox.id, None if policy is None else lambda _: policy)

    async def extend_life(self, session: Session, sandbox_id: str) -> None:
        """Renew a sandbox of the session, if it still exists."""
        try:
            await self._renew_if_needed(await self._fleet.get(session.tenant, sandbox_id))
        except SandboxNotFound:
            pass

    async def close(self) -> None:
        """Wait for sandboxes that are being created."""
        await self._wait_for_creation(None)

    async def _wait_for_creation(self, session_id: str | None) -> None:
        """Wait for sandboxes being created for a session, or for all; cancel image builds, which take minutes."""
        for (owner_id, _), build in self._builds.items():
            if session_id in (None, owner_id):
                build.cancel()
        creations = [task for (owner_id, _), task in self._creations.items() if session_id in (None, owner_id)]
        await asyncio.gather(*creations, return_exceptions=True)

    async def emit(self, session: Session, *events: SessionEvent) -> None:
        """Emit events, unless the session was deleted."""
        await self._update_session(session, events)

    async def _find_usable(
        self, tenant: str, sandbox_id: str, *, patient: bool = True
    ) -> tuple[Sandbox | None, str | None]:
        """Return the sandbox and a note if it is usable, otherwise None and the reason.

        With `patient`, a sandbox that answers slowly counts as busy, not as lost.
        """
        try:
            sandbox = await self._fleet.get(tenant, sandbox_id)
            if sandbox.state in (SandboxState.PAUSING, SandboxState.RESUMING):
                async with self._fleet.sandbox_lock(sandbox_id):
                    sandbox = await self._fleet.get(tenant, sandbox_id)
            note = None
            if sandbox.state is SandboxState.PAUSED:
                sandbox = await self._fleet.resume(tenant, sandbox_id)
                note = "The sandbox had been paused; it was resumed."
            if sandbox.state is not SandboxState.RUNNING:
                return None, sandbox.message or sandbox.reason or f"the sandbox is {sandbox.state}"
            await self._fleet.client(sandbox).ping(PING_TIMEOUT if patient else LAST_PING_TIMEOUT)
            return sandbox, note
        except SandboxNotFound:
            return None, "the sandbox was deleted"
        except SandboxGone as error:
            return None, await self._end_reason(sandbox, error)
        except SandboxError as error:
            return (sandbox, None) if patient else (None, error.message)
        except Conflict as error:
            return None, error.message

    async def _end_reason(self, sandbox: Sandbox, error: PaddockError) -> str:
        """Return why a sandbox ended, as far as the backend knows."""
        try:
            status = await self._fleet.backend.status(sandbox.record)
        except (PaddockError, OSError):
            return error.message
        return status.message or status.reason or error.message

    async def _renew_if_needed(self, sandbox: Sandbox) -> Sandbox:
        """Renew a sandbox in use when enough of its life is used up."""
        expires_at = datetime.now(UTC) + timedelta(seconds=self._sandbox_life())
        if sandbox.expires_at is None or (expires_at - sandbox.expires_at).total_seconds() < min(
            RENEW_AFTER, self._sandbox_life() / 4
        ):
            return sandbox
        try:
            return await self._fleet.renew(sandbox.tenant, sandbox.id, expires_at)
        except (Conflict, NotFound, InvalidInput) as error:
            log.warning("could not renew sandbox in use", sandbox=sandbox.id, error=error.message)
            return sandbox

    def _sandbox_life(self) -> float:
        chat, sandboxes = self._config.chat, self._config.sandboxes
        return min(max(chat.idle_time, chat.call_timeout) + LIFE_MARGIN, sandboxes.max_timeout)

    def _start_creation(self, session: Session, kind: str, reason: str | None) -> asyncio.Task[AcquiredSandbox]:
        creation = asyncio.create_task(
            self._create_and_register(session, kind, reason), name=f"{kind} sandbox of {session.id}"
        )
        self._creations[session.id, kind] = creation

        def forget_creation(task: asyncio.Task[AcquiredSandbox]) -> None:
            self._creations.pop((session.id, kind), None)
            if not task.cancelled() and task.exception() is not None:
                log.info("could not create sandbox of session", session=session.id, error=str(task.exception()))

        creation.add_done_callback(forget_creation)
        return creation

    async def _create_and_register(self, session: Session, kind: str, reason: str | None) -> AcquiredSandbox:
        claim = workspace_volume_name(session, kind)
        has_workspace = claim in await asyncio.to_thread(self._fleet.volumes.list_volume_names, session.tenant, claim)
        await self.emit(session, SessionSandbox(kind=kind, sandbox_id="", state="starting", reason=reason))
        try:
            await self._ensure_kind_image(session, kind)
            start_time = datetime.now(UTC)
            sandbox = await self._create_in_fleet(await self._session_store.get(session.id), kind)
        except PaddockError as error:
            await self.emit(
                session, SessionSandbox(kind=kind, sandbox_id="", state="broken", reason=error.message[:1000])
            )
            raise
        ready = SessionSandbox(kind=kind, sandbox_id=sandbox.id, state="ready")
        if not await self._update_session(session, [ready], add={kind: sandbox.id}):
            await self._delete_sandbox(session.tenant, sandbox.id)
            raise SessionNotFound(f"session {session.id} was deleted")
        await self._sync_settings(session.id, sandbox)
        return AcquiredSandbox(
            sandbox, _new_sandbox_note(kind, reason) if has_workspace and sandbox.created_at >= start_time else None
        )

    async def _sync_settings(self, session_id: str, sandbox: Sandbox) -> None:
        """Give a new sandbox its session's visibility and network, which may have changed meanwhile."""
        try:
            session = await self._session_store.get(session_id)
            if session.visibility is not sandbox.visibility:
                await self._fleet.share(session.tenant, sandbox.id, session.visibility)
            await self._sync_network(session, sandbox)
        except NotFound:
            log.info("new sandbox of a session is already gone", session=session_id, sandbox=sandbox.id)

    async def _create_in_fleet(self, session: Session, kind: str) -> Sandbox:
        # After a crash the next server repeats the request with the same key and gets the same sandbox.
        for generation in range(1, MAX_GENERATIONS):
            sandbox = await self._fleet.create(
                session.tenant,
                SandboxRequest(
                    kind=kind,
                    timeout=self._sandbox_life(),
                    metadata={SESSION_KEY: session.id},
                    owner=session.ownership,
                    # Its programs get no MCP servers: they could call tools past the approvals of the session.
                    extensions={LLM_SESSION_EXTENSION: session.id},
                    network=session.network,
                    volumes=(
                        VolumeRequest(name="workspace", claim=workspace_volume_name(session, kind), target=WORKSPACE),
                    ),
                    request_key=session_sandbox_request_key(session, kind, generation),
                ),
            )
            if sandbox.state is SandboxState.RUNNING:
                return sandbox
        raise Unavailable(f"too many {kind} sandboxes were created for this session; try again later")

    async def _ensure_kind_image(self, session: Session, kind: str) -> None:
        """Build the image of a kind if only its recipe exists."""
        images, name = self._fleet.images, self._fleet.kinds.get(kind).image

        def emit_progress(build: ImageBuildProgress) -> Awaitable[object]:
            return self.emit(session, SessionSandbox(kind=kind, sandbox_id="", state="starting", building=build))

        if not isinstance(images, ImageStore):
            return
        build = asyncio.create_task(
            ensure_image_built(images, name, emit_progress), name=f"image {name} for {session.id}"
        )
        self._builds[session.id, kind] = build
        try:
            await asyncio.wait([build])
        finally:
            del self._builds[session.id, kind]
            build.cancel()
        if build.cancelled():
            raise Unavailable(f"the build of image {name} was cancelled")
        build.result()

    async def _drop_sandbox(self, session: Session, kind: str, sandbox_id: str, reason: str) -> None:
        """Remove a broken sandbox from the session and delete it."""
        broken = SessionSandbox(kind=kind, sandbox_id=sandbox_id, state="broken", reason=reason[:1000])
        await self._update_session(session, [broken], drop={kind: sandbox_id})
        await self._delete_sandbox(session.tenant, sandbox_id)

    async def _delete_sandbox(self, tenant: str, sandbox_id: str) -> None:
        try:
            starting = self._fleet.starting.get(sandbox_id)
            if starting is not None:
                await asyncio.wait([starting], timeout=self._config.sandboxes.start_timeout)
            await self._fleet.delete(tenant, sandbox_id)
        except SandboxNotFound:
            pass
        except PaddockError as error:  # It ends when it expires.
            log.warning("could not delete sandbox of session", sandbox=sandbox_id, error=error.message)

    async def _update_session(
        self,
        session: Session,
        events: Sequence[SessionEvent],
        *,
        add: Mapping[str, str] | None = None,
        drop: Mapping[str, str] | None = None,
    ) -> bool:
        """Change the session's sandboxes and emit events; return False if the session was deleted."""

        def work(connection: Any) -> Session:
            current = SessionStore.load_session(connection, session.id)
            dropped = (drop or {}).items()
            sandboxes = {
                **{
                    kind: sandbox_id
                    for kind, sandbox_id in current.sandboxes.items()
                    if (kind, sandbox_id) not in dropped
                },
                **(add or {}),
            }
            if sandboxes == current.sandboxes:
                return current
            return SessionStore.update_session(connection, session.id, {"sandboxes": sandboxes}, datetime.now(UTC))

        try:
            await self._events.write_with_events(work, lambda _: session_log_entries(session, *events))
        except SessionNotFound:
            return False
        return True

    def _lock(self, session_id: str, kind: str) -> asyncio.Lock:
        return self._locks.setdefault((session_id, kind), asyncio.Lock())


def workspace_volume_name(session: Session, kind: str) -> str:
    """Return the name of the workspace volume of a session's sandboxes of a kind."""
    return f"{re.sub('[^a-z0-9]+', '-', session.id.lower()).strip('-')}-{kind}"


def session_sandbox_request_key(session: Session, *parts: object) -> str:
    """Return the fleet's request key of a sandbox of the session.

    The key contains a tab, which keys from outside cannot contain: otherwise a client could set up a sandbox under this
    key and have the agent work in it or delete it.
    """
    return "/".join(["session\t" + session.id, *map(str, parts)]) + ("" if parts else "/")


def _new_sandbox_note(kind: str, reason: str | None) -> str:
    cause = f" because the earlier one was lost ({reason})" if reason else ""
    return (
        f"A new {kind} sandbox was created{cause}. {WORKSPACE} is unchanged; files elsewhere, running programs, "
        "windows, variables and installed packages are gone."
    )

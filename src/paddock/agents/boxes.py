"""The sandboxes of chat sessions: made when they are first needed, and anew when they are lost.

Each kind of a session has a sandbox of its own. Its `/workspace` is a volume of the session, which stays when the
sandbox goes, until the session itself does.
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

from paddock.agents.building import have_image
from paddock.config.schema import Config
from paddock.errors import (
    BoxError,
    BoxGone,
    Conflict,
    InvalidInput,
    NotFound,
    PaddockError,
    SandboxNotFound,
    SessionNotFound,
    Unavailable,
)
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.requests import CreateSandbox, VolumeRequest
from paddock.model.sandbox import SESSION, Sandbox, SandboxState
from paddock.model.session_events import Building, SessionEvent, SessionSandbox
from paddock.model.sessions import Session
from paddock.model.words import WORKSPACE
from paddock.sandbox.images import ImageStore
from paddock.store.database import Store
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

LLM_SESSION = "paddock.llm.session"
"""The extension that puts what is asked of models in a sandbox down to its session."""
MARGIN = 600.0
"""Seconds that a sandbox lives beyond the time after which its session lets go of it."""
RENEW_AFTER = 300.0
"""Seconds after which use of a sandbox prolongs its life again."""
PING = 5.0
"""Seconds that a call waits for a sign of life before it goes ahead anyway."""
LAST_PING = 30.0
"""Seconds within which a box says that it lives after it has given trouble, or it is given up."""
MOST_GENERATIONS = 1000
PAGE = 200
log = structlog.get_logger()


@dataclass(frozen=True)
class Held:
    """A sandbox that runs."""

    sandbox: Sandbox
    note: str | None = None
    """What the agent has to know before it goes on: that it is not as it was."""


class Boxes:
    """Keeps what sandboxes each session has, in the session and in the fleet."""

    def __init__(self, config: Config, fleet: Fleet, events: EventLog, store: Store) -> None:
        self._config = config
        self._fleet = fleet
        self._events = events
        self._book = SessionStore(store)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._making: dict[tuple[str, str], asyncio.Task[Held]] = {}
        self._building: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def get(self, session: Session, kind: str) -> Held:
        """The session's sandbox of a kind, made if there is none or the one there was is lost.

        Who asks at the same time gets the same. Raises `InvalidInput` for a kind that the session may not use, and
        what the fleet raises when it cannot make one.
        """
        async with self._lock(session.id, kind):
            making = self._making.get((session.id, kind))
            if making is None:
                current = await self._book.get(session.id)
                if kind not in current.kinds:
                    there = ", ".join(current.kinds) or "no kinds"
                    raise InvalidInput(f"this session may not use {kind}; it has {there}")
                known, why = current.sandboxes.get(kind), None
                if known is not None:
                    found, why = await self._look(session.tenant, known)
                    if found is not None:
                        return Held(await self._prolong(found), why)
                    await self._drop(session, kind, known, why or "lost")
                making = self._begin(session, kind, why)
            # What is begun is finished, even if the call that needs it is cancelled.
            return await asyncio.shield(making)

    async def lost(self, session: Session, kind: str, sandbox: Sandbox) -> str | None:
        """Why a sandbox can be used no more, after it has given trouble; it is then dropped. None when it is well."""
        async with self._lock(session.id, kind):
            found, why = await self._look(session.tenant, sandbox.id, patient=False)
            if found is not None:
                return None
            if (await self._book.get(session.id)).sandboxes.get(kind) == sandbox.id:
                await self._drop(session, kind, sandbox.id, why or "lost")
            return why or "lost"

    async def release(self, session: Session, reason: str) -> None:
        """Delete the sandboxes of a session, and tell it. Their workspaces stay. Idempotent."""
        async with AsyncExitStack() as locked:
            for kind in sorted({*session.kinds, *session.sandboxes}):
                await locked.enter_async_context(self._lock(session.id, kind))
            await self._finish(session.id)
            try:
                current = await self._book.get(session.id)
            except SessionNotFound:
                current = session
            listed, _ = await self._fleet.list(session.tenant, metadata={SESSION: session.id}, page_size=PAGE)
            made = [each.id for each in listed if (each.request_key or "").startswith(request_key_of(session))]
            for sandbox_id in dict.fromkeys([*current.sandboxes.values(), *made]):
                await self._end(session.tenant, sandbox_id)
            if current.sandboxes:
                gone = [
                    SessionSandbox(kind=kind, sandbox_id=sandbox_id, state="released", reason=reason)
                    for kind, sandbox_id in current.sandboxes.items()
                ]
                await self._record(session, gone, drop=current.sandboxes)

    async def forget(self, session: Session) -> None:
        """Delete the session's sandboxes and their workspaces. Idempotent."""
        await self.release(session, "deleted")
        volumes = self._fleet.volumes
        for claim in await asyncio.to_thread(volumes.claims, session.tenant, workspace(session, "")):
            await asyncio.to_thread(volumes.remove, session.tenant, claim)

    async def prolong(self, session: Session, sandbox_id: str) -> None:
        """Let a sandbox of a session live on, if it is still there."""
        try:
            await self._prolong(await self._fleet.get(session.tenant, sandbox_id))
        except SandboxNotFound:
            pass

    async def close(self) -> None:
        """Wait for sandboxes that are being made."""
        await self._finish(None)

    async def _finish(self, session_id: str | None) -> None:
        """Wait for what is being made for a session, or for all; but for no image, which may take minutes."""
        for (whose, _), building in self._building.items():
            if session_id in (None, whose):
                building.cancel()
        making = [task for (whose, _), task in self._making.items() if session_id in (None, whose)]
        await asyncio.gather(*making, return_exceptions=True)

    async def tell(self, session: Session, *events: SessionEvent) -> None:
        """Record what happened, unless the session is no more."""
        await self._record(session, events)

    async def _look(self, tenant: str, sandbox_id: str, *, patient: bool = True) -> tuple[Sandbox | None, str | None]:
        """The sandbox if it can be used, and what is to be said of it; or else why it cannot.

        `patient` takes a box that is slow to answer for a busy one.
        """
        try:
            sandbox = await self._fleet.get(tenant, sandbox_id)
            if sandbox.state in (SandboxState.PAUSING, SandboxState.RESUMING):
                async with self._fleet.lock(sandbox_id):
                    sandbox = await self._fleet.get(tenant, sandbox_id)
            note = None
            if sandbox.state is SandboxState.PAUSED:
                sandbox = await self._fleet.resume(tenant, sandbox_id)
                note = "The sandbox had been paused, and goes on now from where it stood."
            if sandbox.state is not SandboxState.RUNNING:
                return None, sandbox.message or sandbox.reason or f"it is {sandbox.state}"
            await self._fleet.client(sandbox).ping(PING if patient else LAST_PING)
            return sandbox, note
        except SandboxNotFound:
            return None, "it was deleted"
        except BoxGone as error:
            return None, await self._cause(sandbox, error)
        except BoxError as error:
            return (sandbox, None) if patient else (None, error.message)
        except Conflict as error:
            return None, error.message

    async def _cause(self, sandbox: Sandbox, error: PaddockError) -> str:
        """What a box has died of, as far as the backend can see."""
        try:
            status = await self._fleet.backend.status(sandbox.record)
        except (PaddockError, OSError):
            return error.message
        return status.message or status.reason or error.message

    async def _prolong(self, sandbox: Sandbox) -> Sandbox:
        """Let a sandbox that is used live on."""
        wanted = datetime.now(UTC) + timedelta(seconds=self._life())
        if sandbox.expires_at is None or (wanted - sandbox.expires_at).total_seconds() < min(
            RENEW_AFTER, self._life() / 4
        ):
            return sandbox
        try:
            return await self._fleet.renew(sandbox.tenant, sandbox.id, wanted)
        except (Conflict, NotFound, InvalidInput) as error:
            log.warning("a sandbox in use could not be renewed", sandbox=sandbox.id, error=error.message)
            return sandbox

    def _life(self) -> float:
        chat, sandboxes = self._config.chat, self._config.sandboxes
        return min(max(chat.idle_time, chat.call_timeout) + MARGIN, sandboxes.max_timeout)

    def _begin(self, session: Session, kind: str, why: str | None) -> asyncio.Task[Held]:
        making = asyncio.create_task(self._make(session, kind, why), name=f"{kind} sandbox of {session.id}")
        self._making[session.id, kind] = making

        def done(task: asyncio.Task[Held]) -> None:
            self._making.pop((session.id, kind), None)
            if not task.cancelled() and task.exception() is not None:
                log.info("a sandbox of a session could not be made", session=session.id, error=str(task.exception()))

        making.add_done_callback(done)
        return making

    async def _make(self, session: Session, kind: str, why: str | None) -> Held:
        claim = workspace(session, kind)
        again = claim in await asyncio.to_thread(self._fleet.volumes.claims, session.tenant, claim)
        await self.tell(session, SessionSandbox(kind=kind, sandbox_id="", state="starting", reason=why))
        try:
            await self._have_image(session, kind)
            began = datetime.now(UTC)
            sandbox = await self._create(await self._book.get(session.id), kind)
        except PaddockError as error:
            await self.tell(
                session, SessionSandbox(kind=kind, sandbox_id="", state="broken", reason=error.message[:1000])
            )
            raise
        ready = SessionSandbox(kind=kind, sandbox_id=sandbox.id, state="ready")
        if not await self._record(session, [ready], add={kind: sandbox.id}):
            await self._end(session.tenant, sandbox.id)
            raise SessionNotFound(f"session {session.id} was deleted")
        await self._share(session.id, sandbox)
        return Held(sandbox, _anew(kind, why) if again and sandbox.created_at >= began else None)

    async def _share(self, session_id: str, sandbox: Sandbox) -> None:
        """Give a new sandbox its session's visibility, which may have changed while the sandbox was made."""
        try:
            session = await self._book.get(session_id)
            if session.visibility is not sandbox.visibility:
                await self._fleet.share(session.tenant, sandbox.id, session.visibility)
        except NotFound:
            log.info("new sandbox of a session is gone already", session=session_id, sandbox=sandbox.id)

    async def _create(self, session: Session, kind: str) -> Sandbox:
        # A server that dies in the middle is followed by one that asks the same, and is given the same.
        for generation in range(1, MOST_GENERATIONS):
            sandbox = await self._fleet.create(
                session.tenant,
                CreateSandbox(
                    kind=kind,
                    timeout=self._life(),
                    metadata={SESSION: session.id},
                    owner=session.ownership,
                    extensions={LLM_SESSION: session.id},
                    volumes=(VolumeRequest(name="workspace", claim=workspace(session, kind), target=WORKSPACE),),
                    request_key=request_key_of(session, kind, generation),
                ),
            )
            if sandbox.state is SandboxState.RUNNING:
                return sandbox
        raise Unavailable(f"too many sandboxes of the kind {kind} were made for this session; try again later")

    async def _have_image(self, session: Session, kind: str) -> None:
        """Build the image of a kind if only its recipe is there."""
        images, name = self._fleet.images, self._fleet.kinds.get(kind).image

        def tell(building: Building) -> Awaitable[object]:
            return self.tell(session, SessionSandbox(kind=kind, sandbox_id="", state="starting", building=building))

        if not isinstance(images, ImageStore):
            return
        building = asyncio.create_task(have_image(images, name, tell), name=f"image {name} for {session.id}")
        self._building[session.id, kind] = building
        try:
            await asyncio.wait([building])
        finally:
            del self._building[session.id, kind]
            building.cancel()
        if building.cancelled():
            raise Unavailable(f"the image {name} was not built: nobody waits for it any more")
        building.result()

    async def _drop(self, session: Session, kind: str, sandbox_id: str, reason: str) -> None:
        """Part from a sandbox that is broken or gone."""
        broken = SessionSandbox(kind=kind, sandbox_id=sandbox_id, state="broken", reason=reason[:1000])
        await self._record(session, [broken], drop={kind: sandbox_id})
        await self._end(session.tenant, sandbox_id)

    async def _end(self, tenant: str, sandbox_id: str) -> None:
        try:
            starting = self._fleet.starting.get(sandbox_id)
            if starting is not None:
                await asyncio.wait([starting], timeout=self._config.sandboxes.start_timeout)
            await self._fleet.delete(tenant, sandbox_id)
        except SandboxNotFound:
            pass
        except PaddockError as error:  # It ends when its time is up.
            log.warning("a sandbox of a session could not be ended", sandbox=sandbox_id, error=error.message)

    async def _record(
        self,
        session: Session,
        events: Sequence[SessionEvent],
        *,
        add: Mapping[str, str] | None = None,
        drop: Mapping[str, str] | None = None,
    ) -> bool:
        """Change which sandboxes the session has, and tell of it; False when there is no such session any more."""

        def work(connection: Any) -> Session:
            current = SessionStore.current(connection, session.id)
            gone = (drop or {}).items()
            left = {
                **{kind: known for kind, known in current.sandboxes.items() if (kind, known) not in gone},
                **(add or {}),
            }
            if left == current.sandboxes:
                return current
            return SessionStore.alter(connection, session.id, {"sandboxes": left}, datetime.now(UTC))

        try:
            await self._events.together(work, lambda _: happening(session, *events))
        except SessionNotFound:
            return False
        return True

    def _lock(self, session_id: str, kind: str) -> asyncio.Lock:
        return self._locks.setdefault((session_id, kind), asyncio.Lock())


def workspace(session: Session, kind: str) -> str:
    """The name of the volume that is the workspace of a session's sandboxes of a kind."""
    return f"{re.sub('[^a-z0-9]+', '-', session.id.lower()).strip('-')}-{kind}"


def request_key_of(session: Session, *more: object) -> str:
    """What the fleet knows a sandbox by. It has a tab in it, as no key has that comes from outside: whoever sets up a
    sandbox under this name, or calls it one of the session's, would have the agent work in it, or have it deleted."""
    return "/".join(["session\t" + session.id, *map(str, more)]) + ("" if more else "/")


def _anew(kind: str, why: str | None) -> str:
    cause = f" because the earlier one is lost ({why})" if why else ""
    return (
        f"A new {kind} sandbox was made{cause}. {WORKSPACE} has what it had; files elsewhere, programs that ran, "
        "windows, variables and whatever was installed are gone."
    )

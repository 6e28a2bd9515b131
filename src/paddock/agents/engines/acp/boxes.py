"""The sandbox that an agent program lives in: one for each session, made when it is first needed.

Its workspace and its home are volumes of the session, so a program finds its files and its own notes of the
conversation again in another sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from paddock.agents.boxes import LLM_SESSION, request_key_of, workspace
from paddock.agents.building import have_image
from paddock.agents.engines.acp.place import Place
from paddock.agents.engines.acp.presets import Program
from paddock.agents.engines.acp.telling import KIND
from paddock.agents.engines.base import Turn
from paddock.agents.engines.registry import Means
from paddock.errors import Conflict, PaddockError, SandboxNotFound, SessionNotFound, Unavailable
from paddock.fleet.requests import CreateSandbox, VolumeRequest
from paddock.model.sandbox import SESSION, Sandbox, SandboxState
from paddock.model.session_events import Building, SessionSandbox
from paddock.model.sessions import Session
from paddock.model.words import WORKSPACE
from paddock.store.sessions import SessionStore

PROGRAM = "program"
"""The metadata of a sandbox that says which agent program lives in it."""
HOME = "home"
SHORTEST_LIFE = 600.0
MOST_GENERATIONS = 1000
log = structlog.get_logger()


class AgentBoxes:
    """Makes, finds and ends the sandboxes of agent programs."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._fleet = means.fleet
        config = means.config
        self._making: dict[str, asyncio.Task[Sandbox]] = {}
        self._life = min(max(config.chat.idle_time, SHORTEST_LIFE), config.sandboxes.max_timeout)

    async def board(self, turn: Turn, place: Place, program: Program) -> Sandbox:
        """The session's sandbox; a new one if it has none or the one it had has ended."""
        session = turn.session
        if place.sandbox is not None:
            sandbox = await self._running(session, place.sandbox)
            if sandbox is not None:
                await self.renew(sandbox)
                return sandbox
            gone = SessionSandbox(kind=KIND, sandbox_id=place.sandbox, state="broken", reason="it has ended")
            await self._tell(turn, gone, None)
            place.forget_box()
        await turn.tell(SessionSandbox(kind=KIND, sandbox_id="", state="starting"))
        try:
            await self._have_image(turn, program)
            sandbox = await self._made(session, program, place)
        except PaddockError as error:
            await turn.tell(SessionSandbox(kind=KIND, sandbox_id="", state="broken", reason=error.message[:1000]))
            raise
        place.sandbox = sandbox.id
        await self._tell(turn, SessionSandbox(kind=KIND, sandbox_id=sandbox.id, state="ready"), sandbox.id)
        return sandbox

    async def home(self, program: Program) -> str:
        return (await self._means.images.resolve_async(program.image)).user.home

    async def renew(self, sandbox: Sandbox) -> None:
        """Let it live a while longer."""
        try:
            await self._fleet.renew(sandbox.tenant, sandbox.id, datetime.now(UTC) + timedelta(seconds=self._life))
        except PaddockError:
            return  # It has ended, which is told elsewhere, or lives for ever.

    async def keep_alive(self, sandbox: Sandbox) -> None:
        """Renew it for as long as it is used."""
        while True:
            await asyncio.sleep(self._life / 4)
            await self.renew(sandbox)

    async def release(self, session: Session) -> None:
        """End what the session has, and what is being made for it. Idempotent."""
        if (making := self._making.get(session.id)) is not None:
            await asyncio.wait([making])
        found, _ = await self._fleet.list(session.tenant, metadata={SESSION: session.id}, page_size=1000)
        for sandbox in found:
            if PROGRAM in sandbox.metadata and (sandbox.request_key or "").startswith(request_key_of(session)):
                try:
                    await self._fleet.delete(session.tenant, sandbox.id)
                except SandboxNotFound:
                    continue

    async def _running(self, session: Session, sandbox_id: str) -> Sandbox | None:
        try:
            sandbox = await self._fleet.get(session.tenant, sandbox_id)
            if sandbox.state is SandboxState.PAUSED:
                sandbox = await self._fleet.resume(session.tenant, sandbox_id)
        except (SandboxNotFound, Conflict):
            return None
        return sandbox if sandbox.state is SandboxState.RUNNING else None

    async def _have_image(self, turn: Turn, program: Program) -> None:
        def tell(building: Building) -> Awaitable[object]:
            return turn.tell(SessionSandbox(kind=KIND, sandbox_id="", state="starting", building=building))

        await have_image(self._means.images, program.image, tell)

    async def _made(self, session: Session, program: Program, place: Place) -> Sandbox:
        """What is begun is finished, even if the turn that needs it is cancelled."""
        if (earlier := self._making.get(session.id)) is not None:
            return await asyncio.shield(earlier)
        making = asyncio.create_task(self._make(session, program, place), name=f"sandbox of {session.id}")
        self._making[session.id] = making

        def done(task: asyncio.Task[Sandbox]) -> None:
            del self._making[session.id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("a sandbox of a session could not be made", session=session.id, error=str(error))

        making.add_done_callback(done)
        return await asyncio.shield(making)

    async def _make(self, session: Session, program: Program, place: Place) -> Sandbox:
        home = await self.home(program)
        for _ in range(MOST_GENERATIONS):
            # A server that dies in the middle is followed by one that asks the same, and is given the same.
            request = self._request(session, program, home, place.generation)
            sandbox = await self._fleet.create(session.tenant, request)
            if sandbox.state is SandboxState.RUNNING:
                return sandbox
            place.generation += 1
        raise Unavailable("too many sandboxes were made for this session; try again later")

    def _request(self, session: Session, program: Program, home: str, generation: int) -> CreateSandbox:
        return CreateSandbox(
            image=program.image,
            kind=KIND,
            timeout=self._life,
            metadata={SESSION: session.id, PROGRAM: program.name},
            owner=session.ownership,
            extensions={LLM_SESSION: session.id},
            volumes=(
                VolumeRequest(name="workspace", claim=workspace(session, KIND), target=WORKSPACE),
                VolumeRequest(name=HOME, claim=workspace(session, f"{program.name}-{HOME}"), target=home),
            ),
            request_key=request_key_of(session, "agent", generation),
        )

    async def _tell(self, turn: Turn, event: SessionSandbox, sandbox_id: str | None) -> None:
        """Tell of the sandbox, and let the session know that it has it."""
        session_id = turn.session.id

        def alter(connection: Any) -> None:
            known = dict(SessionStore.current(connection, session_id).sandboxes)
            changed: Mapping[str, str] = (
                {**known, KIND: sandbox_id} if sandbox_id else _without(known, event.sandbox_id)
            )
            if changed != known:
                SessionStore.alter(connection, session_id, {"sandboxes": changed}, datetime.now(UTC))

        try:
            await self._means.store.write(alter)
        except SessionNotFound:
            pass  # It was deleted meanwhile; whoever did that ends the turn.
        await turn.tell(event)


def _without(known: Mapping[str, str], sandbox_id: str) -> dict[str, str]:
    return {kind: each for kind, each in known.items() if each != sandbox_id}

"""Sandboxes of agent programs: one per session, created on first use.

The workspace and the home directory are volumes of the session, so a program finds its files and its own record of the
conversation again in a new sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from paddock.agents.engines.acp.acp_session_state import AcpSessionState
from paddock.agents.engines.acp.agent_programs import AgentProgram
from paddock.agents.engines.acp.update_recorder import KIND
from paddock.agents.engines.base import Turn
from paddock.agents.engines.registry import EngineDependencies
from paddock.agents.tools.image_builds import ensure_image_built
from paddock.agents.tools.mcp_tools import session_sandbox_extensions
from paddock.agents.tools.session_sandboxes import (
    LLM_SESSION_EXTENSION,
    session_sandbox_request_key,
    workspace_volume_name,
)
from paddock.errors import Conflict, PaddockError, SandboxNotFound, SessionNotFound, Unavailable
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.model.sandbox import SESSION_KEY, Sandbox, SandboxState
from paddock.model.session_events import ImageBuildProgress, SessionSandbox
from paddock.model.sessions import Session
from paddock.model.task_fields import WORKSPACE
from paddock.store.chat_sessions.session_store import SessionStore

PROGRAM_METADATA = "program"
"""Sandbox metadata key that names the agent program."""
HOME_VOLUME = "home"
MIN_LIFE = 600.0
MAX_GENERATIONS = 1000
log = structlog.get_logger()


class AgentProgramSandboxes:
    """Creates, finds and deletes the sandboxes of agent programs."""

    def __init__(self, dependencies: EngineDependencies) -> None:
        self._dependencies = dependencies
        self._fleet = dependencies.fleet
        config = dependencies.config
        self._creations: dict[str, asyncio.Task[Sandbox]] = {}
        self._life = min(max(config.chat.idle_time, MIN_LIFE), config.sandboxes.max_timeout)

    async def acquire(self, turn: Turn, state: AcpSessionState, program: AgentProgram) -> Sandbox:
        """Return the session's sandbox; create one if there is none or it has ended."""
        session = turn.session
        if state.sandbox is not None:
            sandbox = await self._find_running(session, state.sandbox)
            if sandbox is not None:
                await self.renew(sandbox)
                return sandbox
            event = SessionSandbox(kind=KIND, sandbox_id=state.sandbox, state="broken", reason="the sandbox has ended")
            await self._register_sandbox(turn, event, None)
            state.forget_sandbox()
        await turn.emit(SessionSandbox(kind=KIND, sandbox_id="", state="starting"))
        try:
            await self._ensure_program_image(turn, program)
            sandbox = await self._create_shielded(session, program, state)
        except PaddockError as error:
            await turn.emit(SessionSandbox(kind=KIND, sandbox_id="", state="broken", reason=error.message[:1000]))
            raise
        state.sandbox = sandbox.id
        await self._register_sandbox(turn, SessionSandbox(kind=KIND, sandbox_id=sandbox.id, state="ready"), sandbox.id)
        return sandbox

    async def home_directory(self, program: AgentProgram) -> str:
        return (await self._dependencies.images.resolve_async(program.image)).user.home

    async def renew(self, sandbox: Sandbox) -> None:
        """Extend the life of a sandbox."""
        try:
            await self._fleet.renew(sandbox.tenant, sandbox.id, datetime.now(UTC) + timedelta(seconds=self._life))
        except PaddockError:
            return  # It has ended, which is reported elsewhere, or has no expiry.

    async def renew_while_used(self, sandbox: Sandbox) -> None:
        """Renew the sandbox until cancelled."""
        while True:
            await asyncio.sleep(self._life / 4)
            await self.renew(sandbox)

    async def release(self, session: Session) -> None:
        """Delete the session's sandboxes, including one being created. Idempotent."""
        if (creation := self._creations.get(session.id)) is not None:
            await asyncio.wait([creation])
        sandboxes, _ = await self._fleet.list(session.tenant, metadata={SESSION_KEY: session.id}, page_size=1000)
        for sandbox in sandboxes:
            if PROGRAM_METADATA in sandbox.metadata and (sandbox.request_key or "").startswith(
                session_sandbox_request_key(session)
            ):
                try:
                    await self._fleet.delete(session.tenant, sandbox.id)
                except SandboxNotFound:
                    continue

    async def _find_running(self, session: Session, sandbox_id: str) -> Sandbox | None:
        try:
            sandbox = await self._fleet.get(session.tenant, sandbox_id)
            if sandbox.state is SandboxState.PAUSED:
                sandbox = await self._fleet.resume(session.tenant, sandbox_id)
        except (SandboxNotFound, Conflict):
            return None
        return sandbox if sandbox.state is SandboxState.RUNNING else None

    async def _ensure_program_image(self, turn: Turn, program: AgentProgram) -> None:
        def emit(progress: ImageBuildProgress) -> Awaitable[object]:
            return turn.emit(SessionSandbox(kind=KIND, sandbox_id="", state="starting", building=progress))

        await ensure_image_built(self._dependencies.images, program.image, emit)

    async def _create_shielded(self, session: Session, program: AgentProgram, state: AcpSessionState) -> Sandbox:
        """Create the sandbox; creation continues even if the turn is cancelled."""
        if (running_creation := self._creations.get(session.id)) is not None:
            return await asyncio.shield(running_creation)
        creation = asyncio.create_task(self._create(session, program, state), name=f"sandbox of {session.id}")
        self._creations[session.id] = creation

        def forget_creation(task: asyncio.Task[Sandbox]) -> None:
            del self._creations[session.id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("could not create sandbox of session", session=session.id, error=str(error))

        creation.add_done_callback(forget_creation)
        return await asyncio.shield(creation)

    async def _create(self, session: Session, program: AgentProgram, state: AcpSessionState) -> Sandbox:
        home = await self.home_directory(program)
        for _ in range(MAX_GENERATIONS):
            # After a crash the next server repeats the request with the same key and gets the same sandbox.
            request = self._create_request(session, program, home, state.generation)
            sandbox = await self._fleet.create(session.tenant, request)
            if sandbox.state is SandboxState.RUNNING:
                return sandbox
            state.generation += 1
        raise Unavailable("too many sandboxes were created for this session; try again later")

    def _create_request(self, session: Session, program: AgentProgram, home: str, generation: int) -> SandboxRequest:
        return SandboxRequest(
            image=program.image,
            kind=KIND,
            timeout=self._life,
            metadata={SESSION_KEY: session.id, PROGRAM_METADATA: program.name},
            owner=session.ownership,
            extensions={
                LLM_SESSION_EXTENSION: session.id,
                **session_sandbox_extensions(self._dependencies.mcp, session),
            },
            volumes=(
                VolumeRequest(name="workspace", claim=workspace_volume_name(session, KIND), target=WORKSPACE),
                VolumeRequest(
                    name=HOME_VOLUME, claim=workspace_volume_name(session, f"{program.name}-{HOME_VOLUME}"), target=home
                ),
            ),
            request_key=session_sandbox_request_key(session, "agent", generation),
        )

    async def _register_sandbox(self, turn: Turn, event: SessionSandbox, sandbox_id: str | None) -> None:
        """Emit a change of the sandbox, and update the session's sandboxes."""
        session_id = turn.session.id

        def update_session(connection: Any) -> None:
            sandboxes = dict(SessionStore.load_session(connection, session_id).sandboxes)
            changed: Mapping[str, str] = (
                {**sandboxes, KIND: sandbox_id} if sandbox_id else _without_sandbox(sandboxes, event.sandbox_id)
            )
            if changed != sandboxes:
                SessionStore.update_session(connection, session_id, {"sandboxes": changed}, datetime.now(UTC))

        try:
            await self._dependencies.store.write(update_session)
        except SessionNotFound:
            pass  # The session was deleted meanwhile, which ends the turn.
        await turn.emit(event)


def _without_sandbox(sandboxes: Mapping[str, str], sandbox_id: str) -> dict[str, str]:
    return {kind: each for kind, each in sandboxes.items() if each != sandbox_id}

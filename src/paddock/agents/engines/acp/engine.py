"""Engine for agent programs: Claude Code, Codex, Gemini CLI, OpenCode and Qwen Code, each in its own sandbox.

The program outlives the server: its output is stored in the sandbox, and a restarted server continues to read it from
the saved cursor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias

from pydantic import ValidationError

from paddock.agents.engines.acp.acp_session_state import AcpSessionState
from paddock.agents.engines.acp.agent_process import AgentProcess, AgentProgramError, AgentProgramGone
from paddock.agents.engines.acp.agent_programs import AGENT_PROGRAMS, AgentProgram, find_agent_program
from paddock.agents.engines.acp.agent_sandboxes import AgentProgramSandboxes
from paddock.agents.engines.acp.handshake import perform_acp_handshake
from paddock.agents.engines.acp.prompt_blocks import (
    CONTINUE_PROMPT,
    first_prompt_blocks,
    message_prompt_blocks,
    sandbox_attachment_path,
    text_prompt_block,
)
from paddock.agents.engines.acp.prompt_loop import AcpPromptLoop
from paddock.agents.engines.acp.update_recorder import AcpUpdateRecorder
from paddock.agents.engines.base import ContinueTurn, Engine, Turn, TurnDone, TurnInput, TurnOutcome, UserMessage
from paddock.agents.engines.registry import EngineDependencies
from paddock.agents.model.sandbox_spending import check_session_budget
from paddock.agents.session_files import SessionFiles
from paddock.agents.tools.mcp_tools import session_server_names
from paddock.errors import NotFound, PaddockError
from paddock.model.sandbox import Sandbox
from paddock.model.sessions import FileContent, Session, SessionMessage
from paddock.sandbox.daemon.client import DaemonClient
from paddock.store.chat_sessions.session_store import SessionStore

Blocks: TypeAlias = list[dict[str, Any]]
CountMessages: TypeAlias = Callable[[Turn], Awaitable[int]]


class AcpEngine(Engine):
    """Runs agent programs with their own tools, subject to approvals."""

    name: ClassVar[str] = "acp"
    has_own_tools: ClassVar[bool] = True

    def __init__(
        self,
        dependencies: EngineDependencies,
        programs: Mapping[str, AgentProgram] = AGENT_PROGRAMS,
        count_messages: CountMessages | None = None,
    ) -> None:
        """`count_messages` counts complete agent messages of a turn, for turns that are not in the store."""
        self._dependencies = dependencies
        self._count_messages = count_messages or self._count_stored_messages
        self._programs = programs
        self._sandboxes = AgentProgramSandboxes(dependencies)
        self._files = SessionFiles(dependencies.config.data / "sessions", dependencies.config.chat.file_size)

    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        program = find_agent_program(turn.session.agent, self._programs)
        state = _parse_state(await turn.load_state())
        has_old_prompt = state.turn != turn.number and state.prompt is not None
        if has_old_prompt:
            # The old prompt must not continue beside the new one.
            state.ready = False
        state.begin_turn(turn.number)
        if state.prompt is None:
            # A running prompt may be answered already, and is read to its end.
            check_session_budget(turn.session, self._dependencies.config.chat.budget)
        sandbox = await self._sandboxes.acquire(turn, state, program)
        daemon = await self._dependencies.fleet.running_client(turn.session.tenant, sandbox.id)
        turn_run = _TurnRun(self, turn, state, program, sandbox, daemon, await self._count_messages(turn))
        return await turn_run.run(turn_input)

    async def release(self, session: Session) -> None:
        await self._sandboxes.release(session)

    async def _count_stored_messages(self, turn: Turn) -> int:
        messages = await SessionStore(self._dependencies.store).list_messages(turn.session.id, turn=turn.number)
        return sum(message.role == "assistant" and message.cut is None for message in messages)

    async def read_file(self, session: Session, sha: str) -> bytes | None:
        try:
            return await self._files.read_file(session.id, sha)
        except NotFound:
            return None

    async def store_image(self, session: Session, data: bytes, mime: str) -> FileContent | None:
        try:
            return await self._files.store_file(session.id, data, mime=mime)
        except PaddockError:
            return None  # The result of the call is recorded without the image.

    @property
    def dependencies(self) -> EngineDependencies:
        return self._dependencies

    @property
    def sandboxes(self) -> AgentProgramSandboxes:
        return self._sandboxes


class _TurnRun:
    """One run of the engine in one turn."""

    def __init__(
        self,
        engine: AcpEngine,
        turn: Turn,
        state: AcpSessionState,
        program: AgentProgram,
        sandbox: Sandbox,
        daemon: DaemonClient,
        count_messages: int,
    ) -> None:
        self._engine = engine
        self._turn = turn
        self._state = state
        self._program = program
        self._sandbox = sandbox
        self._daemon = daemon
        chat = engine.dependencies.config.chat
        self._repeats = chat.repeats
        session = turn.session
        self._recorder = AcpUpdateRecorder(
            turn,
            state,
            lambda data, mime: engine.store_image(session, data, mime),
            chat.result_size,
            count_messages,
            program.hidden_prefixes,
        )

    async def run(self, turn_input: TurnInput) -> TurnOutcome:
        state = self._state
        resumed_blocks = None
        if not await self._is_process_usable():
            resumed_blocks = await self._blocks_after_loss()
            await self._start_process()
        prompt_loop = self._create_prompt_loop()
        is_resumed = state.prompt is not None
        if not is_resumed:
            blocks, message_ids = await self._first_blocks(turn_input, resumed_blocks)
            if not blocks:
                return TurnDone()
            await prompt_loop.begin_prompt(blocks, message_ids)
        while True:
            try:
                reason = await prompt_loop.run_prompt(lambda: self._engine.sandboxes.renew_while_used(self._sandbox))
            except asyncio.CancelledError as error:
                await asyncio.shield(self._stop_cancelled(prompt_loop, error))
                raise
            except PaddockError as error:
                await self._recorder.cut_message(error)
                # The server stopped during a model request, and the program gave up.
                if not (
                    is_resumed and isinstance(error, AgentProgramError) and not isinstance(error, AgentProgramGone)
                ):
                    # The next turn needs to know whether the program has read this prompt.
                    with suppress(PaddockError):
                        await prompt_loop.save_state()
                    raise
                is_resumed = False
                await prompt_loop.begin_prompt([text_prompt_block(CONTINUE_PROMPT)])
                continue
            except Exception as error:
                await self._recorder.cut_message(error)
                raise
            is_resumed = False
            blocks, message_ids = await self._follow_up_blocks()
            if not blocks:
                return TurnDone(None if reason == "end_turn" else reason)
            await prompt_loop.begin_prompt(blocks, message_ids)

    async def _is_process_usable(self) -> bool:
        """Return whether the process is running and has the session."""
        state = self._state
        return state.ready and state.model == self._turn.session.model and await self._current_process().is_alive()

    async def _blocks_after_loss(self) -> Blocks | None:
        """Return the blocks to resend or continue with, if the agent was lost during a prompt."""
        state = self._state
        if state.prompt is None:
            return None
        prompt_loop = self._create_prompt_loop()
        await prompt_loop.fail_open_calls("The agent program ended before this call finished.")
        # An unsent prompt is sent now; otherwise the agent's own session tells what it was doing.
        unsent = None if state.line is None else json.loads(state.line)["params"]["prompt"]
        fresh = state.fresh
        state.forget_prompt()
        state.fresh = fresh
        return unsent or [text_prompt_block(CONTINUE_PROMPT)]

    async def _start_process(self) -> None:
        state, session = self._state, self._turn.session
        if state.process:
            await self._current_process().kill()
        state.process += 1
        state.model = session.model
        state.ready = False
        # Saved first, so that a process without handshake never counts as ready.
        await self._create_prompt_loop().save_state()
        home = await self._engine.sandboxes.home_directory(self._program)
        for path, text in self._program.files(session.model).items():
            await self._daemon.write_file(f"{home}/{path}", text.encode(), mode=600)
        process = self._current_process()
        try:
            servers = session_server_names(self._engine.dependencies.mcp, session)
            await perform_acp_handshake(process, self._program, state, servers)
        except BaseException as error:
            if isinstance(error, PaddockError | asyncio.CancelledError):
                await asyncio.shield(process.kill())
            raise
        await self._create_prompt_loop().save_state()

    async def _first_blocks(self, turn_input: TurnInput, resumed_blocks: Blocks | None) -> tuple[Blocks, list[str]]:
        """Return the blocks of the first prompt and the ids of its messages."""
        state = self._state
        messages = list(await self._turn.unread_messages(state.known))
        if isinstance(turn_input, UserMessage) and turn_input.message.id not in {
            *state.known,
            *(each.id for each in messages),
        }:
            messages.insert(0, turn_input.message)
        if resumed_blocks is None and not state.fresh and state.received_number is not None:
            # Messages of earlier turns that ended before the agent read them.
            missed_messages = [
                each
                for each in await self._turn.history()
                if each.role == "user" and each.number > state.received_number
            ]
            messages = [*missed_messages, *messages]
        continue_requested = isinstance(turn_input, ContinueTurn) and turn_input.cause == "continue"
        blocks, message_ids = await self._message_blocks(messages)
        if resumed_blocks is not None:
            blocks = [*resumed_blocks, *blocks]
        elif not blocks and (continue_requested or state.stopped or not state.ended):
            blocks = [text_prompt_block(CONTINUE_PROMPT)]
        if blocks and state.fresh:
            blocks = [*first_prompt_blocks(self._turn.session, await self._turn.history()), *blocks]
        return blocks, message_ids

    async def _follow_up_blocks(self) -> tuple[Blocks, list[str]]:
        """Return the blocks of a follow-up prompt: new messages, and reasons of refusals."""
        state = self._state
        blocks, message_ids = await self._message_blocks(await self._turn.unread_messages(state.known))
        if state.notes and state.note_prompt_count < self._repeats:
            state.note_prompt_count += 1
            blocks = [*(text_prompt_block(note) for note in state.notes), *blocks]
        return blocks, message_ids

    async def _message_blocks(self, messages: Sequence[SessionMessage]) -> tuple[Blocks, list[str]]:
        session = self._turn.session
        for message in messages:
            for part in message.content:
                if isinstance(part, FileContent) and part.type == "file":
                    data = await self._engine.read_file(session, part.file)
                    if data is not None:
                        await self._daemon.write_file(sandbox_attachment_path(part), data)
        blocks = await message_prompt_blocks(
            messages, lambda sha: self._engine.read_file(session, sha), images=self._state.images
        )
        self._state.prompt_number = max([self._state.prompt_number, *(message.number for message in messages)])
        return blocks, [message.id for message in messages]

    async def _stop_cancelled(self, prompt_loop: AcpPromptLoop, error: BaseException) -> None:
        await self._recorder.cut_message(error)
        await prompt_loop.stop_prompt()
        if self._program.leaves_children:
            await self._current_process().kill()

    def _current_process(self) -> AgentProcess:
        directory = f"/tmp/.paddock-acp-{self._state.process}"  # noqa: S108 - in the sandbox, where no other user exists.
        return AgentProcess(self._daemon, directory, f"acp-{self._state.process}")

    def _create_prompt_loop(self) -> AcpPromptLoop:
        return AcpPromptLoop(self._turn, self._state, self._current_process(), self._recorder)


def _parse_state(saved: bytes | None) -> AcpSessionState:
    """Parse the saved state; unreadable state of an old version is discarded."""
    if saved is None:
        return AcpSessionState()
    try:
        return AcpSessionState.model_validate_json(saved)
    except ValidationError:
        return AcpSessionState()

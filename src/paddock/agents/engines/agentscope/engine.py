"""Engine that runs an AgentScope agent.

The agent's tools are external tools in AgentScope's terms: the agent stops at each call, the turn runs it with policy,
approvals and records, and the agent continues with the result. Its state is saved before each question to the model
and nowhere else. A crashed agent therefore repeats its last question, which is answered from the records, and so are
the calls of that reply. An agent that waits for approvals resumes in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from copy import copy
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ValidationError

from paddock.agents.engines.agentscope.agentscope_messages import (
    AGENT_NAME,
    agentscope_call_block,
    agentscope_result_block,
    to_agentscope_messages,
    to_chat_messages,
)
from paddock.agents.engines.base import (
    ApprovalNeeded,
    CallPiece,
    ContinueTurn,
    Engine,
    ModelReply,
    ToolSpec,
    Turn,
    TurnDone,
    TurnInput,
    TurnOutcome,
    TurnPaused,
    UserMessage,
    stream_reply_after_save,
)
from paddock.agents.engines.registry import EngineDependencies
from paddock.agents.model.openai_messages import NOTE_PREFIX, to_openai_content, to_openai_messages, tool_call_object
from paddock.errors import Unavailable
from paddock.model.sandbox import FrozenModel
from paddock.model.sessions import CallResult, SessionMessage, ToolCall

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from agentscope.agent import Agent, InjectionConfig, ReActConfig
    from agentscope.credential import CredentialBase
    from agentscope.event import ExternalExecutionResultEvent
    from agentscope.message import Msg, TextBlock, ToolResultBlock
    from agentscope.middleware import MiddlewareBase
    from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
    from agentscope.permission import PermissionBehavior, PermissionContext, PermissionDecision, PermissionMode
    from agentscope.state import AgentState
    from agentscope.tool import ToolBase, ToolChoice, ToolGroup, Toolkit

CONTINUE_NOTE = NOTE_PREFIX + "Go on from where you were."
UNLIMITED_STEPS = 10**9
"""Step limit of AgentScope; the turn has its own limit."""


class _SavedTurn(BaseModel):
    turn: int


class AgentScopeEngineState(FrozenModel):
    """The agent's saved state in its turn."""

    turn: int
    read: tuple[str, ...] = ()
    """Ids of this turn's messages that are in the state."""
    done: bool = False
    prompt: str
    tools: tuple[str, ...]
    """Names of the tools; a restarted server may have other tools and another prompt."""
    state: AgentState


class AgentScopeEngine(Engine):
    """Runs agents of AgentScope 2."""

    name: ClassVar[str] = "agentscope"

    def __init__(self, dependencies: EngineDependencies) -> None:
        # AgentScope logs to stderr what the turn emits anyway.
        logger = logging.getLogger("as")
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.ERROR)

    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        turn_run = _TurnRun(turn, await turn.system_prompt(), await turn.list_tools())
        task = asyncio.create_task(turn_run.run(turn_input))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # AgentScope swallows a cancellation between calls and would continue.
            turn_run.stopped = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise


class _TurnRun:
    """One run of the agent in one turn."""

    def __init__(self, turn: Turn, prompt: str, specs: Sequence[ToolSpec]) -> None:
        self.turn = turn
        self.prompt = prompt
        self.specs = specs
        self.calls: dict[str, ToolCall] = {}
        """Calls of the last reply, by id."""
        self.read: list[str] = []
        self.state = AgentState()
        self.repeated: AgentScopeEngineState | None = None
        """The saved state whose question is repeated after a crash."""
        self.stopped = False
        """Whether the run was cancelled, even if AgentScope swallowed the cancellation."""
        self.names = {spec.name for spec in specs}
        """Tool names that the agent may call: the turn's tools, and unknown tools that the model called."""
        self.toolkit = _NamedToolkit.named(self.names)

    async def run(self, turn_input: TurnInput) -> TurnOutcome:
        return await self.run_agent() if await self.load_state(turn_input) else TurnDone()

    async def load_state(self, turn_input: TurnInput) -> bool:
        """Load the saved state; return False if there is nothing to do."""
        if isinstance(turn_input, UserMessage):
            # A turn that starts with a message has no saved state.
            saved, history = None, await self.turn.history()
        else:
            saved, history = await asyncio.gather(self.turn.load_state(), self.turn.history())
        saved_state = _parse_state(saved, self.turn.number)
        if saved_state is not None:
            self.state, self.read = saved_state.state, list(saved_state.read)
            if not saved_state.done:
                self.repeated = saved_state
                return True
            return await self._has_more_to_do(turn_input)
        self.state = AgentState(
            session_id=self.turn.session.id,
            context=to_agentscope_messages(to_openai_messages("", history)),
            permission_context=PermissionContext(mode=PermissionMode.BYPASS),
        )
        return not _has_answered(self.state.context) or await self._has_more_to_do(turn_input)

    async def _has_more_to_do(self, turn_input: TurnInput) -> bool:
        """Return whether there is more to do although the agent has replied."""
        if isinstance(turn_input, UserMessage) and turn_input.message.id not in self.read:
            return True
        if await self.turn.unread_messages(self.read):
            return True
        if turn_input != ContinueTurn():
            return False
        self.state.context += to_agentscope_messages([{"role": "user", "content": CONTINUE_NOTE}])
        return True

    async def run_agent(self) -> TurnOutcome:
        """Run the agent until it has replied and read all messages, or waits for approvals."""
        agent = Agent(
            AGENT_NAME,
            self.prompt,
            _TurnModel(self),
            self.toolkit,
            [_QuestionMiddleware(self)],
            self.state,
            react_config=ReActConfig(max_iters=UNLIMITED_STEPS, interruption_raise_cancelled_error=True),
            injection_config=InjectionConfig(inject_runtime_state=False),
        )
        while True:
            await _drain(agent.reply_stream(None))
            while waiting_blocks := self.state.get_awaiting_tool_calls(AGENT_NAME):
                results = await self._run_calls([self.calls[block.id] for block in waiting_blocks])
                if results is None:
                    return TurnPaused()
                event = ExternalExecutionResultEvent(reply_id=self.state.reply_id, execution_results=results)
                await _drain(agent.reply_stream(event))
            if not await self.turn.unread_messages(self.read):
                await self.save_agent_state(done=True)
                return TurnDone()

    async def read_new_messages(self) -> None:
        """Read new messages, except before a repeated question."""
        self._raise_if_stopped()
        if self.repeated is None:
            self._add_messages(await self.turn.unread_messages(self.read))

    async def save_agent_state(self, *, done: bool = False) -> None:
        saved_state = AgentScopeEngineState(
            turn=self.turn.number,
            read=tuple(self.read),
            done=done,
            prompt=self.prompt,
            tools=tuple(spec.name for spec in self.specs),
            state=self.state,
        )
        await self.turn.save_state(saved_state.model_dump_json().encode())

    async def ask_model(self, messages: Sequence[Msg]) -> ChatResponse:
        prompt, specs = self.prompt, self.specs
        repeated_state, self.repeated = self.repeated, None
        if repeated_state is not None:
            prompt, specs = repeated_state.prompt, self._specs_named(repeated_state.tools)
        system = [{"role": "system", "content": prompt}] if prompt else []
        reply: ModelReply | None = None
        calls: dict[str, ToolCall] = {}
        pieces = self.turn.ask_model([*system, *to_chat_messages(messages)], specs)
        async for piece in pieces if repeated_state else stream_reply_after_save(self.save_agent_state(), pieces):
            match piece:
                case CallPiece():
                    calls[piece.call.id] = piece.call
                case ModelReply():
                    reply = piece
        if reply is None:
            raise RuntimeError("the turn returned no reply")
        self.calls = calls
        for name in {call.name for call in calls.values()} - self.names:
            self.names.add(name)
            await self.toolkit.add_tool(_ExternalTool(name))
        # Thoughts are left out, because AgentScope repeats the question after a reply of thoughts only.
        text_blocks = [TextBlock(text=reply.message.text)] if reply.message.text else []
        usage = ChatUsage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, time=0)
        call_objects = [tool_call_object(call) for call in calls.values()]
        blocks = [
            agentscope_call_block(each["id"], each["function"]["name"], each["function"]["arguments"])
            for each in call_objects
        ]
        return ChatResponse([*text_blocks, *blocks], is_last=True, usage=usage)

    def _specs_named(self, names: Sequence[str]) -> list[ToolSpec]:
        known_specs = {spec.name: spec for spec in self.specs}
        missing_specs = {name: ToolSpec(name=name, description="", input_schema={}, tool=name) for name in names}
        return [known_specs.get(name, missing_specs[name]) for name in names]

    def _raise_if_stopped(self) -> None:
        if self.stopped:
            raise asyncio.CancelledError

    def _add_messages(self, messages: Sequence[SessionMessage]) -> None:
        self.state.context += to_agentscope_messages(to_openai_messages("", messages))
        self.read += [message.id for message in messages]

    async def _run_calls(self, calls: Sequence[ToolCall]) -> list[ToolResultBlock] | None:
        """Run calls concurrently; return None if some need approval, once the others are done."""
        self._raise_if_stopped()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_call(call)) for call in calls]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        blocks = []
        for call, task in zip(calls, tasks, strict=True):
            if (result := task.result()) is None:
                return None
            blocks.append(agentscope_result_block(call.id, call.name, to_openai_content(result.content)))
        return blocks

    async def _run_call(self, call: ToolCall) -> CallResult | None:
        """Run a call; return None if it needs approval first."""
        try:
            return await self.turn.call_tool(call, wait=False)
        except ApprovalNeeded:
            return None


class _ExternalTool(ToolBase):
    """A tool that the turn runs; the turn also validates its arguments."""

    description = ""
    is_concurrency_safe = True
    is_read_only = False
    is_external_tool = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.input_schema = {"type": "object", "properties": {}}

    async def check_permissions(self, tool_input: dict[str, Any], context: PermissionContext) -> PermissionDecision:
        return PermissionDecision(behavior=PermissionBehavior.ALLOW, message="The turn decides.")


class _NamedToolkit(Toolkit):
    """Toolkit of tool names only; the turn describes the tools to the model."""

    @classmethod
    def named(cls, names: Iterable[str]) -> Self:
        # Copied, because creating a toolkit takes milliseconds for a group-selection tool that is not used here.
        toolkit = copy(cls._empty_toolkit())
        toolkit.tool_groups = [ToolGroup(name="basic", tools=[_ExternalTool(name) for name in names])]
        return toolkit

    @classmethod
    @cache
    def _empty_toolkit(cls) -> Self:
        return cls()

    async def get_tool_schemas(self, groups: list[str] | None = None) -> list[dict[str, Any]]:
        return []


class _TurnModel(ChatModelBase):
    """AgentScope model that asks the session's model through the turn."""

    def __init__(self, turn_run: _TurnRun) -> None:
        super().__init__(CredentialBase(), turn_run.turn.session.model, self.Parameters(), stream=False, max_retries=0)
        self._turn_run = turn_run

    async def _call_api(
        self,
        model_name: str,
        messages: list[Msg],
        tools: list[dict[str, Any]] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatResponse:
        return await self._turn_run.ask_model([message for message in messages if message.role != "system"])


class _QuestionMiddleware(MiddlewareBase):
    """Reads messages before each question. Compression is disabled, because the turn compacts conversations."""

    def __init__(self, turn_run: _TurnRun) -> None:
        self._turn_run = turn_run

    async def on_reasoning(
        self, agent: Agent, input_kwargs: dict[str, Any], next_handler: Callable[..., AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        await self._turn_run.read_new_messages()
        async for event in next_handler(**input_kwargs):
            yield event

    async def on_compress_context(
        self, agent: Agent, input_kwargs: dict[str, Any], next_handler: Callable[..., Awaitable[None]]
    ) -> None:
        return None


def _parse_state(saved: bytes | None, turn: int) -> AgentScopeEngineState | None:
    """Parse the saved state; state of earlier turns and of other engines is ignored."""
    try:
        if saved is None or _SavedTurn.model_validate_json(saved).turn != turn:
            return None
    except ValidationError:
        return None
    try:
        return AgentScopeEngineState.model_validate_json(saved)
    except ValidationError as error:
        raise Unavailable(
            "the agent's state in this turn was saved by another version of AgentScope and cannot be read; "
            "send a message to let the agent continue"
        ) from error


def _has_answered(context: Sequence[Msg]) -> bool:
    """Return whether the last message is a reply of the agent, or there is no message."""
    return not context or (context[-1].role == "assistant" and isinstance(context[-1].content[-1], TextBlock))


async def _drain(events: AsyncGenerator[Any, None]) -> None:
    """Consume events, which the turn has emitted already."""
    async for _ in events:
        pass

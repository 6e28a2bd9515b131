"""AgentScope as an engine: its agent decides, and everything it does goes through the turn.

The agent's tools are external ones in its own words: it stops at them, the turn runs them with all that belongs to it,
policy and persons and records, and the agent goes on with their results. Its place is saved before each question to
the model and nowhere else. So an agent that died asks its last question again, which is answered from the records, and
so are the calls that follow from the answer. One that stops for persons to decide does the same when it goes on.
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

from paddock.agents.engines.agentscope_words import NAME, call_block, result_block, to_context, to_question
from paddock.agents.engines.base import (
    CallPiece,
    Continue,
    Done,
    Engine,
    Given,
    Outcome,
    Paused,
    Reply,
    ToolSpec,
    Turn,
    Undecided,
    UserMessage,
    meanwhile,
)
from paddock.agents.engines.registry import Means
from paddock.agents.transcripts import NOTE, call_object, content_of, to_openai
from paddock.errors import Unavailable
from paddock.model.sandbox import Frozen
from paddock.model.sessions import Call, CallResult, Message

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

GO_ON = NOTE + "Go on from where you were."
NO_LIMIT = 10**9
"""Of steps: the turn has its own."""


class _Saved(BaseModel):
    turn: int


class Place(Frozen):
    """Where the agent is in its turn, as it is saved."""

    turn: int
    read: tuple[str, ...] = ()
    """Ids of the messages of this turn that are in the state."""
    done: bool = False
    prompt: str
    tools: tuple[str, ...]
    """Their names: a server that was started again may have others, and another prompt."""
    state: AgentState


class AgentScopeEngine(Engine):
    """AgentScope 2."""

    name: ClassVar[str] = "agentscope"

    def __init__(self, means: Means) -> None:
        # AgentScope writes to stderr by itself, about what the turn tells anyway.
        library = logging.getLogger("as")
        library.handlers.clear()
        library.propagate = True
        library.setLevel(logging.ERROR)

    async def run(self, turn: Turn, given: Given) -> Outcome:
        work = _Work(turn, await turn.prompt(), await turn.tools())
        working = asyncio.create_task(work.run(given))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            # AgentScope takes a cancellation back that meets it between several calls, and would go on.
            work.stopped = True
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            raise


class _Work:
    """One run of one turn."""

    def __init__(self, turn: Turn, prompt: str, specs: Sequence[ToolSpec]) -> None:
        self.turn = turn
        self.prompt = prompt
        self.specs = specs
        self.calls: dict[str, Call] = {}
        """Those of the last answer."""
        self.read: list[str] = []
        self.state = AgentState()
        self.repeated: Place | None = None
        """Where the next question was asked before, if the engine has died since then."""
        self.stopped = False
        """Whether it was cancelled, whatever AgentScope makes of that."""
        self.names = {spec.name for spec in specs}
        """What the agent may call: the turn's tools, and what the model takes for one."""
        self.toolkit = _Tools.named(self.names)

    async def run(self, given: Given) -> Outcome:
        return await self.go_on() if await self.begin(given) else Done()

    async def begin(self, given: Given) -> bool:
        """Find its place. False if there is nothing to do."""
        if isinstance(given, UserMessage):
            # What a person begins a turn with is the first that is known of it.
            saved, history = None, await self.turn.history()
        else:
            saved, history = await asyncio.gather(self.turn.load(), self.turn.history())
        place = _place(saved, self.turn.number)
        if place is not None:
            self.state, self.read = place.state, list(place.read)
            if not place.done:
                self.repeated = place
                return True
            return await self._more(given)
        self.state = AgentState(
            session_id=self.turn.session.id,
            context=to_context(to_openai("", history)),
            permission_context=PermissionContext(mode=PermissionMode.BYPASS),
        )
        return not _has_answered(self.state.context) or await self._more(given)

    async def _more(self, given: Given) -> bool:
        """Whether there is more to do although the agent has answered."""
        if isinstance(given, UserMessage) and given.message.id not in self.read:
            return True
        if await self.turn.unread(self.read):
            return True
        if given != Continue():
            return False
        self.state.context += to_context([{"role": "user", "content": GO_ON}])
        return True

    async def go_on(self) -> Outcome:
        """Until the agent has answered, and has read everything; or until nothing is left but what persons decide."""
        agent = Agent(
            NAME,
            self.prompt,
            _Model(self),
            self.toolkit,
            [_Before(self)],
            self.state,
            react_config=ReActConfig(max_iters=NO_LIMIT, interruption_raise_cancelled_error=True),
            injection_config=InjectionConfig(inject_runtime_state=False),
        )
        while True:
            await _finish(agent.reply_stream(None))
            while waiting := self.state.get_awaiting_tool_calls(NAME):
                results = await self._call([self.calls[block.id] for block in waiting])
                if results is None:
                    return Paused()
                event = ExternalExecutionResultEvent(reply_id=self.state.reply_id, execution_results=results)
                await _finish(agent.reply_stream(event))
            if not await self.turn.unread(self.read):
                await self.save(done=True)
                return Done()

    async def before_question(self) -> None:
        """Read what was written meanwhile; not for a question that is asked again."""
        self._go_no_further()
        if self.repeated is None:
            self._take(await self.turn.unread(self.read))

    async def save(self, *, done: bool = False) -> None:
        place = Place(
            turn=self.turn.number,
            read=tuple(self.read),
            done=done,
            prompt=self.prompt,
            tools=tuple(spec.name for spec in self.specs),
            state=self.state,
        )
        await self.turn.save(place.model_dump_json().encode())

    async def ask(self, messages: Sequence[Msg]) -> ChatResponse:
        prompt, specs = self.prompt, self.specs
        repeated, self.repeated = self.repeated, None
        if repeated is not None:
            prompt, specs = repeated.prompt, self._named(repeated.tools)
        system = [{"role": "system", "content": prompt}] if prompt else []
        reply: Reply | None = None
        calls: dict[str, Call] = {}
        asking = self.turn.ask([*system, *to_question(messages)], specs)
        async for piece in asking if repeated else meanwhile(self.save(), asking):
            match piece:
                case CallPiece():
                    calls[piece.call.id] = piece.call
                case Reply():
                    reply = piece
        if reply is None:
            raise RuntimeError("the turn gave no reply")
        self.calls = calls
        for name in {call.name for call in calls.values()} - self.names:
            self.names.add(name)
            await self.toolkit.add_tool(_Outside(name))
        # Thoughts are left out: AgentScope takes an answer of thoughts only as a reason to ask the same once more.
        said = [TextBlock(text=reply.message.text)] if reply.message.text else []
        usage = ChatUsage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, time=0)
        wanted = [call_object(call) for call in calls.values()]
        blocks = [call_block(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in wanted]
        return ChatResponse([*said, *blocks], is_last=True, usage=usage)

    def _named(self, names: Sequence[str]) -> list[ToolSpec]:
        known = {spec.name: spec for spec in self.specs}
        gone = {name: ToolSpec(name=name, description="", input_schema={}, tool=name) for name in names}
        return [known.get(name, gone[name]) for name in names]

    def _go_no_further(self) -> None:
        if self.stopped:
            raise asyncio.CancelledError

    def _take(self, messages: Sequence[Message]) -> None:
        self.state.context += to_context(to_openai("", messages))
        self.read += [message.id for message in messages]

    async def _call(self, calls: Sequence[Call]) -> list[ToolResultBlock] | None:
        """All at the same time; `None` if some wait for a person, once the others are done."""
        self._go_no_further()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._decided(call)) for call in calls]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        blocks = []
        for call, task in zip(calls, tasks, strict=True):
            if (result := task.result()) is None:
                return None
            blocks.append(result_block(call.id, call.name, content_of(result.content)))
        return blocks

    async def _decided(self, call: Call) -> CallResult | None:
        """What comes of a call; `None` if a person has to decide first."""
        try:
            return await self.turn.call(call, wait=False)
        except Undecided:
            return None


class _Outside(ToolBase):
    """A tool that the turn runs. The turn also judges its arguments."""

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


class _Tools(Toolkit):
    """The names of tools. The turn describes them to the model, so nobody needs their schemas."""

    @classmethod
    def named(cls, names: Iterable[str]) -> Self:
        # Making one takes milliseconds, for the schema of a tool that chooses between groups of tools, of which there
        # are none.
        made = copy(cls._blank())
        made.tool_groups = [ToolGroup(name="basic", tools=[_Outside(name) for name in names])]
        return made

    @classmethod
    @cache
    def _blank(cls) -> Self:
        return cls()

    async def get_tool_schemas(self, groups: list[str] | None = None) -> list[dict[str, Any]]:
        return []


class _Model(ChatModelBase):
    """The model of the session, asked through the turn."""

    def __init__(self, work: _Work) -> None:
        super().__init__(CredentialBase(), work.turn.session.model, self.Parameters(), stream=False, max_retries=0)
        self._work = work

    async def _call_api(
        self,
        model_name: str,
        messages: list[Msg],
        tools: list[dict[str, Any]] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatResponse:
        return await self._work.ask([message for message in messages if message.role != "system"])


class _Before(MiddlewareBase):
    """What is done before each question. The turn sums up what has become too long, so the agent does not."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    async def on_reasoning(
        self, agent: Agent, input_kwargs: dict[str, Any], next_handler: Callable[..., AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        await self._work.before_question()
        async for event in next_handler(**input_kwargs):
            yield event

    async def on_compress_context(
        self, agent: Agent, input_kwargs: dict[str, Any], next_handler: Callable[..., Awaitable[None]]
    ) -> None:
        return None


def _place(saved: bytes | None, turn: int) -> Place | None:
    """The place in this turn. Those of earlier turns, and of other engines, are of no use."""
    try:
        if saved is None or _Saved.model_validate_json(saved).turn != turn:
            return None
    except ValidationError:
        return None
    try:
        return Place.model_validate_json(saved)
    except ValidationError as error:
        raise Unavailable(
            "the agent cannot find its place in this turn, which another version of AgentScope has saved; "
            "send a message to let it go on"
        ) from error


def _has_answered(context: Sequence[Msg]) -> bool:
    """Whether the agent has said the last word, if there is any."""
    return not context or (context[-1].role == "assistant" and isinstance(context[-1].content[-1], TextBlock))


async def _finish(events: AsyncGenerator[Any, None]) -> None:
    """The turn has told all of it."""
    async for _ in events:
        pass

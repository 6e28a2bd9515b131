"""What the agent does besides thinking: it reads what people write, and calls tools. Both go through the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from deepagents.graph import DeepAgentState
from langchain.agents.middleware.types import AgentMiddleware, PrivateStateAttr, ToolCallRequest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from paddock.agents.engines.base import ToolSpec, Turn, Undecided
from paddock.agents.engines.langgraph.messages import missing, to_call, to_result, to_state
from paddock.model.sessions import Call, CallResult, Message, TextContent

Handler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


@dataclass
class Present:
    """What a graph works at."""

    turn: Turn
    prompt: str
    specs: Mapping[str, ToolSpec]
    first: Message | None
    """What the turn begins with."""
    looked: bool = False
    """Whether it has looked for anything new."""


Now = ContextVar[Present]
"""What is worked at where it is asked: one graph works at many turns side by side."""


class State(DeepAgentState):
    """What checkpoints keep."""

    turn: NotRequired[int]
    """Which turn it is in."""
    read: NotRequired[Annotated[int, PrivateStateAttr]]
    """The turn in which it has caught up with what was said before."""


class Nothing(AgentMiddleware[Any, Any, Any]):
    """Takes the place of a habit of deepagents, by its name: the turn sees to that itself."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class Reading(AgentMiddleware[Any, Any, Any]):
    """Adds what the agent has not read yet, before each question. It is on disk before the question is asked."""

    def __init__(self, now: Now) -> None:
        super().__init__()
        self._now = now

    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        present = self._now.get()
        turn, first = present.turn, present.first
        changes: dict[str, Any] = {}
        fresh: list[BaseMessage] = []
        known = {message.id for message in state["messages"] if message.id}
        if state.get("read") != turn.number:
            history, written = await asyncio.gather(turn.history(), turn.unread(known))
            fresh += missing(state["messages"], history)
            changes["read"] = turn.number
        else:
            written = await turn.unread(known)
        unread = list(written)
        present.looked = True
        if first and first.id not in known | {message.id for message in unread}:
            unread.insert(0, first)
        if fresh or unread:
            changes["messages"] = [*fresh, *(to_state(message) for message in unread)]
        return changes or None


class Hands(AgentMiddleware[Any, Any, Any]):
    """Calls tools, those that do not exist too: the ledger has all calls, and what it says is the result."""

    def __init__(self, now: Now) -> None:
        super().__init__()
        self._now = now

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> ToolMessage | Command[Any]:
        present = self._now.get()
        call = to_call(request.tool_call)
        if request.tool is not None and call.name not in present.specs and call.malformed is None:
            return await self._delegate(present.turn, call, request, handler)
        while True:
            try:
                return to_result(call.id, (await present.turn.call(call, wait=False)).content)
            except Undecided as undecided:
                # The graph stops here once all other calls are done, and comes back to this call when it goes on.
                interrupt({"approval": undecided.approval.id})

    async def _delegate(
        self, turn: Turn, call: Call, request: ToolCallRequest, handler: Handler
    ) -> ToolMessage | Command[Any]:
        """Let a helper work. It asks and calls through the same turn."""
        verdict = await turn.consult(call, effect="none")
        if not verdict.allowed:
            refused = CallResult(content=(TextContent(text=verdict.reason or "This is not allowed."),), refused=True)
            await turn.settle(call, refused)
            return to_result(call.id, refused.content)
        arguments = call.arguments if verdict.arguments is None else verdict.arguments
        clean = {name: _clean(value) for name, value in arguments.items()}
        outcome = await handler(request.override(tool_call={**request.tool_call, "args": clean}))
        report, failed = _report(outcome)
        result = CallResult(content=(TextContent(text=report),), failed=failed)
        await turn.settle(call, result)
        return to_result(call.id, result.content)


def _clean(value: Any) -> Any:
    """Half characters, which models write at times, cannot be kept."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _report(outcome: ToolMessage | Command[Any]) -> tuple[str, bool]:
    if isinstance(outcome, ToolMessage):
        return outcome.text, outcome.status == "error"
    update = outcome.update if isinstance(outcome.update, dict) else {}
    return "\n".join(message.text for message in update.get("messages", ())), False

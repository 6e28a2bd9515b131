"""What the agent does besides thinking: it reads what people write, and calls tools. Both go through the turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any, NotRequired

from deepagents.graph import DeepAgentState
from langchain.agents.middleware.types import AgentMiddleware, PrivateStateAttr, ToolCallRequest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from paddock.agents.engines.base import Turn, Undecided
from paddock.agents.engines.langgraph.messages import missing, to_call, to_result, to_state
from paddock.model.sessions import Call, CallResult, Message, TextContent

Handler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


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

    def __init__(self, turn: Turn, first: Message | None) -> None:
        super().__init__()
        self.looked = False
        """Whether it has looked for anything new since it was made."""
        self._turn = turn
        self._first = first

    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        changes: dict[str, Any] = {}
        fresh: list[BaseMessage] = []
        if state.get("read") != self._turn.number:
            fresh += missing(state["messages"], await self._turn.history())
            changes["read"] = self._turn.number
        known = {message.id for message in (*state["messages"], *fresh) if message.id}
        unread = list(await self._turn.unread(known))
        self.looked = True
        if self._first and self._first.id not in known | {message.id for message in unread}:
            unread.insert(0, self._first)
        if fresh or unread:
            changes["messages"] = [*fresh, *(to_state(message) for message in unread)]
        return changes or None


class Hands(AgentMiddleware[Any, Any, Any]):
    """Calls tools, those that do not exist too: the ledger has all calls, and what it says is the result."""

    def __init__(self, turn: Turn, ours: Collection[str]) -> None:
        super().__init__()
        self._turn = turn
        self._ours = ours

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> ToolMessage | Command[Any]:
        call = to_call(request.tool_call)
        if request.tool is not None and call.name not in self._ours and call.malformed is None:
            return await self._delegate(call, request, handler)
        while True:
            try:
                return to_result(call.id, (await self._turn.call(call, wait=False)).content)
            except Undecided as undecided:
                # The graph stops here once all other calls are done, and comes back to this call when it goes on.
                interrupt({"approval": undecided.approval.id})

    async def _delegate(self, call: Call, request: ToolCallRequest, handler: Handler) -> ToolMessage | Command[Any]:
        """Let a helper work. It asks and calls through the same turn."""
        verdict = await self._turn.consult(call, effect="none")
        if not verdict.allowed:
            refused = CallResult(content=(TextContent(text=verdict.reason or "This is not allowed."),), refused=True)
            await self._turn.settle(call, refused)
            return to_result(call.id, refused.content)
        arguments = call.arguments if verdict.arguments is None else verdict.arguments
        clean = {name: _clean(value) for name, value in arguments.items()}
        outcome = await handler(request.override(tool_call={**request.tool_call, "args": clean}))
        report, failed = _report(outcome)
        result = CallResult(content=(TextContent(text=report),), failed=failed)
        await self._turn.settle(call, result)
        return to_result(call.id, result.content)


def _clean(value: Any) -> Any:
    """Half characters, which models write at times, cannot be kept."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _report(outcome: ToolMessage | Command[Any]) -> tuple[str, bool]:
    if isinstance(outcome, ToolMessage):
        return outcome.text, outcome.status == "error"
    update = outcome.update if isinstance(outcome.update, dict) else {}
    return "\n".join(message.text for message in update.get("messages", ())), False

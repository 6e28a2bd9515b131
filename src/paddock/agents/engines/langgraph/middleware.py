"""LangGraph middleware that reads messages and runs tool calls through the turn."""

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

from paddock.agents.engines.base import ApprovalNeeded, ToolSpec, Turn
from paddock.agents.engines.langgraph.langchain_messages import (
    messages_missing_from_state,
    session_call_from_graph_state,
    to_langchain_message,
    to_tool_message,
)
from paddock.model.sessions import CallResult, SessionMessage, TextContent, ToolCall

ToolCallHandler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


@dataclass
class LangGraphTurn:
    """The turn that a graph works on."""

    turn: Turn
    prompt: str
    specs: Mapping[str, ToolSpec]
    first_message: SessionMessage | None
    """The message that starts the turn."""
    has_read_messages: bool = False
    """Whether the graph has read messages in this run."""


LangGraphTurnVariable = ContextVar[LangGraphTurn]
"""The turn of the current context; one graph works on many turns concurrently."""


class GraphState(DeepAgentState):
    """The graph state that checkpoints store."""

    turn: NotRequired[int]
    """Number of the current turn."""
    read: NotRequired[Annotated[int, PrivateStateAttr]]
    """Number of the turn in which the history was last added."""


class DisabledMiddleware(AgentMiddleware[Any, Any, Any]):
    """Replaces a middleware of deepagents by name; the turn does its work."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class ReadMessagesMiddleware(AgentMiddleware[Any, Any, Any]):
    """Adds unread messages before each question; they are stored before the question is asked."""

    def __init__(self, current_turn: LangGraphTurnVariable) -> None:
        super().__init__()
        self._current_turn = current_turn

    @property
    def name(self) -> str:
        return "Reading"  # Part of node names in stored checkpoints, so it must not change.

    async def abefore_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        current = self._current_turn.get()
        turn, first_message = current.turn, current.first_message
        changes: dict[str, Any] = {}
        history_messages: list[BaseMessage] = []
        known_ids = {message.id for message in state["messages"] if message.id}
        if state.get("read") != turn.number:
            history, new_messages = await asyncio.gather(turn.history(), turn.unread_messages(known_ids))
            history_messages += messages_missing_from_state(state["messages"], history)
            changes["read"] = turn.number
        else:
            new_messages = await turn.unread_messages(known_ids)
        unread = list(new_messages)
        current.has_read_messages = True
        if first_message and first_message.id not in known_ids | {message.id for message in unread}:
            unread.insert(0, first_message)
        if history_messages or unread:
            changes["messages"] = [*history_messages, *(to_langchain_message(message) for message in unread)]
        return changes or None


class ToolCallMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs all tool calls through the turn, including calls of unknown tools."""

    def __init__(self, current_turn: LangGraphTurnVariable) -> None:
        super().__init__()
        self._current_turn = current_turn

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolMessage | Command[Any]:
        current = self._current_turn.get()
        call = session_call_from_graph_state(request.tool_call)
        if request.tool is not None and call.name not in current.specs and call.malformed is None:
            return await self._run_helper(current.turn, call, request, handler)
        while True:
            try:
                return to_tool_message(call.id, (await current.turn.call_tool(call, wait=False)).content)
            except ApprovalNeeded as pending:
                # The graph pauses here once all other calls are done, and repeats this call when it resumes.
                interrupt({"approval": pending.approval.id})

    async def _run_helper(
        self, turn: Turn, call: ToolCall, request: ToolCallRequest, handler: ToolCallHandler
    ) -> ToolMessage | Command[Any]:
        """Run a helper, which asks and calls through the same turn."""
        verdict = await turn.authorize_call(call, effect="none")
        if not verdict.allowed:
            refused = CallResult(
                content=(TextContent(text=verdict.reason or "The policy does not allow this."),), refused=True
            )
            await turn.record_result(call, refused)
            return to_tool_message(call.id, refused.content)
        arguments = call.arguments if verdict.arguments is None else verdict.arguments
        arguments_to_run = {name: _storable_text(value) for name, value in arguments.items()}
        outcome = await handler(request.override(tool_call={**request.tool_call, "args": arguments_to_run}))
        report, failed = _helper_report(outcome)
        result = CallResult(content=(TextContent(text=report),), failed=failed)
        await turn.record_result(call, result)
        return to_tool_message(call.id, result.content)


def _storable_text(value: Any) -> Any:
    """Replace lone surrogates, which models sometimes write and databases reject."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _helper_report(outcome: ToolMessage | Command[Any]) -> tuple[str, bool]:
    if isinstance(outcome, ToolMessage):
        return outcome.text, outcome.status == "error"
    update = outcome.update if isinstance(outcome.update, dict) else {}
    return "\n".join(message.text for message in update.get("messages", ())), False

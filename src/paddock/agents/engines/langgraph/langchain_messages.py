"""Conversion of messages between the session, LangGraph's state and OpenAI's format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from paddock.agents.model.openai_messages import NO_RESULT, NOTE_PREFIX, to_openai_content, tool_call_object
from paddock.model.sessions import MessageContent, SessionMessage, TextContent, ToolCall

LangChainContent = str | list[str | dict[Any, Any]]
"""The content of a message, as LangChain types it."""


def to_langchain_message(message: SessionMessage) -> BaseMessage:
    """Convert a session message for the graph state, with the same id."""
    match message.role:
        case "assistant":
            return to_ai_message(message)
        case "tool":
            return to_tool_message(message.call_id or "", message.content)
        case "note":
            files = [part for part in message.content if not isinstance(part, TextContent)]
            return HumanMessage(
                _langchain_content([TextContent(text=NOTE_PREFIX + message.text), *files]), id=message.id
            )
    return HumanMessage(_langchain_content(message.content), id=message.id)


def to_ai_message(message: SessionMessage) -> AIMessage:
    text = f"{message.text}\n[cut off: {message.cut}]" if message.text and message.cut else message.text
    return AIMessage(text, id=message.id, tool_calls=[_state_call(call) for call in message.calls])


def to_tool_message(call_id: str, content: Sequence[MessageContent]) -> ToolMessage:
    """Convert the result of a call for the graph state, with a deterministic id."""
    return ToolMessage(_langchain_content(content), tool_call_id=call_id, id=f"result_{call_id}")


def session_call_from_graph_state(state_call: Mapping[str, Any]) -> ToolCall:
    """Return the session's call from a call of the graph state."""
    return ToolCall.model_validate(json.loads(state_call["args"]["call"]))


def to_openai_messages(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Convert the graph state to chat completion messages; every call is followed by its result."""
    results = {message.tool_call_id: message.content for message in messages if isinstance(message, ToolMessage)}
    converted: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            converted.append({"role": "system", "content": message.content})
        elif isinstance(message, HumanMessage):
            converted.append({"role": "user", "content": message.content})
        elif isinstance(message, AIMessage) and (message.content or message.tool_calls):
            converted += _assistant_messages(message, results)
    return converted


def messages_missing_from_state(state: Sequence[AnyMessage], history: Sequence[SessionMessage]) -> list[BaseMessage]:
    """Return session messages that the graph state lacks.

    These are all messages in a fork, the end of a turn that was cut off with the results of its calls and later
    messages, and turns of another engine. Messages of helpers are left out.
    """
    known_ids = {message.id for message in state}
    answered_ids = {message.tool_call_id for message in state if isinstance(message, ToolMessage)}
    called_ids = {
        state_call["id"] for message in state if isinstance(message, AIMessage) for state_call in message.tool_calls
    }
    own_messages = [message for message in history if message.role != "assistant" or message.by is None]
    is_missing = [message.id not in known_ids and message.call_id not in answered_ids for message in own_messages]
    end = max((index for index, is_new in enumerate(is_missing) if not is_new), default=-1)
    return [
        to_langchain_message(message)
        for index, message in enumerate(own_messages)
        if is_missing[index] and (index > end or message.call_id in called_ids or message.role in ("user", "note"))
    ]


def _state_call(call: ToolCall) -> Any:
    # As text, because checkpoints cannot store all arguments: large numbers, lone surrogates.
    return tool_call(name=call.name, args={"call": json.dumps(call.model_dump())}, id=call.id)


def _assistant_messages(message: AIMessage, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    converted: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    calls = [session_call_from_graph_state(state_call) for state_call in message.tool_calls]
    if calls:
        converted["tool_calls"] = [tool_call_object(call) for call in calls]
    return [
        converted,
        *(
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": results.get(call.id, NO_RESULT)}
            for call in calls
        ),
    ]


def _langchain_content(content: Sequence[MessageContent]) -> LangChainContent:
    return cast(LangChainContent, to_openai_content(content))

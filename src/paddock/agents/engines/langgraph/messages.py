"""Moves messages between the session, LangGraph's state and the model's words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from paddock.agents.transcripts import NO_RESULT, NOTE, call_object, content_of
from paddock.model.sessions import Call, Content, Message, TextContent

Written = str | list[str | dict[Any, Any]]
"""The content of a message, as LangChain types it."""


def to_state(message: Message) -> BaseMessage:
    """A message of the session as the state keeps it, under the same id."""
    match message.role:
        case "assistant":
            return to_answer(message)
        case "tool":
            return to_result(message.call_id or "", message.content)
        case "note":
            files = [part for part in message.content if not isinstance(part, TextContent)]
            return HumanMessage(_written([TextContent(text=NOTE + message.text), *files]), id=message.id)
    return HumanMessage(_written(message.content), id=message.id)


def to_answer(message: Message) -> AIMessage:
    text = f"{message.text}\n[cut off: {message.cut}]" if message.text and message.cut else message.text
    return AIMessage(text, id=message.id, tool_calls=[_wanted(call) for call in message.calls])


def to_result(call_id: str, content: Sequence[Content]) -> ToolMessage:
    """The result of a call as the state keeps it, under an id that is always the same."""
    return ToolMessage(_written(content), tool_call_id=call_id, id=f"result_{call_id}")


def to_call(wanted: Mapping[str, Any]) -> Call:
    """The call behind one of the state's."""
    return Call.model_validate(json.loads(wanted["args"]["call"]))


def to_openai(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """The state in the words of chat completions. Every call has a result, which follows it, whenever it came."""
    results = {message.tool_call_id: message.content for message in messages if isinstance(message, ToolMessage)}
    spoken: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            spoken.append({"role": "system", "content": message.content})
        elif isinstance(message, HumanMessage):
            spoken.append({"role": "user", "content": message.content})
        elif isinstance(message, AIMessage) and (message.content or message.tool_calls):
            spoken += _answer(message, results)
    return spoken


def missing(state: Sequence[AnyMessage], history: Sequence[Message]) -> list[BaseMessage]:
    """What was said in the session that the state does not have.

    That is all of it in a fork; the end of a turn that was cut off, with the results that its calls were given then
    and what was written meanwhile; and turns in which another engine worked. What helpers said among themselves is
    theirs.
    """
    known = {message.id for message in state}
    answered = {message.tool_call_id for message in state if isinstance(message, ToolMessage)}
    called = {wanted["id"] for message in state if isinstance(message, AIMessage) for wanted in message.tool_calls}
    ours = [message for message in history if message.role != "assistant" or message.by is None]
    new = [message.id not in known and message.call_id not in answered for message in ours]
    end = max((place for place, is_new in enumerate(new) if not is_new), default=-1)
    return [
        to_state(message)
        for place, message in enumerate(ours)
        if new[place] and (place > end or message.call_id in called or message.role in ("user", "note"))
    ]


def _wanted(call: Call) -> Any:
    # As text, because arguments may be what checkpoints cannot hold: large numbers, halves of characters.
    return tool_call(name=call.name, args={"call": json.dumps(call.model_dump())}, id=call.id)


def _answer(message: AIMessage, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    spoken: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    calls = [to_call(wanted) for wanted in message.tool_calls]
    if calls:
        spoken["tool_calls"] = [call_object(call) for call in calls]
    return [
        spoken,
        *(
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": results.get(call.id, NO_RESULT)}
            for call in calls
        ),
    ]


def _written(content: Sequence[Content]) -> Written:
    return cast(Written, content_of(content))

"""Writing a Chat Completions request."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.names import provider_id, provider_name
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_chat.read_request import NAME, NOTED
from paddock.llm.formats.openai_chat.reasoning import write_details, write_thinking
from paddock.llm.formats.openai_shared import media_url, no_word, plain_text, sampling, write_audio
from paddock.llm.formats.seals import CHAT, GEMINI, own_messages, written
from paddock.llm.formats.turns import as_users
from paddock.llm.neutral import (
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_OPENAI = re.compile(r"(.*/)?(gpt-\d|o\d|chatgpt-)")
"""Models that take system messages anywhere, and no thoughts."""
_LONGEST_ID = 40
_NEW_LIMIT = re.compile(r"(.*/)?(o\d|gpt-[5-9])")
"""Models that take `max_completion_tokens` only. The others' servers often know `max_tokens` only."""


def write_request(request: Request) -> dict[str, Any]:
    own = request.extra.get(NAME, {})
    calls = GEMINI if "gemini" in request.model else CHAT
    messages = own_messages(request, CHAT, calls=calls)
    openai = bool(_OPENAI.match(request.model))
    if not openai:
        messages = _system_first(messages, request.notes)
    body: dict[str, Any] = {"model": request.model}
    body["messages"] = _Messages(request.notes, with_thoughts=not openai).write(messages)
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.parallel_tools is not None:
            body["parallel_tool_calls"] = request.parallel_tools
    _tool_choice(request, body)
    if request.max_tokens is not None:
        new = own.get("max_completion_tokens") or _NEW_LIMIT.match(request.model)
        body["max_completion_tokens" if new else "max_tokens"] = request.max_tokens
    values = {
        **sampling(request),
        "stop": request.stop or None,
        "seed": request.seed,
        "user": request.user,
    }
    body.update({name: value for name, value in values.items() if value is not None})
    write_thinking(request, body)
    if request.top_k is not None and request.extra.get("thinking_dialect") == "enable_thinking":
        body["top_k"] = request.top_k
    elif request.top_k is not None:
        note(request.notes, "top_k: Chat Completions has no word for it")
    if request.json_schema is not None:
        schema = {"name": "answer", **own.get("json_schema", {}), "schema": request.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.json_mode:
        body["response_format"] = {"type": "json_object"}
    rest = own.get("fields", {})
    body.update({name: value for name, value in rest.items() if name not in body})
    said = {no_word(name) for name in NOTED & rest.keys()}
    request.notes[:] = [text for text in request.notes if text not in said]
    return body


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": provider_name(tool.name)}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(request: Request, body: dict[str, Any]) -> None:
    match request.tool_choice:
        case ToolChoice.NAMED:
            body["tool_choice"] = {"type": "function", "function": {"name": provider_name(request.tool_name or "")}}
        case ToolChoice.ANY if request.tools:
            body["tool_choice"] = "required"
        case ToolChoice.AUTO | ToolChoice.NONE if request.tools:
            # Without tools OpenAI refuses the field, and it says nothing then.
            body["tool_choice"] = request.tool_choice.value


def write_call(call: ToolCall) -> dict[str, Any]:
    """A call, in a request's history or in an answer."""
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    said: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    if call.signature is not None:
        said["extra_content"] = write_signature(call.signature)
    return said


def write_signature(seal: str) -> dict[str, Any]:
    return {"google": {"thought_signature": written(seal, GEMINI)}}


def _system_first(messages: list[Message], notes: list[str]) -> list[Message]:
    """One system message, at the start: the templates of many open models refuse any other."""
    start = next((place for place, each in enumerate(messages) if each.role is not Role.SYSTEM), len(messages))
    lead = [part for message in messages[:start] for part in message.parts]
    if not lead and all(message.role is not Role.SYSTEM for message in messages):
        return messages
    ordered = [Message(Role.SYSTEM, lead)] if lead else []
    waiting: list[Part] = []
    for message in messages[start:]:
        if message.role is Role.SYSTEM:
            waiting += as_users(message.parts, notes)
            continue
        parts = message.parts
        if waiting and message.role is Role.USER:
            parts, waiting = [*waiting, *parts], []
        elif waiting:
            ordered.append(Message(Role.USER, waiting))
            waiting = []
        ordered.append(Message(message.role, parts))
    return [*ordered, Message(Role.USER, waiting)] if waiting else ordered


class _Messages:
    """Writes messages so that the results of calls come right after the calls, and all else after the results."""

    def __init__(self, notes: list[str], *, with_thoughts: bool) -> None:
        self._notes = notes
        self._with_thoughts = with_thoughts
        self._out: list[dict[str, Any]] = []
        self._waiting: list[dict[str, Any]] = []

    def write(self, messages: list[Message]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role == Role.USER:
                self._user(message)
            else:
                self._flush()
                self._out.append(self._system(message) if message.role == Role.SYSTEM else self._assistant(message))
        self._flush()
        return self._out

    def _flush(self) -> None:
        if self._waiting:
            self._out.append({"role": "user", "content": _content(self._waiting)})
            self._waiting = []

    def _user(self, message: Message) -> None:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if not results:
            self._flush()
        for result in results:
            call_id = provider_id(result.call_id, _LONGEST_ID)
            self._out.append({"role": "tool", "tool_call_id": call_id, "content": self._result(result)})
        for part in message.parts:
            if isinstance(part, Text | Media):
                self._waiting.append(self._part(part))
            elif not isinstance(part, ToolResult):
                raise Untranslatable(f"a user's message cannot hold a {type(part).__name__}")
        if not results:
            if not self._waiting:
                self._waiting.append({"type": "text", "text": ""})
            self._flush()

    def _result(self, result: ToolResult) -> str:
        texts: list[str] = []
        for part in result.content:
            if isinstance(part, Text):
                texts.append(part.text)
            elif (words := plain_text(part)) is not None:
                texts.append(words)
            else:
                name = f" {part.name}" if part.name else ""
                texts.append(f"[{part.kind}{name}: in the next message]")
                label = f"The {part.kind}{name} that the tool call {result.call_id} gave:"
                self._waiting += [{"type": "text", "text": label}, self._part(part)]
        if result.is_error:
            note(self._notes, "is_error: Chat Completions has no word for it in a tool's result")
        return "\n".join(texts)

    def _part(self, part: Text | Media) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if part.kind == "image":
            image = {"url": media_url(part, "image/png")}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        if part.kind == "audio":
            return write_audio(part)
        words = plain_text(part)
        if words is not None:
            return {"type": "text", "text": f"{part.name}:\n{words}" if part.name else words}
        if part.data is None:
            raise Untranslatable("Chat Completions takes documents inline only, not by their address")
        file = {"filename": part.name or "document.pdf", "file_data": media_url(part, "application/pdf")}
        return {"type": "file", "file": file}

    def _system(self, message: Message) -> dict[str, Any]:
        texts: list[str] = []
        for part in message.parts:
            if not isinstance(part, Text):
                raise Untranslatable("a system message can only hold text in Chat Completions")
            texts.append(part.text)
        return {"role": "system", "content": "\n\n".join(texts)}

    def _assistant(self, message: Message) -> dict[str, Any]:
        texts: list[str] = []
        thoughts: list[Thinking] = []
        said: dict[str, Any] = {"role": "assistant", "content": None}
        for part in message.parts:
            match part:
                case Text():
                    texts.append(part.text)
                case Thinking():
                    thoughts.append(part)
                case ToolCall():
                    call = replace(part, id=provider_id(part.id, _LONGEST_ID), name=provider_name(part.name))
                    said.setdefault("tool_calls", []).append(write_call(call))
                case Refusal():
                    said["refusal"] = said.get("refusal", "") + part.text
                case Media():
                    texts.append(f"[{part.kind}]")
                    note(self._notes, f"{part.kind} in an earlier answer: Chat Completions takes text only there")
                case ToolResult():
                    raise Untranslatable("an assistant's message cannot hold a tool's result")
        if thoughts and self._with_thoughts:
            text = "".join(part.text for part in thoughts)
            details = write_details(thoughts)
            if text:
                said["reasoning" if details else "reasoning_content"] = text
            if details:
                said["reasoning_details"] = details
        if texts or not ("tool_calls" in said or "refusal" in said):
            said["content"] = "".join(texts)
        return said


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts

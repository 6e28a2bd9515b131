"""Write Chat Completions requests."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from paddock.llm.formats.alternating_turns import system_parts_as_user_parts
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelMedia,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.openai_chat.reasoning import write_chat_thinking_settings, write_reasoning_details
from paddock.llm.formats.openai_chat.request_reader import CHAT_FORMAT_NAME, UNTRANSLATABLE_CHAT_FIELDS
from paddock.llm.formats.openai_shared import (
    decode_text_document,
    openai_media_url,
    supported_sampling_settings,
    untranslatable_field_note,
    write_openai_audio,
)
from paddock.llm.formats.thought_signatures import (
    CHAT_FAMILY,
    GEMINI_FAMILY,
    drop_foreign_signatures,
    format_thought_signature,
)
from paddock.llm.formats.tool_names import to_provider_call_id, to_provider_tool_name
from paddock.llm.formats.translation_notes import add_translation_note

_OPENAI_MODELS = re.compile(r"(.*/)?(gpt-\d|o\d|chatgpt-)")
"""OpenAI's models: they accept system messages anywhere, and no thoughts."""
_MAX_CALL_ID_LENGTH = 40
_USES_MAX_COMPLETION_TOKENS = re.compile(r"(.*/)?(o\d|gpt-[5-9])")
"""Models that accept only `max_completion_tokens`; servers of other models often support only `max_tokens`."""


def write_chat_request(request: ModelRequest) -> dict[str, Any]:
    own = request.extra.get(CHAT_FORMAT_NAME, {})
    calls = GEMINI_FAMILY if "gemini" in request.model else CHAT_FAMILY
    messages = drop_foreign_signatures(request, CHAT_FAMILY, calls=calls)
    openai = bool(_OPENAI_MODELS.match(request.model))
    if not openai:
        messages = _move_system_messages_first(messages, request.notes)
    body: dict[str, Any] = {"model": request.model}
    body["messages"] = _MessageWriter(request.notes, with_thoughts=not openai).write(messages)
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
        if request.parallel_tools is not None:
            body["parallel_tool_calls"] = request.parallel_tools
    _write_tool_choice(request, body)
    if request.max_tokens is not None:
        new = own.get("max_completion_tokens") or _USES_MAX_COMPLETION_TOKENS.match(request.model)
        body["max_completion_tokens" if new else "max_tokens"] = request.max_tokens
    values = {
        **supported_sampling_settings(request),
        "stop": request.stop or None,
        "seed": request.seed,
        "user": request.user,
    }
    body.update({name: value for name, value in values.items() if value is not None})
    write_chat_thinking_settings(request, body)
    if request.top_k is not None and request.extra.get("thinking_dialect") == "enable_thinking":
        body["top_k"] = request.top_k
    elif request.top_k is not None:
        add_translation_note(request.notes, "top_k: Chat Completions has no such setting")
    if request.json_schema is not None:
        schema = {"name": "answer", **own.get("json_schema", {}), "schema": request.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.json_mode:
        body["response_format"] = {"type": "json_object"}
    rest = own.get("fields", {})
    body.update({name: value for name, value in rest.items() if name not in body})
    written = {untranslatable_field_note(name) for name in UNTRANSLATABLE_CHAT_FIELDS & rest.keys()}
    request.notes[:] = [text for text in request.notes if text not in written]
    return body


def _write_tool(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"name": to_provider_tool_name(tool.name)}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _write_tool_choice(request: ModelRequest, body: dict[str, Any]) -> None:
    match request.tool_choice:
        case ToolChoice.NAMED:
            body["tool_choice"] = {
                "type": "function",
                "function": {"name": to_provider_tool_name(request.tool_name or "")},
            }
        case ToolChoice.ANY if request.tools:
            body["tool_choice"] = "required"
        case ToolChoice.AUTO | ToolChoice.NONE if request.tools:
            # OpenAI rejects the field without tools.
            body["tool_choice"] = request.tool_choice.value


def write_chat_tool_call(call: ModelToolCall) -> dict[str, Any]:
    """Write a tool call for the history of a request or for an answer."""
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    written: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    if call.signature is not None:
        written["extra_content"] = write_chat_call_signature(call.signature)
    return written


def write_chat_call_signature(signature: str) -> dict[str, Any]:
    return {"google": {"thought_signature": format_thought_signature(signature, GEMINI_FAMILY)}}


def _move_system_messages_first(messages: list[ModelMessage], notes: list[str]) -> list[ModelMessage]:
    """Move system messages to one at the start; the chat templates of many open models reject any other."""
    start = next((index for index, each in enumerate(messages) if each.role is not MessageRole.SYSTEM), len(messages))
    leading_parts = [part for message in messages[:start] for part in message.parts]
    if not leading_parts and all(message.role is not MessageRole.SYSTEM for message in messages):
        return messages
    ordered = [ModelMessage(MessageRole.SYSTEM, leading_parts)] if leading_parts else []
    waiting: list[MessagePart] = []
    for message in messages[start:]:
        if message.role is MessageRole.SYSTEM:
            waiting += system_parts_as_user_parts(message.parts, notes)
            continue
        parts = message.parts
        if waiting and message.role is MessageRole.USER:
            parts, waiting = [*waiting, *parts], []
        elif waiting:
            ordered.append(ModelMessage(MessageRole.USER, waiting))
            waiting = []
        ordered.append(ModelMessage(message.role, parts))
    return [*ordered, ModelMessage(MessageRole.USER, waiting)] if waiting else ordered


class _MessageWriter:
    """Writes messages so that results directly follow their calls, before all other parts."""

    def __init__(self, notes: list[str], *, with_thoughts: bool) -> None:
        self._notes = notes
        self._with_thoughts = with_thoughts
        self._messages: list[dict[str, Any]] = []
        self._user_parts: list[dict[str, Any]] = []

    def write(self, messages: list[ModelMessage]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role == MessageRole.USER:
                self._write_user(message)
            else:
                self._flush_user_parts()
                self._messages.append(
                    self._write_system(message)
                    if message.role == MessageRole.SYSTEM
                    else self._write_assistant(message)
                )
        self._flush_user_parts()
        return self._messages

    def _flush_user_parts(self) -> None:
        if self._user_parts:
            self._messages.append({"role": "user", "content": _join_content(self._user_parts)})
            self._user_parts = []

    def _write_user(self, message: ModelMessage) -> None:
        results = [part for part in message.parts if isinstance(part, ModelToolResult)]
        if not results:
            self._flush_user_parts()
        for result in results:
            call_id = to_provider_call_id(result.call_id, _MAX_CALL_ID_LENGTH)
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": self._write_result(result)})
        for part in message.parts:
            if isinstance(part, ModelText | ModelMedia):
                self._user_parts.append(self._write_part(part))
            elif not isinstance(part, ModelToolResult):
                raise UntranslatableRequest(f"a user message cannot contain a {type(part).__name__}")
        if not results:
            if not self._user_parts:
                self._user_parts.append({"type": "text", "text": ""})
            self._flush_user_parts()

    def _write_result(self, result: ModelToolResult) -> str:
        texts: list[str] = []
        for part in result.content:
            if isinstance(part, ModelText):
                texts.append(part.text)
            elif (words := decode_text_document(part)) is not None:
                texts.append(words)
            else:
                name = f" {part.name}" if part.name else ""
                texts.append(f"[{part.kind}{name}: in the next message]")
                label = f"The {part.kind}{name} that the tool call {result.call_id} gave:"
                self._user_parts += [{"type": "text", "text": label}, self._write_part(part)]
        if result.is_error:
            add_translation_note(self._notes, "is_error: Chat Completions cannot mark a tool result as an error")
        return "\n".join(texts)

    def _write_part(self, part: ModelText | ModelMedia) -> dict[str, Any]:
        if isinstance(part, ModelText):
            return {"type": "text", "text": part.text}
        if part.kind == "image":
            image = {"url": openai_media_url(part, "image/png")}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        if part.kind == "audio":
            return write_openai_audio(part)
        words = decode_text_document(part)
        if words is not None:
            return {"type": "text", "text": f"{part.name}:\n{words}" if part.name else words}
        if part.data is None:
            raise UntranslatableRequest("Chat Completions accepts documents only inline, not by URL")
        file = {"filename": part.name or "document.pdf", "file_data": openai_media_url(part, "application/pdf")}
        return {"type": "file", "file": file}

    def _write_system(self, message: ModelMessage) -> dict[str, Any]:
        texts: list[str] = []
        for part in message.parts:
            if not isinstance(part, ModelText):
                raise UntranslatableRequest("a system message can only contain text in Chat Completions")
            texts.append(part.text)
        return {"role": "system", "content": "\n\n".join(texts)}

    def _write_assistant(self, message: ModelMessage) -> dict[str, Any]:
        texts: list[str] = []
        thoughts: list[ModelThinking] = []
        written: dict[str, Any] = {"role": "assistant", "content": None}
        for part in message.parts:
            match part:
                case ModelText():
                    texts.append(part.text)
                case ModelThinking():
                    thoughts.append(part)
                case ModelToolCall():
                    call = replace(
                        part,
                        id=to_provider_call_id(part.id, _MAX_CALL_ID_LENGTH),
                        name=to_provider_tool_name(part.name),
                    )
                    written.setdefault("tool_calls", []).append(write_chat_tool_call(call))
                case ModelRefusal():
                    written["refusal"] = written.get("refusal", "") + part.text
                case ModelMedia():
                    texts.append(f"[{part.kind}]")
                    add_translation_note(
                        self._notes, f"{part.kind} in an earlier answer: Chat Completions takes text only there"
                    )
                case ModelToolResult():
                    raise UntranslatableRequest("an assistant message cannot contain a tool result")
        if thoughts and self._with_thoughts:
            text = "".join(part.text for part in thoughts)
            details = write_reasoning_details(thoughts)
            if text:
                written["reasoning" if details else "reasoning_content"] = text
            if details:
                written["reasoning_details"] = details
        if texts or not ("tool_calls" in written or "refusal" in written):
            written["content"] = "".join(texts)
        return written


def _join_content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts

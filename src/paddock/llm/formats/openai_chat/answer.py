"""Parse and write complete answers of Chat Completions."""

from __future__ import annotations

import time
from typing import Any

from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.json_fields import JsonFields, parse_answer_body
from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelMedia,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    TokenUsage,
)
from paddock.llm.formats.openai_chat.reasoning import read_chat_thoughts, write_reasoning_details
from paddock.llm.formats.openai_chat.request_reader import read_chat_call_signature
from paddock.llm.formats.openai_chat.request_writer import write_chat_tool_call
from paddock.llm.formats.openai_shared import new_prefixed_id, read_openai_usage, write_openai_usage
from paddock.llm.formats.provider_errors import find_error_in_json
from paddock.llm.formats.translation_notes import add_translation_note

_FINISH_BY_REASON = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
}
CHAT_FAILED_FINISH_REASONS = {"error", "insufficient_system_resource"}
"""Finish reasons that mean the answer failed."""


def read_chat_finish_reason(reason: str | None, *, calls: bool, refusal: bool) -> FinishReason:
    """Convert a finish reason. Many servers send `stop` after calls, and OpenAI after a refusal."""
    finish = _FINISH_BY_REASON.get(reason or "stop")
    if finish is not None:
        return finish
    if calls:
        return FinishReason.TOOLS
    return FinishReason.REFUSAL if refusal else FinishReason.STOP


def write_chat_finish_reason(finish: FinishReason, *, refusal: bool) -> str:
    match finish:
        case FinishReason.TOOLS:
            return "tool_calls"
        case FinishReason.LENGTH:
            return "length"
        case FinishReason.FILTERED:
            return "content_filter"
        case FinishReason.REFUSAL if not refusal:
            return "content_filter"
        case _:
            return "stop"


def read_chat_answer_usage(fields: JsonFields) -> TokenUsage | None:
    return read_openai_usage(fields.optional_object("usage"), prompt="prompt_tokens", completion="completion_tokens")


def write_chat_answer_usage(usage: TokenUsage) -> dict[str, Any]:
    return write_openai_usage(usage, prompt="prompt_tokens", completion="completion_tokens")


def read_chat_answer(body: bytes) -> ModelAnswer:
    fields = parse_answer_body(body)
    if "choices" not in fields and (failure := find_error_in_json(fields.value)) is not None:
        raise BrokenModelStream(failure.message)
    choice = next(fields.objects("choices"), None)
    if choice is None:
        raise fields.error("is missing or empty", "choices")
    message = choice.object("message")
    parts = _read_parts(message)
    reason = choice.optional_text("finish_reason")
    if reason in CHAT_FAILED_FINISH_REASONS:
        raise BrokenModelStream(f"the provider ended the answer with {reason}")
    calls = any(isinstance(part, ModelToolCall) for part in parts)
    refusal = any(isinstance(part, ModelRefusal) for part in parts)
    return ModelAnswer(
        fields.optional_text("id") or new_prefixed_id("chatcmpl-"),
        fields.optional_text("model") or "",
        parts,
        read_chat_finish_reason(reason, calls=calls, refusal=refusal),
        usage=read_chat_answer_usage(fields),
    )


def _read_parts(message: JsonFields) -> list[MessagePart]:
    parts: list[MessagePart] = [*read_chat_thoughts(message)]
    text = read_chat_content_text(message)
    if text:
        parts.append(ModelText(text))
    refusal = message.optional_text("refusal")
    if refusal:
        parts.append(ModelRefusal(refusal))
    for call in message.objects("tool_calls"):
        function = call.object("function")
        arguments = call_arguments_text(function.get("arguments")) or "{}"
        call_id = call.optional_text("id") or new_prefixed_id("call_")
        parts.append(ModelToolCall(call_id, function.text("name"), arguments, read_chat_call_signature(call)))
    return parts


def read_chat_content_text(message: JsonFields) -> str:
    """Return the text of an answer, which a few servers send as a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.optional_text("text") or "" for part in message.objects("content"))
    return message.optional_text("content") or ""


def write_chat_answer(answer: ModelAnswer) -> dict[str, Any]:
    text: list[str] = []
    thoughts: list[ModelThinking] = []
    refusals: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in answer.parts:
        match part:
            case ModelText():
                text.append(part.text)
            case ModelThinking():
                thoughts.append(part)
            case ModelRefusal():
                refusals.append(part.text)
            case ModelToolCall():
                calls.append(write_chat_tool_call(part))
            case _:
                kind = part.kind if isinstance(part, ModelMedia) else "tool result"
                add_translation_note(answer.notes, f"{kind}: Chat Completions answers in text only")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) if text else None}
    message["refusal"] = "".join(refusals) if refusals else None
    if any(part.text for part in thoughts):
        message["reasoning_content"] = "".join(part.text for part in thoughts)
    if details := write_reasoning_details(thoughts):
        message["reasoning_details"] = details
    if calls:
        message["tool_calls"] = calls
    reason = write_chat_finish_reason(answer.finish, refusal=bool(refusals))
    written: dict[str, Any] = {
        "id": answer.id or new_prefixed_id("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
    }
    if answer.usage is not None:
        written["usage"] = write_chat_answer_usage(answer.usage)
    return written

"""A whole answer of Chat Completions."""

from __future__ import annotations

import time
from typing import Any

from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_chat.read_request import read_signature
from paddock.llm.formats.openai_chat.reasoning import read_thoughts, write_details
from paddock.llm.formats.openai_chat.write_request import write_call
from paddock.llm.formats.openai_shared import new_id, read_usage, write_usage
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import Answer, Finish, Part, Refusal, Text, Thinking, ToolCall, Usage

_FINISH = {"length": Finish.LENGTH, "max_tokens": Finish.LENGTH, "content_filter": Finish.FILTERED}
FAILED = {"error", "insufficient_system_resource"}
"""Reasons to finish that mean the answer did not come about."""


def finish_of(reason: str | None, *, calls: bool, refusal: bool) -> Finish:
    """Why it ended. Many servers say `stop` after calls, and OpenAI does after a refusal."""
    finish = _FINISH.get(reason or "stop")
    if finish is not None:
        return finish
    if calls:
        return Finish.TOOLS
    return Finish.REFUSAL if refusal else Finish.STOP


def finish_reason(finish: Finish, *, refusal: bool) -> str:
    match finish:
        case Finish.TOOLS:
            return "tool_calls"
        case Finish.LENGTH:
            return "length"
        case Finish.FILTERED:
            return "content_filter"
        case Finish.REFUSAL if not refusal:
            return "content_filter"
        case _:
            return "stop"


def usage_of(fields: Fields) -> Usage | None:
    return read_usage(fields.object_or("usage"), prompt="prompt_tokens", completion="completion_tokens")


def usage_object(usage: Usage) -> dict[str, Any]:
    return write_usage(usage, prompt="prompt_tokens", completion="completion_tokens")


def read_answer(body: bytes) -> Answer:
    fields = answer_fields(body)
    if "choices" not in fields and (failure := told_failure(fields.value)) is not None:
        raise BrokenStream(failure.message)
    choice = next(fields.objects("choices"), None)
    if choice is None:
        raise fields.error("is missing or empty", "choices")
    message = choice.object("message")
    parts = _parts(message)
    reason = choice.text_or("finish_reason")
    if reason in FAILED:
        raise BrokenStream(f"the provider ended the answer with {reason}")
    calls = any(isinstance(part, ToolCall) for part in parts)
    refusal = any(isinstance(part, Refusal) for part in parts)
    return Answer(
        fields.text_or("id") or new_id("chatcmpl-"),
        fields.text_or("model") or "",
        parts,
        finish_of(reason, calls=calls, refusal=refusal),
        usage=usage_of(fields),
    )


def _parts(message: Fields) -> list[Part]:
    parts: list[Part] = [*read_thoughts(message)]
    text = content_text(message)
    if text:
        parts.append(Text(text))
    refusal = message.text_or("refusal")
    if refusal:
        parts.append(Refusal(refusal))
    for call in message.objects("tool_calls"):
        function = call.object("function")
        arguments = arguments_text(function.get("arguments")) or "{}"
        call_id = call.text_or("id") or new_id("call_")
        parts.append(ToolCall(call_id, function.text("name"), arguments, read_signature(call)))
    return parts


def content_text(message: Fields) -> str:
    """The text of an answer, which a few servers send as a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.text_or("text") or "" for part in message.objects("content"))
    return message.text_or("content") or ""


def write_answer(answer: Answer) -> dict[str, Any]:
    text: list[str] = []
    thoughts: list[Thinking] = []
    refusals: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in answer.parts:
        match part:
            case Text():
                text.append(part.text)
            case Thinking():
                thoughts.append(part)
            case Refusal():
                refusals.append(part.text)
            case ToolCall():
                calls.append(write_call(part))
            case _:
                note(answer.notes, f"{type(part).__name__}: Chat Completions answers in text only")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) if text else None}
    message["refusal"] = "".join(refusals) if refusals else None
    if any(part.text for part in thoughts):
        message["reasoning_content"] = "".join(part.text for part in thoughts)
    if details := write_details(thoughts):
        message["reasoning_details"] = details
    if calls:
        message["tool_calls"] = calls
    reason = finish_reason(answer.finish, refusal=bool(refusals))
    written: dict[str, Any] = {
        "id": answer.id or new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
    }
    if answer.usage is not None:
        written["usage"] = usage_object(answer.usage)
    return written

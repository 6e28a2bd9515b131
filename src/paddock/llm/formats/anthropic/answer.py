"""Anthropic's answers and errors."""

from __future__ import annotations

import uuid
from typing import Any

from paddock.llm.formats.anthropic.read import read_block
from paddock.llm.formats.failures import any_failure
from paddock.llm.formats.fields import Fields, answer_fields, to_bytes
from paddock.llm.formats.seals import ANTHROPIC, foreign, written
from paddock.llm.formats.turns import arguments_object
from paddock.llm.neutral import (
    Answer,
    Failure,
    Finish,
    Media,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "tool_use": Finish.TOOLS,
    "refusal": Finish.REFUSAL,
    "pause_turn": Finish.PAUSED,
}
_REASONS = {
    Finish.STOP: "end_turn",
    Finish.LENGTH: "max_tokens",
    Finish.TOOLS: "tool_use",
    Finish.REFUSAL: "refusal",
    Finish.FILTERED: "refusal",
    Finish.PAUSED: "pause_turn",
}
_NUMBERS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_DETAILS, _THOUGHT = "output_tokens_details", "thinking_tokens"


def read_answer(body: bytes) -> Answer:
    fields = answer_fields(body)
    if fields.get("type") == "error":
        raise fields.error(f"is an error: {any_failure(500, body).message}")
    notes: list[str] = []
    fields.need("content")
    parts = [part for block in fields.objects("content") for part in read_block(block, notes)]
    usage = fields.object_or("usage")
    return Answer(
        id=fields.text_or("id") or "",
        model=fields.text_or("model") or "",
        parts=parts,
        finish=read_finish(fields.text_or("stop_reason"), any(isinstance(part, ToolCall) for part in parts)),
        stop_sequence=fields.text_or("stop_sequence"),
        usage=read_usage(usage) if usage is not None else None,
        notes=notes,
    )


def read_finish(reason: str | None, called: bool) -> Finish:
    return _FINISHES.get(reason or "", Finish.TOOLS if called else Finish.STOP)


def add_usage(totals: dict[str, Any], told: dict[str, Any]) -> None:
    """Take in what one event tells of tokens, in the shape in which it tells it.

    All numbers are totals, which some providers give at the start only or at the end only, so the largest counts.
    """
    for name in _NUMBERS:
        totals[name] = max(Fields(told).count(name), totals.get(name, 0))
    known, details = totals.setdefault(_DETAILS, {}), told.get(_DETAILS)
    if isinstance(details, dict):
        known[_THOUGHT] = max(Fields(details).count(_THOUGHT), known.get(_THOUGHT, 0))


def read_usage(fields: Fields) -> Usage:
    read, cache_written = fields.count("cache_read_input_tokens"), fields.count("cache_creation_input_tokens")
    details = fields.get(_DETAILS)
    return Usage(
        input=fields.count("input_tokens") + read + cache_written,
        output=fields.count("output_tokens"),
        cache_read=read,
        cache_write=cache_written,
        reasoning=Fields(details if isinstance(details, dict) else {}).count(_THOUGHT),
    )


def write_answer(answer: Answer) -> bytes:
    content: list[dict[str, Any]] = []
    for part in answer.parts:
        content += written_blocks(part)
    return to_bytes(
        {
            "id": answer.id or new_id(),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": write_finish(answer.finish, answer.stop_sequence),
            "stop_sequence": answer.stop_sequence,
            "usage": write_usage(answer.usage),
        }
    )


def new_id() -> str:
    """For answers of providers that gave none."""
    return f"msg_{uuid.uuid4().hex}"


def written_blocks(part: Part) -> list[dict[str, Any]]:
    """The blocks for one part of an answer.

    A signed call, which this format has no field for, has its signature sent ahead as a thought without text: clients
    send thoughts back, and the signature finds its call again when the request is written.
    """
    if isinstance(part, Text | Refusal):
        return [{"type": "text", "text": part.text}]
    if isinstance(part, Thinking):
        if part.redacted is None:
            return [_thought(part.text, part.signature)]
        if foreign(part.redacted, ANTHROPIC):
            return [_thought("", written(part.redacted, ANTHROPIC, redacted=True))]
        return [{"type": "redacted_thinking", "data": part.redacted}]
    if isinstance(part, ToolCall):
        call = {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments_object(part.arguments)}
        return [_thought("", part.signature), call] if part.signature else [call]
    if isinstance(part, Media):
        # Answers of this format hold no pictures; an address is better than silence.
        return [{"type": "text", "text": part.url or f"[{part.kind} {part.media_type or ''}]"}]
    return []


def _thought(text: str, signature: str | None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": written(signature, ANTHROPIC) if signature else ""}


def write_finish(finish: Finish, stop_sequence: str | None) -> str:
    return "stop_sequence" if finish is Finish.STOP and stop_sequence is not None else _REASONS[finish]


def write_usage(usage: Usage | None) -> dict[str, Any]:
    usage = usage or Usage()
    said: dict[str, Any] = {
        "input_tokens": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
    if usage.reasoning:
        said[_DETAILS] = {_THOUGHT: usage.reasoning}
    return said


def failure_object(failure: Failure) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": failure.kind, "message": failure.message},
        "request_id": None,
    }


def write_failure(failure: Failure) -> bytes:
    return to_bytes(failure_object(failure))

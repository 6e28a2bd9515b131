"""Parse and write answers, usage and errors of Anthropic's Messages API."""

from __future__ import annotations

import uuid
from typing import Any

from paddock.llm.formats.anthropic.request_reader import read_anthropic_content_block
from paddock.llm.formats.call_arguments import parse_call_arguments
from paddock.llm.formats.json_fields import JsonFields, encode_json, parse_answer_body
from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelFailure,
    ModelMedia,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    TokenUsage,
)
from paddock.llm.formats.provider_errors import parse_provider_error
from paddock.llm.formats.thought_signatures import ANTHROPIC_FAMILY, format_thought_signature, is_foreign_signature

_FINISH_BY_STOP_REASON = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOLS,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSED,
}
_STOP_REASON_BY_FINISH = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOLS: "tool_use",
    FinishReason.REFUSAL: "refusal",
    FinishReason.FILTERED: "refusal",
    FinishReason.PAUSED: "pause_turn",
}
_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_DETAILS_FIELD, _THINKING_FIELD = "output_tokens_details", "thinking_tokens"


def read_anthropic_answer(body: bytes) -> ModelAnswer:
    fields = parse_answer_body(body)
    if fields.get("type") == "error":
        raise fields.error(f"is an error: {parse_provider_error(500, body).message}")
    notes: list[str] = []
    fields.required("content")
    parts = [part for block in fields.objects("content") for part in read_anthropic_content_block(block, notes)]
    usage = fields.optional_object("usage")
    return ModelAnswer(
        id=fields.optional_text("id") or "",
        model=fields.optional_text("model") or "",
        parts=parts,
        finish=read_anthropic_finish_reason(
            fields.optional_text("stop_reason"), any(isinstance(part, ModelToolCall) for part in parts)
        ),
        stop_sequence=fields.optional_text("stop_sequence"),
        usage=read_anthropic_usage(usage) if usage is not None else None,
        notes=notes,
    )


def read_anthropic_finish_reason(reason: str | None, called: bool) -> FinishReason:
    return _FINISH_BY_STOP_REASON.get(reason or "", FinishReason.TOOLS if called else FinishReason.STOP)


def merge_anthropic_usage(totals: dict[str, Any], reported: dict[str, Any]) -> None:
    """Merge the usage fields of one event into the totals.

    All numbers are running totals, which some providers report only at the start or only at the end, so the largest
    value counts.
    """
    for name in _USAGE_FIELDS:
        totals[name] = max(JsonFields(reported).token_count(name), totals.get(name, 0))
    known, details = totals.setdefault(_DETAILS_FIELD, {}), reported.get(_DETAILS_FIELD)
    if isinstance(details, dict):
        known[_THINKING_FIELD] = max(JsonFields(details).token_count(_THINKING_FIELD), known.get(_THINKING_FIELD, 0))


def read_anthropic_usage(fields: JsonFields) -> TokenUsage:
    read, cache_written = (
        fields.token_count("cache_read_input_tokens"),
        fields.token_count("cache_creation_input_tokens"),
    )
    details = fields.get(_DETAILS_FIELD)
    return TokenUsage(
        input=fields.token_count("input_tokens") + read + cache_written,
        output=fields.token_count("output_tokens"),
        cache_read=read,
        cache_write=cache_written,
        reasoning=JsonFields(details if isinstance(details, dict) else {}).token_count(_THINKING_FIELD),
    )


def write_anthropic_answer(answer: ModelAnswer) -> bytes:
    content: list[dict[str, Any]] = []
    for part in answer.parts:
        content += write_anthropic_answer_blocks(part)
    return encode_json(
        {
            "id": answer.id or new_anthropic_message_id(),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": write_anthropic_finish_reason(answer.finish, answer.stop_sequence),
            "stop_sequence": answer.stop_sequence,
            "usage": write_anthropic_usage(answer.usage),
        }
    )


def new_anthropic_message_id() -> str:
    """Return a random ID, for answers of providers that sent none."""
    return f"msg_{uuid.uuid4().hex}"


def write_anthropic_answer_blocks(part: MessagePart) -> list[dict[str, Any]]:
    """Return the content blocks for one part of an answer.

    This format has no field for the signature of a call. It is sent ahead as a thought without text: clients send
    thoughts back, and the signature is attached to its call again when the request is written.
    """
    if isinstance(part, ModelText | ModelRefusal):
        return [{"type": "text", "text": part.text}]
    if isinstance(part, ModelThinking):
        if part.redacted is None:
            return [_thinking_block(part.text, part.signature)]
        if is_foreign_signature(part.redacted, ANTHROPIC_FAMILY):
            return [_thinking_block("", format_thought_signature(part.redacted, ANTHROPIC_FAMILY, redacted=True))]
        return [{"type": "redacted_thinking", "data": part.redacted}]
    if isinstance(part, ModelToolCall):
        call = {"type": "tool_use", "id": part.id, "name": part.name, "input": parse_call_arguments(part.arguments)}
        return [_thinking_block("", part.signature), call] if part.signature else [call]
    if isinstance(part, ModelMedia):
        # Answers of this format cannot contain images, so the URL is sent as text.
        return [{"type": "text", "text": part.url or f"[{part.kind} {part.media_type or ''}]"}]
    return []


def _thinking_block(text: str, signature: str | None) -> dict[str, Any]:
    return {
        "type": "thinking",
        "thinking": text,
        "signature": format_thought_signature(signature, ANTHROPIC_FAMILY) if signature else "",
    }


def write_anthropic_finish_reason(finish: FinishReason, stop_sequence: str | None) -> str:
    return (
        "stop_sequence" if finish is FinishReason.STOP and stop_sequence is not None else _STOP_REASON_BY_FINISH[finish]
    )


def write_anthropic_usage(usage: TokenUsage | None) -> dict[str, Any]:
    usage = usage or TokenUsage()
    written: dict[str, Any] = {
        "input_tokens": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
    if usage.reasoning:
        written[_DETAILS_FIELD] = {_THINKING_FIELD: usage.reasoning}
    return written


def anthropic_error_object(failure: ModelFailure) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": failure.kind, "message": failure.message},
        "request_id": None,
    }


def write_anthropic_failure(failure: ModelFailure) -> bytes:
    return encode_json(anthropic_error_object(failure))

"""Parse complete answers of the Responses API."""

from __future__ import annotations

from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.json_fields import JsonFields, parse_answer_body
from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelRefusal,
    ModelText,
    ModelToolCall,
    TokenUsage,
)
from paddock.llm.formats.openai_responses.request_reader import read_reasoning_item, read_responses_tool_call
from paddock.llm.formats.openai_shared import new_prefixed_id, read_openai_usage
from paddock.llm.formats.provider_errors import find_error_in_json


def read_responses_answer_usage(response: JsonFields) -> TokenUsage | None:
    return read_openai_usage(response.optional_object("usage"), prompt="input_tokens", completion="output_tokens")


def read_responses_finish_reason(response: JsonFields, *, calls: bool, refusal: bool) -> FinishReason:
    details = response.optional_object("incomplete_details")
    if response.get("status") == "incomplete" or details is not None:
        reason = details.get("reason") if details is not None else None
        return FinishReason.FILTERED if reason == "content_filter" else FinishReason.LENGTH
    if calls:
        return FinishReason.TOOLS
    return FinishReason.REFUSAL if refusal else FinishReason.STOP


def read_responses_answer(body: bytes) -> ModelAnswer:
    response = parse_answer_body(body)
    if response.get("status") in ("failed", "cancelled") or "output" not in response:
        failure = find_error_in_json(response.value)
        raise BrokenModelStream(failure.message if failure is not None else "the answer has no output")
    parts: list[MessagePart] = []
    for item in response.objects("output"):
        parts += read_responses_output_item(item)
    calls = any(isinstance(part, ModelToolCall) for part in parts)
    refusal = any(isinstance(part, ModelRefusal) for part in parts)
    return ModelAnswer(
        response.optional_text("id") or new_prefixed_id("resp_"),
        response.optional_text("model") or "",
        parts,
        read_responses_finish_reason(response, calls=calls, refusal=refusal),
        usage=read_responses_answer_usage(response),
    )


def read_responses_output_item(item: JsonFields) -> list[MessagePart]:
    """Convert an output item to parts; items of tools that the provider ran are left out."""
    kind = item.get("type")
    if kind == "message":
        return [part for piece in item.objects("content") if (part := read_responses_content_piece(piece)) is not None]
    if kind == "reasoning":
        thought = read_reasoning_item(item)
        return [thought] if thought is not None else []
    if kind in ("function_call", "custom_tool_call"):
        return [read_responses_tool_call(item)]
    return []


def read_responses_content_piece(piece: JsonFields) -> ModelText | ModelRefusal | None:
    if piece.get("type") == "refusal":
        return ModelRefusal(piece.text("refusal"))
    text = piece.optional_text("text")
    return ModelText(text) if text is not None else None

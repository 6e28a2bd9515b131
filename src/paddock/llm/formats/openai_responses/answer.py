"""Reading a whole answer of the Responses API."""

from __future__ import annotations

from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.openai_responses.read_request import read_call, read_thought
from paddock.llm.formats.openai_shared import new_id, read_usage
from paddock.llm.neutral import Answer, Finish, Part, Refusal, Text, ToolCall, Usage


def usage_of(response: Fields) -> Usage | None:
    return read_usage(response.object_or("usage"), prompt="input_tokens", completion="output_tokens")


def finish_of(response: Fields, *, calls: bool, refusal: bool) -> Finish:
    details = response.object_or("incomplete_details")
    if response.get("status") == "incomplete" or details is not None:
        reason = details.get("reason") if details is not None else None
        return Finish.FILTERED if reason == "content_filter" else Finish.LENGTH
    if calls:
        return Finish.TOOLS
    return Finish.REFUSAL if refusal else Finish.STOP


def read_answer(body: bytes) -> Answer:
    response = answer_fields(body)
    if response.get("status") in ("failed", "cancelled") or "output" not in response:
        failure = told_failure(response.value)
        raise BrokenStream(failure.message if failure is not None else "the answer has no output")
    parts: list[Part] = []
    for item in response.objects("output"):
        parts += read_item(item)
    calls = any(isinstance(part, ToolCall) for part in parts)
    refusal = any(isinstance(part, Refusal) for part in parts)
    return Answer(
        response.text_or("id") or new_id("resp_"),
        response.text_or("model") or "",
        parts,
        finish_of(response, calls=calls, refusal=refusal),
        usage=usage_of(response),
    )


def read_item(item: Fields) -> list[Part]:
    """The parts of one item; those of tools that the provider ran itself are left out."""
    kind = item.get("type")
    if kind == "message":
        return [part for piece in item.objects("content") if (part := read_content(piece)) is not None]
    if kind == "reasoning":
        thought = read_thought(item)
        return [thought] if thought is not None else []
    if kind in ("function_call", "custom_tool_call"):
        return [read_call(item)]
    return []


def read_content(piece: Fields) -> Text | Refusal | None:
    if piece.get("type") == "refusal":
        return Refusal(piece.text("refusal"))
    text = piece.text_or("text")
    return Text(text) if text is not None else None

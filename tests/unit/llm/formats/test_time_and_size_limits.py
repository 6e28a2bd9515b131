"""Processing time and memory grow linearly with the size of any input."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from paddock.llm.formats import translation_notes
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.gemini import schema_conversion as gemini_schema
from paddock.llm.formats.gemini.schema_conversion import GeminiSchemaWriter
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartStarted,
    AnswerStreamStarted,
    ModelRequest,
    ModelThinking,
    ModelToolCall,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.sse import ServerSentEventReader

from .openai_helpers import sse

TIMES = 8
MOST = 20
"""Allowed slowdown for eight times the work; quadratic work takes 64 times as long."""

Work = Callable[[], object]


def cpu_time(make: Callable[[int], Work], size: int) -> float:
    best = float("inf")
    for _ in range(3):
        work = make(size)
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def read_request_work(format: str, body: Any) -> Work:
    data = json.dumps(body).encode()
    return lambda: FORMATS[format].read_request(data, model="m", stream=False)


def unmatched_results(size: int) -> Work:
    calls = [{"functionCall": {"name": "a"}}] * size
    results = [{"functionResponse": {"name": "b", "id": "x", "response": {}}}] * size
    return read_request_work(
        "gemini", {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]}
    )


def carried_thoughts(size: int) -> Work:
    signature = base64.urlsafe_b64encode(b'paddock:thoughts:[["anthropic","hm","s",null]]').decode()
    return read_request_work(
        "gemini", {"contents": [{"role": "model", "parts": [{"text": "x", "thoughtSignature": signature}] * size}]}
    )


def allowed_names(size: int) -> Work:
    body = {
        "contents": [{"parts": [{"text": "x"}]}],
        "tools": [{"functionDeclarations": [{"name": f"f{number}"} for number in range(size)]}],
        "toolConfig": {
            "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [f"g{number}" for number in range(size)]}
        },
    }
    return read_request_work("gemini", body)


def unknown_blocks(size: int) -> Work:
    blocks = [{"type": f"k{number}"} for number in range(size)]
    return read_request_work("anthropic", {"messages": [{"role": "user", "content": blocks}]})


def required_names(size: int) -> Work:
    properties = {f"p{number}": True for number in range(size)}
    schema = {"type": "object", "properties": properties, "required": [f"q{number}" for number in range(size)]}
    return lambda: GeminiSchemaWriter().write(schema)


def feed_stream_work(format: str, first: bytes, piece: bytes, size: int) -> Work:
    reader = FORMATS[format].new_stream_reader()
    reader.feed(first)

    def work() -> None:
        for _ in range(size):
            reader.feed(piece)

    return work


def late_text(size: int) -> Work:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    first = sse({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    return feed_stream_work(
        "openai-chat", first, sse({"choices": [{"index": 0, "delta": {"content": "a" * 200}}]}), size
    )


def details(size: int) -> Work:
    detail = {"type": "reasoning.text", "index": 0, "text": "a" * 200}
    piece = sse({"id": "x", "choices": [{"index": 0, "delta": {"reasoning_details": [detail]}}]})
    return feed_stream_work("openai-chat", piece, piece, size)


def calls_without_an_index(size: int) -> Work:
    calls = [{"id": f"c{number}", "function": {"name": "f", "arguments": "{}"}} for number in range(size)]
    data = sse({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]})
    return lambda: FORMATS["openai-chat"].new_stream_reader().feed(data)


def calls_and_texts(size: int) -> Work:
    events: list[Any] = [{"type": "response.created", "response": {"id": "r"}}]
    for number in range(0, 2 * size, 2):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f"}
        events.append({"type": "response.output_item.added", "output_index": number, "item": call})
        events.append({"type": "response.output_text.delta", "output_index": number + 1, "delta": "x"})
    data = sse(*events)
    return lambda: FORMATS["openai-responses"].new_stream_reader().feed(data)


def text_in_parts(size: int) -> Work:
    parts = [{"text": "a" * 200}] * size
    data = json.dumps({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}).encode()
    return lambda: FORMATS["gemini"].read_answer(data)


def write_stream_work(part: ModelToolCall | ModelThinking, size: int) -> Work:
    writer = FORMATS["gemini"].new_stream_writer(ModelRequest("m", []))
    writer.write(AnswerStreamStarted("i", "m"))
    writer.write(AnswerPartStarted(0, part))
    event = AnswerPartDelta(0, "a" * 200)

    def work() -> None:
        for _ in range(size):
            writer.write(event)

    return work


CASES: dict[str, tuple[Callable[[int], Work], int]] = {
    "results without a call": (unmatched_results, 500),
    "carried thoughts": (carried_thoughts, 1000),
    "allowed names": (allowed_names, 1000),
    "unknown blocks": (unknown_blocks, 1000),
    "required names": (required_names, 1000),
    "text after calls": (late_text, 2000),
    "details of thoughts": (details, 2000),
    "calls without an index": (calls_without_an_index, 500),
    "calls and texts in turn": (calls_and_texts, 600),
    "a text in many parts": (text_in_parts, 4000),
    "arguments for Gemini": (lambda size: write_stream_work(ModelToolCall("a", "f", ""), size), 8000),
    "thoughts for Gemini": (lambda size: write_stream_work(ModelThinking(), size), 4000),
}


@pytest.mark.parametrize("case", CASES)
def test_parse_time_is_linear_in_size(case: str) -> None:
    make, size = CASES[case]
    assert cpu_time(make, TIMES * size) < MOST * cpu_time(make, size)


class SearchCountingBytes(bytes):
    """Bytes that count how many bytes were searched."""

    searched_bytes = 0

    def find(self, wanted: Any, start: Any = 0, end: Any = None) -> int:
        position = super().find(wanted, start, end)
        self.searched_bytes += (position if position >= 0 else len(self) if end is None else end) - start
        return position


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n", b"\r" * 50 + b"\n" * 50])
def test_line_ends_are_searched_for_once(ending: bytes) -> None:
    data = SearchCountingBytes((b"data: x" + ending * 2) * 1000)
    assert ServerSentEventReader().feed(data)
    assert data.searched_bytes <= 2 * len(data)


def test_the_number_of_notes_is_limited() -> None:
    blocks = [{"type": f"k{number}" + "x" * 5000} for number in range(300)]
    body = {"messages": [{"role": "user", "content": blocks}], **{f"unknown{number}": 1 for number in range(300)}}
    request = FORMATS["anthropic"].read_request(json.dumps(body).encode(), model="m")
    assert len(request.notes) == translation_notes.MAX_NOTES + 1
    assert request.notes[-1] == "further changes are not listed"
    assert max(map(len, request.notes)) <= 1000


def test_members_of_a_schema_count() -> None:
    """A 22 kB schema that expands a thousandfold is refused before it is fully expanded."""
    names = [str(number) for number in range(2000)]
    schema = {"type": "object", "required": names, "properties": {"a": {}}, "allOf": [{"$ref": "#"}] * 2000}
    with pytest.raises(UntranslatableRequest, match="characters once their references"):
        GeminiSchemaWriter().write(schema)
    with pytest.raises(UntranslatableRequest, match="parts once their references"):
        GeminiSchemaWriter().write({"allOf": [{}] * gemini_schema._MAX_PARTS})


def test_long_text_is_not_repeated_endlessly() -> None:
    for long in ({"description": "x" * 100_000}, {"enum": ["x" * 100_000]}, {"y" * 100_000: 1}):
        properties = {f"p{number}": {"$ref": "#/$defs/e"} for number in range(1000)}
        schema = {"type": "object", "$defs": {"e": {"type": "string", **long}}, "properties": properties}
        with pytest.raises(UntranslatableRequest, match="characters once their references"):
            GeminiSchemaWriter().write(schema)


def test_all_of_members_are_merged() -> None:
    schema = {
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "allOf": [
            {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["b", "c", 5]},
            {"$ref": "#/$defs/more"},
            "nonsense",
        ],
        "$defs": {"more": {"properties": {"c": {}}, "description": "More."}},
    }
    assert GeminiSchemaWriter().write(schema) == {
        "type": "OBJECT",
        "description": "More.",
        "properties": {"a": {"type": "STRING"}, "b": {"type": "INTEGER"}, "c": {}},
        "required": ["a", "b", "c"],
    }


@pytest.mark.parametrize("junk", [[], {}, [[]], [{"a": 1}], 5, True, None])
def test_malformed_schemas_are_accepted(junk: Any) -> None:
    for name in ("format", "type", "enum", "required", "properties", "title", "propertyOrdering", "allOf", "$ref"):
        GeminiSchemaWriter().write({"type": "object", "properties": {"a": {name: junk}}, name: junk})


def test_results_find_their_calls_by_id_then_by_name() -> None:
    calls = [{"functionCall": {"name": "f", "id": each}} for each in ("a", "b", "c")]
    results = [{"functionResponse": {"name": "f", "response": {}, **each}} for each in ({"id": "b"}, {}, {}, {})]
    body = {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]}
    request = FORMATS["gemini"].read_request(json.dumps(body).encode(), model="m")
    assert [part.call_id for part in request.messages[1].parts if hasattr(part, "call_id")][:3] == ["b", "a", "c"]

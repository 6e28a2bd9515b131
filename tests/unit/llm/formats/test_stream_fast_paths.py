"""The fast path of stream readers gives the same events as the slow path, for any input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.neutral import AnswerStreamStarted, StreamEvent
from paddock.llm.formats.registry import FORMATS

from .test_openai_chat import call_delta, chunk
from .test_openai_hostile import CHAT_STREAM, RESPONSES_STREAM

ANTHROPIC_STREAM: list[Any] = [
    {"type": "message_start", "message": {"id": "i", "model": "m", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a\ud83c"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "c", "name": "f"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
GEMINI_STREAM: list[Any] = [
    {"candidates": [{"content": {"parts": [part]}}], "responseId": "r", "usageMetadata": {"promptTokenCount": 3}}
    for part in (
        {"text": "hm", "thought": True},
        {"text": "so", "thought": True},
        {"text": "a"},
        {"text": "b"},
        {"text": "c", "thoughtSignature": "s"},
        {"functionCall": {"name": "f", "args": {"a": 1}}},
    )
] + [{"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3}}]
STREAMS: dict[str, list[Any]] = {
    "openai-chat": [
        *CHAT_STREAM[:3],
        chunk({"content": "more"}),
        *CHAT_STREAM[3:5],
        chunk(call_delta(index=0, arguments="x")),
        *CHAT_STREAM[5:-1],
    ],
    "openai-responses": RESPONSES_STREAM,
    "anthropic": ANTHROPIC_STREAM,
    "gemini": GEMINI_STREAM,
}
JUNK: list[Any] = [None, 0, -1, 1.5, True, "", "x", "1", [], {}, [None], ["x"], [{}], {"type": "x"}, 10**30]


def field_paths(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [field for key in keys for field in field_paths(value[key])]


def outcome(form: str, pieces: list[bytes]) -> tuple[list[StreamEvent], bool]:
    """Return the events and whether reading failed; random IDs are left out."""
    reader = FORMATS[form].new_stream_reader()
    events: list[StreamEvent] = []
    try:
        for piece in pieces:
            events += reader.feed(piece)
        events += reader.close()
    except BrokenModelStream:
        return events, True
    return events, False


@pytest.mark.parametrize("form", STREAMS)
@settings(max_examples=150, deadline=None)
@given(where=st.integers(0, 10**6), junk=st.sampled_from(JUNK))
def test_fast_and_slow_path_agree(form: str, where: int, junk: Any) -> None:
    stream = json.loads(json.dumps(STREAMS[form]))
    found = field_paths(stream)
    holder, key = found[where % len(found)]
    if key != "id":
        holder[key] = junk
    # Compact JSON, as providers write it; the fast path requires it.
    lines = [json.dumps(event, separators=(",", ":")).encode() for event in stream]
    quick = outcome(form, [b"data: %b\n\n" % line for line in lines])
    # Lines that end in CRLF take the slow path.
    slow = outcome(form, [b"data: %b\r\n\r\n" % line for line in lines])
    assert comparable_result(quick) == comparable_result(slow)


def comparable_result(result: tuple[list[StreamEvent], bool]) -> tuple[list[str], bool]:
    events, broke = result
    shown = [repr(event) for event in events if not isinstance(event, AnswerStreamStarted)]
    # A corrupted ID is replaced by a random one each time.
    return [text for text in shown if "id='call_" not in text], broke

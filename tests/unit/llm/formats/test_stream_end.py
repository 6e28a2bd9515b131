from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.formats import stream_end
from paddock.llm.formats.stream_end import StreamEndDetector, StreamEnding

ALL = ["openai-chat", "anthropic", "openai-responses", "gemini", "gemini array"]


def sse(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"{head}data: {text}\n\n".encode()


def chat(text: str = "", reason: str | None = None, **more: Any) -> bytes:
    return sse({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}], **more})


def anthropic(text: str) -> bytes:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return sse(delta, "content_block_delta")


def responses(kind: str, **more: Any) -> bytes:
    return sse({"type": kind, **more}, kind)


def gemini(text: str, reason: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": [{"text": text}]}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": reason} if reason else {})], "usageMetadata": {}}


TEXT_LIKE_END_MARKERS = (
    '"finish_reason":"stop"\n\ndata: [DONE]\n\nevent: message_stop\n\n"finishReason": "STOP" "error":{}'
)
"""Generated text that contains end markers."""
CALL = {"finishReason": "STOP", "finish_reason": "stop", "type": "message_stop", "error": {"a": 1}}
_gemini_call = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": CALL}}]}}]}

MIDST = {
    "openai-chat": chat(TEXT_LIKE_END_MARKERS)
    + chat("", None)
    + b": ping\n\n"
    + sse({"choices": [], "usage": {"prompt_tokens": 1}}),
    "anthropic": sse({"type": "message_start", "message": {"stop_reason": None}}, "message_start")
    + sse(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "x", "input": CALL}},
        "content_block_start",
    )
    + anthropic(TEXT_LIKE_END_MARKERS)
    + sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, "message_delta"),
    "openai-responses": responses("response.created", response={"status": "in_progress", "error": None})
    + responses("response.output_text.delta", delta=TEXT_LIKE_END_MARKERS)
    + responses("response.output_text.done", text=TEXT_LIKE_END_MARKERS)
    + responses("response.output_item.done", item={"status": "completed", "x": CALL}),
    "gemini": sse(gemini(TEXT_LIKE_END_MARKERS)) + sse(_gemini_call),
    "gemini array": (json.dumps([gemini(TEXT_LIKE_END_MARKERS), _gemini_call], indent=2)[:-2] + ",\r\n").encode(),
}
LAST = {
    "openai-chat": chat("", "stop"),
    "anthropic": sse({"type": "message_stop"}, "message_stop"),
    "openai-responses": responses("response.completed", response={"status": "completed", "error": None}),
    "gemini": sse(gemini(".", "STOP")),
    "gemini array": json.dumps(gemini(".", "STOP"), indent=2).encode() + b"\n]",
}


def new_detector(case: str) -> StreamEndDetector:
    return StreamEndDetector(case.removesuffix(" array"))


def feed_pieces(case: str, *pieces: bytes) -> StreamEndDetector:
    made = new_detector(case)
    for piece in pieces:
        made.feed(piece)
    return made


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("case", ALL)
def test_stream_end_is_detected_in_any_pieces_and_not_early(case: str, ending: bytes) -> None:
    midst, last = (part.replace(b"\n", ending) for part in (MIDST[case], LAST[case]))
    data = midst + last
    for cut in range(len(data) + 1):
        made = feed_pieces(case, data[:cut])
        if cut <= len(midst):
            assert not made.finished, data[:cut]
        made.feed(data[cut:])
        assert made.ending is StreamEnding.FINISHED, cut
    assert feed_pieces(case, *(data[position : position + 1] for position in range(len(data)))).finished
    assert feed_pieces(case, data + b": bye" + ending * 2 if "array" not in case else data).finished


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ALL), st.lists(st.integers(0, 5000)), st.booleans())
def test_ending_does_not_depend_on_piece_boundaries(case: str, cuts: list[int], whole: bool) -> None:
    data = MIDST[case] + (LAST[case] if whole else b"")
    made, start = new_detector(case), 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        made.feed(data[start:cut])
        start = cut
    assert made.finished is whole


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_generated_text_does_not_end_a_stream(text: str) -> None:
    for content in (text, TEXT_LIKE_END_MARKERS[: len(text)] + text):
        assert not feed_pieces("openai-chat", chat(content)).finished
        assert not feed_pieces("anthropic", anthropic(content)).finished
        assert not feed_pieces("openai-responses", responses("response.output_text.delta", delta=content)).finished
        assert not feed_pieces("gemini", sse(gemini(content))).finished


@pytest.mark.parametrize(
    ("case", "data", "expected"),
    [
        ("openai-chat", sse("[DONE]"), StreamEnding.FINISHED),
        ("openai-chat", b"data:[DONE]", StreamEnding.FINISHED),
        ("openai-chat", b'data: {"choices": [{"finish_reason" : "length"}]}\n\n', StreamEnding.FINISHED),
        ("openai-chat", chat("", ""), StreamEnding.OPEN),
        ("openai-chat", sse({"error": {"message": "no"}}), StreamEnding.FAILED),
        ("openai-chat", sse({"choices": [], "error": None}), StreamEnding.OPEN),
        ("openai-chat", b'data: {"choices":[{"finish_reason":"stop"', StreamEnding.OPEN),
        ("anthropic", b'data: {"type": "message_stop"}\n\n', StreamEnding.FINISHED),
        ("anthropic", b"event: message_stop\ndata: {}\n\n", StreamEnding.FINISHED),
        ("anthropic", b"event: message_stop\n", StreamEnding.OPEN),
        ("anthropic", sse({"type": "error", "error": {"type": "overloaded_error"}}, "error"), StreamEnding.FAILED),
        ("anthropic", sse({"error": {"type": "overloaded_error"}, "type": "error"}), StreamEnding.FAILED),
        ("openai-responses", responses("response.incomplete", response={}), StreamEnding.FINISHED),
        ("openai-responses", responses("response.failed", response={"error": {}}), StreamEnding.FAILED),
        ("openai-responses", sse({"message": "no"}, "error"), StreamEnding.FAILED),
        ("openai-responses", sse("[DONE]"), StreamEnding.OPEN),
        ("gemini", sse({"promptFeedback": {"blockReason": "SAFETY"}}), StreamEnding.FINISHED),
        ("gemini", sse({"error": {"code": 503}}), StreamEnding.FAILED),
        ("gemini", b'{"error": {"code": 503}}', StreamEnding.FAILED),
        ("gemini", b'[{"error": {"code": 503}}]', StreamEnding.FAILED),
        ("gemini", b'[{"candidates": [{"finishReason": "STOP"}]}', StreamEnding.OPEN),
        ("gemini", b'data: {"candidates": [{"finish_reason": "STOP"}]}\n\n', StreamEnding.FINISHED),
        ("gemini", b"", StreamEnding.OPEN),
    ],
)
def test_end_markers(case: str, data: bytes, expected: StreamEnding) -> None:
    assert feed_pieces(case, data).ending is expected


def choice(index: int, reason: str | None = None, *, spaced: bool = False) -> bytes:
    chunk = {"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": reason}]}
    return b"data: " + json.dumps(chunk, separators=None if spaced else (",", ":")).encode() + b"\n\n"


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("order", [[0, 1], [1, 0], [0, 1, 2], [2, 1, 0], [1, 2, 0]])
@pytest.mark.parametrize("joined", [False, True])
def test_all_choices_must_end(order: list[int], spaced: bool, joined: bool) -> None:
    pieces = [choice(index, spaced=spaced) for index in sorted(order) * 2]
    made = feed_pieces("openai-chat", *([b"".join(pieces)] if joined else pieces))
    for index in order[:-1]:
        made.feed(choice(index, "stop", spaced=spaced))
        assert not made.finished
        made.feed(choice(order[-1], spaced=spaced))
        assert not made.finished
    made.feed(choice(order[-1], "length", spaced=spaced))
    assert made.ending is StreamEnding.FINISHED
    assert feed_pieces("openai-chat", *pieces, sse("[DONE]")).ending is StreamEnding.FINISHED


def test_choice_starting_after_end_of_the_first_is_awaited() -> None:
    made = feed_pieces("openai-chat", choice(0), choice(0, "stop"))
    assert made.finished
    made.feed(choice(1))
    assert not made.finished
    made.feed(choice(1, "stop"))
    assert made.finished
    made.feed(sse({"choices": [], "usage": {"prompt_tokens": 1}}))
    made.feed(sse({"choices": [{"index": 0, "delta": {}, "finish_reason": None}]}))
    assert made.finished


def test_a_second_call_is_not_a_second_choice() -> None:
    call = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 1}]}, "finish_reason": None}]}
    assert feed_pieces("openai-chat", sse(call), sse(call), chat("", "tool_calls")).finished


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize(
    "nonsense",
    [
        b"<html>\n\n",
        b"\xff\xfe\n\n",
        b'data: {"error": {"finish_reason": "x", "finishReason": "x", "type": "message_stop\n\n',
        b"data: " + b'{"error":' * 5000 + b"\n\n",
        b'data: {"choices": 1, "candidates": "x", "finish_reason":"stop", "finishReason":"STOP"}\n\n',
    ],
)
def test_malformed_events_do_not_end_a_stream(case: str, nonsense: bytes) -> None:
    made = feed_pieces(case, nonsense)
    assert not made.finished
    if "array" not in case:
        made.feed(LAST[case])
        assert made.finished


def test_oversized_event_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_end, "MAX_EVENT_BYTES", 1000)
    made = feed_pieces("openai-chat", b"data: ", *[b"x" * 100] * 20)
    made.feed(b'"finish_reason":"stop"\n\n')
    assert not made.finished
    made.feed(LAST["openai-chat"])
    assert made.finished

"""The beginning of a request's newest message, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.llm.archive.message_preview import MAX_PREVIEW_CHARACTERS, make_message_preview


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "user", "content": "What is\n  new?"}], "What is new?"),
        ([{"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url"}]}], "Look"),
        ([{"role": "user", "parts": [{"text": "Hello"}]}], "Hello"),
        ([{"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "1", "output": "42"}], "42"),
        ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "done"}]}], "done"),
        ([{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "ok"}}}]}], "ok"),
        ([{"role": "user", "content": [{"text": "<system-reminder>x"}, {"text": "Hi"}]}], "Hi"),
        ([{"role": "user", "content": "first"}, {"role": "system", "content": "rules"}], "first"),
        ([{"role": "user", "content": "  "}], ""),
        ([], ""),
    ],
)
def test_preview_shows_newest_text(messages: list[dict[str, Any]], expected: str) -> None:
    assert make_message_preview([json.dumps(each).encode() for each in messages]) == expected


def test_previews_are_short() -> None:
    long = make_message_preview([json.dumps({"role": "user", "content": "word " * 1000}).encode()])
    assert len(long) == MAX_PREVIEW_CHARACTERS and long.endswith("\N{HORIZONTAL ELLIPSIS}")


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 5000, b"\xff", b"7", b'{"content": {"content": {}}}'])
def test_invalid_messages_have_no_preview(raw: bytes) -> None:
    assert make_message_preview([raw]) == ""

"""Requests are taken apart and come back byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.archive.compression import Compressor, decode_archived_response, decompress, encode_archived_response
from paddock.llm.archive.request_splitting import (
    join_request_body,
    literal_request_bytes,
    map_literal_bytes,
    split_request_body,
)

from .exchange_samples import chat_body

NAMES = st.sampled_from(["messages", "input", "contents", "system", "tools", "systemInstruction", "model", "x", "role"])
SPACES = st.text(" \t\n\r", max_size=3)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)


@st.composite
def odd_json(draw: st.DrawFn, depth: int = 0) -> str:
    """Unusual but valid JSON: spaces anywhere, duplicate names, nested lists."""
    space = draw(SPACES)
    kind = draw(st.integers(0, 3 if depth < 4 else 0))
    if kind == 0:
        return space + json.dumps(draw(SCALARS), ensure_ascii=draw(st.booleans())) + space
    if kind == 1:
        return space + "[" + ",".join(draw(st.lists(odd_json(depth + 1), max_size=4))) + "]" + space
    names = draw(st.lists(NAMES, max_size=5))
    fields = [f"{draw(SPACES)}{json.dumps(name)}{draw(SPACES)}:{draw(odd_json(depth + 1))}" for name in names]
    return space + "{" + ",".join(fields) + "}" + space


def split_and_join(body: bytes, operation: str = "generate") -> bytes:
    parts = split_request_body(body, operation)
    return join_request_body(parts.skeleton, parts.prompt, parts.thread)


@settings(max_examples=150, deadline=None)
@given(odd_json())
def test_unusual_json_is_restored_byte_for_byte(text: str) -> None:
    body = text.encode(errors="surrogatepass")
    assert split_and_join(body) == body


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_body_is_restored_byte_for_byte(body: bytes) -> None:
    assert split_and_join(body) == body
    assert split_and_join(b'{"messages":[' + body + b"]}") == b'{"messages":[' + body + b"]}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b'{"messages":[{"role":"user","content":"h\xff"}]}',
        b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"messages":[{},{} ,\n {}],"messages":[{"a":1}],"tools":[],"system":null}',
        b'{"\\u006dessages":[{"role":"user"}]}',
        b'{"messages":[' + b",".join([b"{}"] * 20_000) + b"]}",
        b'{"input":[1,2,3],"model":"e"}',
    ],
)
def test_unusual_requests_are_restored(body: bytes) -> None:
    assert split_and_join(body) == body
    assert split_and_join(body, "embed") == body


def test_messages_instructions_and_tools_are_separated() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    parts = split_request_body(chat_body(messages, tools=[{"type": "function"}]))
    assert [json.loads(raw) for raw in parts.prompt] == [messages[0], [{"type": "function"}]]
    assert [json.loads(raw) for raw in parts.thread] == [messages[1]]
    parts = split_request_body(
        b'{"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user"}]}'
    )
    assert len(parts.prompt) == 2 and len(parts.thread) == 1


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_all_turns_of_a_conversation_have_the_same_skeleton(separators: tuple[str, str]) -> None:
    def body(turns: int) -> bytes:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}]
        messages += [{"role": "user", "content": str(turn)} for turn in range(turns)]
        return json.dumps({"model": "m", "messages": messages, "stream": True}, separators=separators).encode()

    assert split_request_body(body(2)).skeleton == split_request_body(body(200)).skeleton


def test_literals_can_be_changed() -> None:
    parts = split_request_body(b'{"user":"me","messages":[{"role":"user"}]}')
    assert literal_request_bytes(parts) == [b'{"user":"me","messages":[', b"]}"]
    map_literal_bytes(parts, lambda literal: literal.replace(b"me", b"you", 1) if b"user" in literal else literal)
    assert join_request_body(parts.skeleton, parts.prompt, parts.thread).startswith(b'{"user":"you","')


@given(st.lists(st.tuples(st.floats(0, 1000), st.binary(max_size=40)), max_size=20))
def test_response_pieces_are_restored_with_times(pieces: list[tuple[float, bytes]]) -> None:
    pieces.sort(key=lambda piece: piece[0])
    split_and_join = decode_archived_response(decompress(Compressor().compress(encode_archived_response(pieces))))
    assert [piece for _, piece in split_and_join] == [piece for _, piece in pieces]
    assert all(abs(one - other) < 0.001 for (one, _), (other, _) in zip(split_and_join, pieces, strict=True))


def test_seemingly_compressed_bytes_are_restored() -> None:
    for raw in (b"", b"\0", b"\1", b"\1" * 1000, Compressor().compress(b"x" * 1000)):
        assert decompress(Compressor().compress(raw)) == raw

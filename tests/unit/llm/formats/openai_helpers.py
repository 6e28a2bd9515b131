"""Shared helpers of the tests of OpenAI's two formats."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from paddock.llm.formats.base import ModelStreamReader
from paddock.llm.formats.neutral import ModelMedia, StreamEvent, TokenUsage, ToolDefinition

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.text("abcdefgh_", min_size=1, max_size=8)
counts = st.integers(0, 10**6)
usages = st.builds(TokenUsage, counts, counts, counts, counts, counts)
arguments = st.dictionaries(names, st.one_of(words, st.integers(), st.booleans()), max_size=3).map(json.dumps)
base64s = st.sampled_from(["aGVsbG8=", "AAAA", "/+8="])
images = st.one_of(
    st.builds(ModelMedia, st.just("image"), st.sampled_from(["image/png", "image/jpeg"]), base64s),
    st.builds(ModelMedia, st.just("image"), url=st.just("https://example.com/a.png")),
)
documents = st.builds(ModelMedia, st.just("document"), st.just("application/pdf"), base64s, name=st.just("a.pdf"))
sounds = st.builds(ModelMedia, st.just("audio"), st.sampled_from(["audio/wav", "audio/mpeg"]), base64s)
schemas = st.just({"type": "object", "properties": {"a": {"type": "integer"}}})
tools = st.lists(
    st.builds(ToolDefinition, names, st.none() | words, schemas, st.booleans()),
    max_size=3,
    unique_by=lambda tool: tool.name,
)


def split_at(data: bytes, positions: list[int]) -> list[bytes]:
    """Split bytes at these positions."""
    edges = [0, *sorted({position % (len(data) + 1) for position in positions}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


cuts = st.lists(st.integers(0, 10**6), max_size=20)


def read_stream(reader: ModelStreamReader, pieces: list[bytes]) -> list[StreamEvent]:
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def sse(*events: Any) -> bytes:
    return b"".join(f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n".encode() for e in events)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()

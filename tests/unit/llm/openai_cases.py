"""What the tests of OpenAI's two formats share."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from paddock.llm.formats.base import StreamReader
from paddock.llm.neutral import Event, Media, Tool, Usage

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.text("abcdefgh_", min_size=1, max_size=8)
counts = st.integers(0, 10**6)
usages = st.builds(Usage, counts, counts, counts, counts, counts)
arguments = st.dictionaries(names, st.one_of(words, st.integers(), st.booleans()), max_size=3).map(json.dumps)
base64s = st.sampled_from(["aGVsbG8=", "AAAA", "/+8="])
images = st.one_of(
    st.builds(Media, st.just("image"), st.sampled_from(["image/png", "image/jpeg"]), base64s),
    st.builds(Media, st.just("image"), url=st.just("https://example.com/a.png")),
)
documents = st.builds(Media, st.just("document"), st.just("application/pdf"), base64s, name=st.just("a.pdf"))
sounds = st.builds(Media, st.just("audio"), st.sampled_from(["audio/wav", "audio/mpeg"]), base64s)
schemas = st.just({"type": "object", "properties": {"a": {"type": "integer"}}})
tools = st.lists(
    st.builds(Tool, names, st.none() | words, schemas, st.booleans()), max_size=3, unique_by=lambda tool: tool.name
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


cuts = st.lists(st.integers(0, 10**6), max_size=20)


def read_stream(reader: StreamReader, pieces: list[bytes]) -> list[Event]:
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def sse(*events: Any) -> bytes:
    return b"".join(f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n".encode() for e in events)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()

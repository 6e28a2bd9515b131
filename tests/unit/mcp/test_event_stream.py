"""Server-sent events in pieces of any size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paddock.errors import TooLarge
from paddock.mcp.protocol.event_stream import McpEventReader, McpStreamEvent

STREAM = (
    b"\xef\xbb\xbf: comment\r\n\r\nid: 1\ndata: one\n\nevent: endpoint\rdata: /x\r\rretry: 1500\nid: 2\ndata\n\n"
    b"data: a\r\ndata:b\r\nignored: x\r\n\r\nevent: lost\n\ndata: unfinished"
)
EVENTS = [
    McpStreamEvent(b"one"),
    McpStreamEvent(b"/x", "endpoint"),
    McpStreamEvent(b""),
    McpStreamEvent(b"a\nb"),
]


@given(some.lists(some.integers(0, len(STREAM))))
def test_pieces_of_any_size_give_the_same_events(cuts: list[int]) -> None:
    reader = McpEventReader(1000)
    borders = [0, *sorted(cuts), len(STREAM)]
    events = [event for start, end in pairwise(borders) for event in reader.feed(STREAM[start:end])]
    assert events == EVENTS
    assert (reader.last_id, reader.retry) == ("2", 1.5)


@pytest.mark.parametrize("endless", [b"x" * 100, b"data: " + b"x" * 20 + b"\n"])
def test_endless_lines_and_events_are_refused(endless: bytes) -> None:
    reader = McpEventReader(1000)

    def feed() -> None:
        for _ in range(1000):
            reader.feed(endless)

    with pytest.raises(TooLarge):
        feed()

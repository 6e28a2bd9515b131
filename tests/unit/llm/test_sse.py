from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.fields import Fields, answer_fields, request_fields
from paddock.llm.formats.sse import EventReader, ServerEvent, event_bytes

CASES = {
    "one": (b"data: a\n\n", [ServerEvent("a")]),
    "named": (b"event: x\ndata: a\n\ndata: b\n\n", [ServerEvent("a", "x"), ServerEvent("b")]),
    "several lines": (b"data: a\ndata: b\ndata\n\n", [ServerEvent("a\nb\n")]),
    "no space": (b"data:a\ndata:  b\n\n", [ServerEvent("a\n b")]),
    "comments": (b": ping\n\n:\ndata: a\n: in between\n\n", [ServerEvent("a")]),
    "other fields": (b"id: 1\nretry: 5\nfoo: bar\ndata: a\n\n", [ServerEvent("a")]),
    "event without data": (b"event: x\n\ndata: a\n\n", [ServerEvent("a")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [ServerEvent("a")]),
    "letters of several bytes": ("data: ä€😀\n\n".encode(), [ServerEvent("ä€😀")]),
    "no blank line at the end": (b"data: a\n\ndata: b", [ServerEvent("a"), ServerEvent("b")]),
}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("case", CASES)
def test_events_are_the_same_wherever_the_bytes_are_cut(case: str, ending: bytes) -> None:
    data, expected = CASES[case]
    data = data.replace(b"\n", ending)
    for cut in range(len(data) + 1):
        reader = EventReader()
        assert [*reader.feed(data[:cut]), *reader.feed(data[cut:]), *reader.close()] == expected, cut
    reader = EventReader()
    events = [event for index in range(len(data)) for event in reader.feed(data[index : index + 1])]
    assert events + reader.close() == expected


def test_an_event_comes_as_soon_as_it_is_complete() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\r\n\r") == [ServerEvent("a")]
    assert reader.feed(b"\ndata: b\r\n\r\n") == [ServerEvent("b")]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1), max_size=4))
def test_what_is_written_is_read(texts: list[str]) -> None:
    reader = EventReader()
    data = b"".join(event_bytes(text, "n") for text in texts)
    assert reader.feed(data) == [ServerEvent(text, "n") for text in texts]


def test_an_event_that_is_too_large_is_refused_before_it_ends() -> None:
    reader = EventReader(limit=100)
    assert len(reader.feed(b"data: " + b"x" * 90 + b"\n\n")) == 1
    assert reader.feed(b": comment\n" * 1000) == []
    reader.feed(b"data: " + b"x" * 60)
    with pytest.raises(BrokenStream, match="100 bytes"):
        reader.feed(b"x" * 60)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(BrokenStream, match="UTF-8"):
        EventReader().feed(b"data: \xff\n\n")


def test_errors_name_the_path() -> None:
    fields = Fields({"messages": [{"content": [{"text": 1}]}], "n": True, "stop": ["a", 1]})
    content = next(next(fields.objects("messages")).objects("content"))
    with pytest.raises(InvalidInput, match=r"^messages\[0\]\.content\[0\]\.text should be a string$"):
        content.text("text")
    with pytest.raises(InvalidInput, match=r"^model is missing$"):
        fields.text("model")
    with pytest.raises(InvalidInput, match=r"^n should be a whole number$"):
        fields.integer("n")
    with pytest.raises(InvalidInput, match=r"^stop\[1\] should be a string$"):
        fields.texts("stop")
    assert fields.text_or("model") is None


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        request_fields(data)
    with pytest.raises(BrokenStream, match="not JSON"):
        answer_fields(data)


def test_what_is_not_an_object_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the body should be an object"):
        request_fields(b"[]")


def test_whole_events_are_found_at_a_glance() -> None:
    reader = EventReader(limit=50)
    assert reader.whole(b'data: {"a":1}\n\nevent: x\ndata: {"type":"x"}\n\n') == [b'{"a":1}', b'{"type":"x"}']
    for odd in (
        b"data: a\n",
        b"data: a\r\n\r\n",
        b"data: a\ndata: b\n\n",
        b": ping\n\n",
        b"data:a\n\n",
        b"id: 1\ndata: a\n\n",
        b"event: x\n\n",
        b"event: x\ndata: {}\n\n",
        b"data: " + b"x" * 50 + b"\n\n",
        b"",
    ):
        assert reader.whole(odd) is None
    assert reader.feed(b"data: a") == []
    assert reader.whole(b"data: b\n\n") is None
    assert [event.data for event in reader.feed(b"\n\n")] == ["a"]
    assert reader.whole(b"data: b\n\n") == [b"b"]


def test_whole_events_are_found_between_cut_ones() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a") == []
    found = reader.pieces(b"b\n\ndata: c\n\ndata: d\n\ndata: e")
    assert found == [ServerEvent("ab"), b"c", b"d"]
    assert reader.pieces(b"\n\ndata: f\n\n") == [ServerEvent("e"), b"f"]

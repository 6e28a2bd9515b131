from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.json_fields import JsonFields, parse_answer_body, parse_request_body
from paddock.llm.formats.sse import ServerSentEvent, ServerSentEventReader, encode_server_sent_event

CASES = {
    "one": (b"data: a\n\n", [ServerSentEvent("a")]),
    "named": (b"event: x\ndata: a\n\ndata: b\n\n", [ServerSentEvent("a", "x"), ServerSentEvent("b")]),
    "several lines": (b"data: a\ndata: b\ndata\n\n", [ServerSentEvent("a\nb\n")]),
    "no space": (b"data:a\ndata:  b\n\n", [ServerSentEvent("a\n b")]),
    "comments": (b": ping\n\n:\ndata: a\n: in between\n\n", [ServerSentEvent("a")]),
    "other fields": (b"id: 1\nretry: 5\nfoo: bar\ndata: a\n\n", [ServerSentEvent("a")]),
    "event without data": (b"event: x\n\ndata: a\n\n", [ServerSentEvent("a")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("a")]),
    "letters of several bytes": ("data: ä€😀\n\n".encode(), [ServerSentEvent("ä€😀")]),
    "no blank line at the end": (b"data: a\n\ndata: b", [ServerSentEvent("a"), ServerSentEvent("b")]),
}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("case", CASES)
def test_events_do_not_depend_on_piece_boundaries(case: str, ending: bytes) -> None:
    data, expected = CASES[case]
    data = data.replace(b"\n", ending)
    for cut in range(len(data) + 1):
        reader = ServerSentEventReader()
        assert [*reader.feed(data[:cut]), *reader.feed(data[cut:]), *reader.close()] == expected, cut
    reader = ServerSentEventReader()
    events = [event for index in range(len(data)) for event in reader.feed(data[index : index + 1])]
    assert events + reader.close() == expected


def test_event_is_returned_when_complete() -> None:
    reader = ServerSentEventReader()
    assert reader.feed(b"data: a\r\n\r") == [ServerSentEvent("a")]
    assert reader.feed(b"\ndata: b\r\n\r\n") == [ServerSentEvent("b")]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1), max_size=4))
def test_written_events_are_read_back(texts: list[str]) -> None:
    reader = ServerSentEventReader()
    data = b"".join(encode_server_sent_event(text, "n") for text in texts)
    assert reader.feed(data) == [ServerSentEvent(text, "n") for text in texts]


def test_oversized_event_is_refused_before_its_end() -> None:
    reader = ServerSentEventReader(limit=100)
    assert len(reader.feed(b"data: " + b"x" * 90 + b"\n\n")) == 1
    assert reader.feed(b": comment\n" * 1000) == []
    reader.feed(b"data: " + b"x" * 60)
    with pytest.raises(BrokenModelStream, match="100 bytes"):
        reader.feed(b"x" * 60)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(BrokenModelStream, match="UTF-8"):
        ServerSentEventReader().feed(b"data: \xff\n\n")


def test_errors_name_the_path() -> None:
    fields = JsonFields({"messages": [{"content": [{"text": 1}]}], "n": True, "stop": ["a", 1]})
    content = next(next(fields.objects("messages")).objects("content"))
    with pytest.raises(InvalidInput, match=r"^messages\[0\]\.content\[0\]\.text should be a string$"):
        content.text("text")
    with pytest.raises(InvalidInput, match=r"^model is missing$"):
        fields.text("model")
    with pytest.raises(InvalidInput, match=r"^n should be a whole number$"):
        fields.integer("n")
    with pytest.raises(InvalidInput, match=r"^stop\[1\] should be a string$"):
        fields.texts("stop")
    assert fields.optional_text("model") is None


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        parse_request_body(data)
    with pytest.raises(BrokenModelStream, match="not JSON"):
        parse_answer_body(data)


def test_json_other_than_an_object_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the body should be an object"):
        parse_request_body(b"[]")


def test_whole_events_take_the_fast_path() -> None:
    reader = ServerSentEventReader(limit=50)
    assert reader.split_whole_events(b'data: {"a":1}\n\nevent: x\ndata: {"type":"x"}\n\n') == [
        b'{"a":1}',
        b'{"type":"x"}',
    ]
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
        assert reader.split_whole_events(odd) is None
    assert reader.feed(b"data: a") == []
    assert reader.split_whole_events(b"data: b\n\n") is None
    assert [event.data for event in reader.feed(b"\n\n")] == ["a"]
    assert reader.split_whole_events(b"data: b\n\n") == [b"b"]


def test_whole_events_between_cut_ones_take_the_fast_path() -> None:
    reader = ServerSentEventReader()
    assert reader.feed(b"data: a") == []
    found = reader.read_events(b"b\n\ndata: c\n\ndata: d\n\ndata: e")
    assert found == [ServerSentEvent("ab"), b"c", b"d"]
    assert reader.read_events(b"\n\ndata: f\n\n") == [ServerSentEvent("e"), b"f"]

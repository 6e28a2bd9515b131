"""What boxes say of their tools and of calls is data, whatever it is."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import BoxGone
from paddock.live.outcomes import MOST_FILES, MOST_TOOLS, read_result, read_tools, write_result
from paddock.model.screens import ImagePart, TextPart

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
CLICK: dict[str, Any] = {
    "name": "click",
    "description": "Click.",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "annotations": {"readOnlyHint": False},
    "_meta": {"paddock": {"input": True, "changesScreen": True}},
}


def test_a_tool_is_read_with_its_flags() -> None:
    (tool,) = read_tools([CLICK])
    assert (tool.name, tool.input, tool.changes_screen, tool.read_only) == ("click", True, True, False)
    assert tool.input_schema == CLICK["inputSchema"]


def test_flags_are_only_taken_where_they_are_said() -> None:
    (tool,) = read_tools([{"name": "look", "annotations": {"readOnlyHint": True}, "_meta": {"paddock": {"input": 1}}}])
    assert (tool.input, tool.changes_screen, tool.read_only) == (False, False, True)


def test_what_is_no_tool_is_left_out_and_many_are_too_many() -> None:
    assert read_tools([3, {}, {"name": "../x"}, {"name": "a" * 200}, CLICK, CLICK]) == read_tools([CLICK])
    assert len(read_tools([{"name": f"t{number}"} for number in range(MOST_TOOLS + 5)])) == MOST_TOOLS
    for nonsense in cast("list[object]", [None, 3, "click", {"tools": []}]):
        with pytest.raises(BoxGone):
            read_tools(nonsense)


def test_a_result_is_read_and_written_the_same() -> None:
    document = {
        "content": [{"type": "text", "text": "done"}, {"type": "image", "data": "AAEC", "mimeType": "image/png"}],
        "structuredContent": {"x": 1},
        "isError": False,
        "_meta": {"paddock": {"files": ["/workspace/a"], "shot": '"1"'}},
    }
    result = read_result(document)
    assert result.content == (TextPart(text="done"), ImagePart(data=b"\0\1\2", mime="image/png"))
    assert result.structured == {"x": 1} and not result.failed and result.files == ("/workspace/a",)
    written = write_result(result)
    assert {**document, "_meta": {"paddock": {"files": ["/workspace/a"]}}} == written


@pytest.mark.parametrize(
    "part",
    [
        None,
        "text",
        {"type": "text"},
        {"type": "audio", "data": ""},
        {"type": "image", "data": "%%%", "mimeType": "image/png"},
        {"type": "image", "data": "AAEC", "mimeType": "text/html"},
        {"type": "image", "data": "AAEC", "mimeType": "image/png\r\nX: y"},
    ],
)
def test_a_part_that_is_neither_text_nor_picture_is_nonsense(part: object) -> None:
    with pytest.raises(BoxGone, match="nonsense"):
        read_result({"content": [part]})


def test_files_are_bounded_and_only_paths_count() -> None:
    meta = {"paddock": {"files": ["/a", 3, None, "", *["/b"] * (2 * MOST_FILES)]}}
    assert len(read_result({"content": [], "_meta": meta}).files) < MOST_FILES
    assert read_result({"content": [], "_meta": {"paddock": {"files": "/etc"}}}).files == ()


def test_halves_of_characters_come_through_as_question_marks() -> None:
    result = read_result({"content": [{"type": "text", "text": "a\ud800b"}]})
    assert result.content == (TextPart(text="a?b"),)


@given(ANYTHING)
def test_whatever_a_box_answers_is_a_result_or_nonsense(document: object) -> None:
    for wrapped in (document, {"content": document}, {"content": [], "_meta": document, "structuredContent": document}):
        try:
            result = read_result(wrapped)
        except BoxGone:
            continue
        json.dumps(write_result(result))


@given(ANYTHING)
def test_whatever_a_box_lists_are_tools_or_nonsense(document: object) -> None:
    for wrapped in (document, [document], [{"name": "a", "_meta": document, "annotations": document}]):
        try:
            read_tools(wrapped)
        except BoxGone:
            continue


@pytest.mark.parametrize(
    "value", [json.loads("[" * 300 + "]" * 300), float("inf"), float("nan"), {"a": [float("-inf")]}]
)
def test_what_could_not_be_written_again_is_left_out(value: Any) -> None:
    assert read_result({"content": [], "structuredContent": {"a": value}}).structured is None
    (tool,) = read_tools([{**CLICK, "inputSchema": {"a": value}}])
    assert tool.input_schema == {"type": "object"}

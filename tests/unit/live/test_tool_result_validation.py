"""Validation of tool lists and results from untrusted sandboxes."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import SandboxGone
from paddock.live.tools.tool_result_validation import (
    MAX_FILES,
    MAX_TOOLS,
    parse_tool_result,
    parse_tools,
    tool_result_to_mcp,
)
from paddock.model.screens import ToolResultImage, ToolResultText

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


def test_tool_is_parsed_with_its_flags() -> None:
    (tool,) = parse_tools([CLICK])
    assert (tool.name, tool.input, tool.changes_screen, tool.read_only) == ("click", True, True, False)
    assert tool.input_schema == CLICK["inputSchema"]


def test_missing_flags_are_false() -> None:
    (tool,) = parse_tools([{"name": "look", "annotations": {"readOnlyHint": True}, "_meta": {"paddock": {"input": 1}}}])
    assert (tool.input, tool.changes_screen, tool.read_only) == (False, False, True)


def test_invalid_tools_are_skipped_and_their_number_is_bounded() -> None:
    assert parse_tools([3, {}, {"name": "../x"}, {"name": "a" * 200}, CLICK, CLICK]) == parse_tools([CLICK])
    assert len(parse_tools([{"name": f"t{number}"} for number in range(MAX_TOOLS + 5)])) == MAX_TOOLS
    for nonsense in cast("list[object]", [None, 3, "click", {"tools": []}]):
        with pytest.raises(SandboxGone):
            parse_tools(nonsense)


def test_parsed_result_is_dumped_unchanged() -> None:
    document = {
        "content": [{"type": "text", "text": "done"}, {"type": "image", "data": "AAEC", "mimeType": "image/png"}],
        "structuredContent": {"x": 1},
        "isError": False,
        "_meta": {"paddock": {"files": ["/workspace/a"], "shot": '"1"'}},
    }
    result = parse_tool_result(document)
    assert result.content == (ToolResultText(text="done"), ToolResultImage(data=b"\0\1\2", mime="image/png"))
    assert result.structured == {"x": 1} and not result.failed and result.files == ("/workspace/a",)
    written = tool_result_to_mcp(result)
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
def test_part_of_unknown_type_is_rejected(part: object) -> None:
    with pytest.raises(SandboxGone, match="invalid tool result"):
        parse_tool_result({"content": [part]})


def test_files_are_bounded_and_only_paths_count() -> None:
    meta = {"paddock": {"files": ["/a", 3, None, "", *["/b"] * (2 * MAX_FILES)]}}
    assert len(parse_tool_result({"content": [], "_meta": meta}).files) < MAX_FILES
    assert parse_tool_result({"content": [], "_meta": {"paddock": {"files": "/etc"}}}).files == ()


def test_lone_surrogates_become_question_marks() -> None:
    result = parse_tool_result({"content": [{"type": "text", "text": "a\ud800b"}]})
    assert result.content == (ToolResultText(text="a?b"),)


@given(ANYTHING)
def test_any_result_is_parsed_or_rejected(document: object) -> None:
    for wrapped in (document, {"content": document}, {"content": [], "_meta": document, "structuredContent": document}):
        try:
            result = parse_tool_result(wrapped)
        except SandboxGone:
            continue
        json.dumps(tool_result_to_mcp(result))


@given(ANYTHING)
def test_any_tool_list_is_parsed_or_rejected(document: object) -> None:
    for wrapped in (document, [document], [{"name": "a", "_meta": document, "annotations": document}]):
        try:
            parse_tools(wrapped)
        except SandboxGone:
            continue


@pytest.mark.parametrize(
    "value", [json.loads("[" * 300 + "]" * 300), float("inf"), float("nan"), {"a": [float("-inf")]}]
)
def test_non_json_values_are_left_out(value: Any) -> None:
    assert parse_tool_result({"content": [], "structuredContent": {"a": value}}).structured is None
    (tool,) = parse_tools([{**CLICK, "inputSchema": {"a": value}}])
    assert tool.input_schema == {"type": "object"}

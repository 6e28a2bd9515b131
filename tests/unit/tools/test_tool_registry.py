"""Tools by kind of sandbox, and results of calls."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import pytest

from paddock.inside.tools.tool_context import ToolContext
from paddock.inside.tools.tool_registry import CallableTool, ToolRegistry, UnknownTool, tools_for_kind
from paddock.inside.tools.tool_result import MAX_TEXT, ToolCallResult, ToolError, omit_middle_of_text

FILES = {"read_file", "write_file", "list_directory", "create_directory", "move_file", "delete_file"}
LINUX = {"screenshot", "start_app", "stop_app", "input_text", "window_maximize", "window_minimize"}


class RegistryWithTools(ToolRegistry):
    """A registry of given tools."""

    def __init__(self, *tools: CallableTool) -> None:
        super().__init__(ToolContext("/"), "code")
        self._tools = {tool.name: tool for tool in tools}


def tool(name: str, function: Any, **more: Any) -> CallableTool:
    return CallableTool(name, "Does something.", {"n": {"type": "integer", "default": 1}}, [], function, **more)


@pytest.mark.parametrize(
    ("kind", "display", "some"),
    [
        ("code", "", set()),
        ("code", ":1", set()),
        ("linux", ":1", LINUX),
        ("linux", "", set()),
        ("unheard", ":1", set()),
    ],
)
def test_each_kind_has_its_tools(kind: str, display: str, some: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", display)
    names = {tool.name for tool in tools_for_kind(kind, ToolContext("/"))}
    assert names >= FILES | {"run_shell_command", "run_ipython_cell"} | some
    assert bool(names & LINUX) == bool(some)


@pytest.mark.parametrize(("kind", "promised"), [("linux", True), ("windows", False)])
def test_unusable_tools_are_not_offered(kind: str, promised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on Wine expose no accessibility tree; on others it needs gi in the image."""
    monkeypatch.setenv("DISPLAY", ":1")
    assert (
        "accessibility_tree" in {tool.name for tool in tools_for_kind(kind, ToolContext("/"), screen=True)}
    ) is promised
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "accessibility_tree" not in {tool.name for tool in tools_for_kind(kind, ToolContext("/"))}


def test_every_desktop_tool_has_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":1")
    for each in tools_for_kind("linux", ToolContext("/")):
        document = each.mcp_document()
        assert document["description"].endswith((".", ";")) or document["description"]
        assert set(document["inputSchema"]["required"]) <= set(document["inputSchema"]["properties"])
        assert not (each.read_only and each.input), each.name


def test_tool_failure_is_an_error_result() -> None:
    def fails(context: ToolContext, n: int) -> ToolCallResult:
        raise ToolError("the window is gone")

    def misses(context: ToolContext, n: int) -> ToolCallResult:
        raise FileNotFoundError(2, "No such file or directory", "/x")

    registry = RegistryWithTools(tool("fails", fails), tool("misses", misses))
    result = registry.call_tool("fails", {}).mcp_document()
    assert result == {"content": [{"type": "text", "text": "the window is gone"}], "isError": True}
    assert registry.call_tool("misses", {}).text == "no such file or directory: /x"
    assert registry.call_tool("fails", {"n": "one"}).text == "'n' must be a whole number, not the text 'one'"


def test_unknown_tool_error_suggests_similar_names() -> None:
    registry = RegistryWithTools(tool("read_file", None), tool("scroll", None))
    with pytest.raises(UnknownTool, match="did you mean read_file"):
        registry.call_tool("reed_file", {})
    with pytest.raises(UnknownTool, match="there are read_file, scroll"):
        registry.call_tool("zzz", {})


def test_input_tools_run_one_at_a_time() -> None:
    inside, most = [0], [0]
    meeting = threading.Barrier(4, timeout=10)

    def moves(context: ToolContext, n: int) -> ToolCallResult:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1
        return ToolCallResult("moved")

    def looks(context: ToolContext, n: int) -> ToolCallResult:
        meeting.wait()  # Passed only when all four are here at once.
        return ToolCallResult("looked")

    registry = RegistryWithTools(tool("moves", moves, input=True), tool("looks", looks))
    calls = [threading.Thread(target=registry.call_tool, args=(name, {})) for name in ["moves"] * 20 + ["looks"] * 4]
    for call in calls:
        call.start()
    for call in calls:
        call.join(10)
    assert most == [1] and not any(call.is_alive() for call in calls)


def test_result_contains_pictures_data_and_files() -> None:
    result = ToolCallResult("done", images=[(b"\xff\xd8", "image/jpeg")], structured={"n": 1}, files=["/x"], shot="ab")
    assert result.mcp_document() == {
        "content": [
            {"type": "text", "text": "done"},
            {"type": "image", "data": "/9g=", "mimeType": "image/jpeg"},
        ],
        "isError": False,
        "structuredContent": {"n": 1},
        "_meta": {"paddock": {"files": ["/x"], "shot": "ab"}},
    }


def test_long_text_is_shortened_with_a_note() -> None:
    text = omit_middle_of_text("a" * MAX_TEXT + "b" * 1000 + "c" * MAX_TEXT)
    assert text.startswith("aaa") and text.endswith("ccc") and "101001 characters left out" in text
    assert omit_middle_of_text("short") == "short"

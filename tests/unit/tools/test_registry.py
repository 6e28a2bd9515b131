"""Which tools a kind of box offers, and what becomes of a call."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import pytest

from paddock.inside.tools.context import Context
from paddock.inside.tools.registry import Registry, Tool, UnknownTool, offered
from paddock.inside.tools.results import MAX_TEXT, Result, ToolError, shorten

FILES = {"read_file", "write_file", "list_directory", "create_directory", "move_file", "delete_file"}
LINUX = {"screenshot", "start_app", "stop_app", "input_text", "window_maximize", "window_minimize"}


class Offering(Registry):
    """A registry of given tools."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__(Context("/"), "code")
        self._tools = {tool.name: tool for tool in tools}


def tool(name: str, function: Any, **more: Any) -> Tool:
    return Tool(name, "Does something.", {"n": {"type": "integer", "default": 1}}, [], function, **more)


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
def test_a_kind_has_its_tools(kind: str, display: str, some: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", display)
    names = {tool.name for tool in offered(kind, Context("/"))}
    assert names >= FILES | {"run_shell_command", "run_ipython_cell"} | some
    assert bool(names & LINUX) == bool(some)


@pytest.mark.parametrize(("kind", "promised"), [("linux", True), ("windows", False)])
def test_what_cannot_work_is_not_offered(kind: str, promised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on Wine tell nothing about themselves, and others only where the image has what asks them."""
    monkeypatch.setenv("DISPLAY", ":1")
    assert ("accessibility_tree" in {tool.name for tool in offered(kind, Context("/"), screen=True)}) is promised
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "accessibility_tree" not in {tool.name for tool in offered(kind, Context("/"))}


def test_every_tool_of_a_desktop_describes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":1")
    for each in offered("linux", Context("/")):
        document = each.document()
        assert document["description"].endswith((".", ";")) or document["description"]
        assert set(document["inputSchema"]["required"]) <= set(document["inputSchema"]["properties"])
        assert not (each.read_only and each.input), each.name


def test_what_a_tool_could_not_do_is_a_result() -> None:
    def fails(context: Context, n: int) -> Result:
        raise ToolError("the window is gone")

    def misses(context: Context, n: int) -> Result:
        raise FileNotFoundError(2, "No such file or directory", "/x")

    registry = Offering(tool("fails", fails), tool("misses", misses))
    result = registry.call("fails", {}).document()
    assert result == {"content": [{"type": "text", "text": "the window is gone"}], "isError": True}
    assert registry.call("misses", {}).text == "no such file or directory: /x"
    assert registry.call("fails", {"n": "one"}).text == "'n' must be a whole number, not the text 'one'"


def test_a_tool_that_is_not_there_names_those_like_it() -> None:
    registry = Offering(tool("read_file", None), tool("scroll", None))
    with pytest.raises(UnknownTool, match="did you mean read_file"):
        registry.call("reed_file", {})
    with pytest.raises(UnknownTool, match="there are read_file, scroll"):
        registry.call("zzz", {})


def test_of_the_tools_that_move_the_mouse_one_runs_at_a_time() -> None:
    inside, most = [0], [0]
    meeting = threading.Barrier(4, timeout=10)

    def moves(context: Context, n: int) -> Result:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1
        return Result("moved")

    def looks(context: Context, n: int) -> Result:
        meeting.wait()  # Passed only when all four are here at once.
        return Result("looked")

    registry = Offering(tool("moves", moves, input=True), tool("looks", looks))
    calls = [threading.Thread(target=registry.call, args=(name, {})) for name in ["moves"] * 20 + ["looks"] * 4]
    for call in calls:
        call.start()
    for call in calls:
        call.join(10)
    assert most == [1] and not any(call.is_alive() for call in calls)


def test_a_result_carries_pictures_data_and_files() -> None:
    result = Result("done", images=[(b"\xff\xd8", "image/jpeg")], structured={"n": 1}, files=["/x"], shot="ab")
    assert result.document() == {
        "content": [
            {"type": "text", "text": "done"},
            {"type": "image", "data": "/9g=", "mimeType": "image/jpeg"},
        ],
        "isError": False,
        "structuredContent": {"n": 1},
        "_meta": {"paddock": {"files": ["/x"], "shot": "ab"}},
    }


def test_text_that_is_too_long_says_what_was_left_out() -> None:
    text = shorten("a" * MAX_TEXT + "b" * 1000 + "c" * MAX_TEXT)
    assert text.startswith("aaa") and text.endswith("ccc") and "101001 characters left out" in text
    assert shorten("short") == "short"

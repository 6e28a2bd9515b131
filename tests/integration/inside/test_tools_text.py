"""Text of every script into real programs, the clipboard, blocking dialogs, and the accessibility tree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .daemon import eventually
from .probe_window import DEAF_OWNER, GREEDY
from .tool_client import ToolClient, desktop

PLANES = "".join(
    chr(plane * 0x10000 + code_point)
    for plane in range(17)
    for code_point in (0x0041, 0x03B1, 0x4E2D, 0x9FFF, 0xFFFD)
    if (plane * 0x10000 + code_point) & 0xFFFE != 0xFFFE
)
CHINESE = "你好世界。\n这是第二行。🦄👩‍👩‍👧‍👦 e\u0301 \u202eabc\u202c\n"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolClient]:
    with desktop(tmp_path_factory.mktemp("desktop")) as sandbox:
        yield sandbox


@pytest.fixture
def editor(tools: ToolClient) -> Iterator[int]:
    started = tools.data("start_app", app="Mousepad")
    yield started["pid"]
    tools.result("stop_app", app=str(started["pid"]), force=True)
    tools.shell("rm -rf ~/.local/share/Mousepad")  # It would ask whether to restore unsaved files.


def active_title(tools: ToolClient) -> str:
    return next((str(w["title"]) for w in tools.data("list_windows")["windows"] if w["active"]), "")


def save_as(tools: ToolClient, path: str) -> None:
    """Save a file as a person does: ctrl+s, the name, enter."""
    tools.call("press_keys", keys="ctrl+s")
    eventually(lambda: active_title(tools) == "Save As")
    tools.call("wait_for_settled_screen", quiet=0.2)
    tools.call("press_keys", keys="ctrl+a")
    tools.call("input_text", text=path)
    tools.call("wait_for_settled_screen", quiet=0.2)  # The dialog looks into the directory first.
    tools.call("press_keys", keys="enter")
    eventually(lambda: path.rpartition("/")[2] in active_title(tools))


def test_chinese_text_is_typed_saved_and_read_back(tools: ToolClient, editor: int) -> None:
    result = tools.data("input_text", text=CHINESE)
    assert result["method"] == "clipboard" and result["characters"] == len(CHINESE) and result["screen_changed"] is True
    save_as(tools, "/home/agent/Documents/报告.txt")
    assert tools.call("read_file", path="~/Documents/报告.txt").rstrip("\n") == CHINESE.rstrip("\n")


def test_editor_receives_characters_of_all_unicode_planes(tools: ToolClient, editor: int) -> None:
    tools.call("input_text", text=PLANES)
    save_as(tools, "/home/agent/planes.txt")
    assert tools.call("read_file", path="~/planes.txt").rstrip("\n") == PLANES


def test_terminal_receives_characters_of_all_unicode_planes(tools: ToolClient) -> None:
    text = PLANES.replace(chr(0xFFFD), "")
    pid = tools.data("start_app", app="lxterminal -e 'cat > /tmp/typed'")["pid"]
    try:
        tools.call("wait_for_settled_screen", quiet=0.2)
        assert tools.data("input_text", text=text, enter=True)["method"] == "clipboard"
        tools.call("press_keys", keys="ctrl+d")
        eventually(lambda: tools.result("read_file", path="/tmp/typed").get("structuredContent", {}).get("size"))
        assert tools.call("read_file", path="/tmp/typed") == text + "\n"
    finally:
        tools.result("stop_app", app=str(pid), force=True)


def test_long_text_arrives_completely(tools: ToolClient, editor: int) -> None:
    text = "".join(f"{number} 号 🦄\n" for number in range(30_000))
    tools.call("input_text", text=text, wait=2)
    save_as(tools, "/home/agent/long.txt")
    assert tools.shell("sha256sum < ~/long.txt") == tools.shell("sha256sum", stdin=text)


def test_clipboard_is_restored(tools: ToolClient, editor: int) -> None:
    tools.call("set_clipboard", text="before 之前")
    tools.call("input_text", text="pasted 粘贴")
    assert tools.data("get_clipboard")["text"] == "before 之前"
    tools.call("press_keys", keys="ctrl+a ctrl+c")
    eventually(lambda: tools.data("get_clipboard")["text"] == "pasted 粘贴")
    tools.call("press_keys", keys="End")
    tools.call("input_text", text=" 更多")
    assert tools.data("get_clipboard")["text"] == "pasted 粘贴"


def test_program_pastes_the_clipboard_text(tools: ToolClient, editor: int) -> None:
    big = "字" * 200_000  # More than X sends in one piece.
    assert tools.data("set_clipboard", text=big)["length"] == len(big)
    tools.call("press_keys", keys="ctrl+v", wait=2)
    tools.call("press_keys", keys="ctrl+a ctrl+x", wait=2)
    eventually(lambda: "left out" in tools.data("get_clipboard")["text"])
    assert tools.data("get_clipboard")["length"] == len(big)


def test_blocking_dialog_is_reported(tools: ToolClient, editor: int) -> None:
    tools.call("input_text", text="unsaved")
    eventually(lambda: active_title(tools).startswith("*"))
    main = next(w["window"] for w in tools.data("list_windows")["windows"])
    close_result = tools.result("close_window", window=main)
    assert (
        close_result["structuredContent"]["closed"] is False
        and "must be answered first" in close_result["content"][0]["text"]
    )
    dialog = close_result["structuredContent"]["dialog"]
    assert dialog["dialog"] is True and dialog["dialog_of"] == main
    blocked = tools.result("activate_window", window=main)
    assert blocked["structuredContent"]["blocked_by"]["window"] == dialog["window"]
    assert "must be answered before the window takes input" in blocked["content"][0]["text"]
    stop_result = tools.data("stop_app", app=str(editor))
    assert stop_result["stopped"] == [] and stop_result["dialog"]["window"] == dialog["window"]
    assert tools.data("stop_app", app=str(editor), force=True)["stopped"] == [editor]
    assert tools.data("list_windows")["windows"] == []


def test_accessibility_tree_has_buttons_and_texts(tools: ToolClient, editor: int) -> None:
    tools.call("input_text", text="readable 可读")
    elements = tools.data("accessibility_tree", app="mousepad")["elements"]
    assert any(element["role"] == "menu" and element["name"] == "File" for element in elements)
    (text,) = [element for element in elements if element["role"] == "text"]
    assert text["text"] == "readable 可读" and "editable" in text["states"] and text["width"] > 100
    few = tools.result("accessibility_tree", limit=3)
    assert len(few["structuredContent"]["elements"]) == 3 and "cut after 3 elements" in few["content"][0]["text"]
    assert tools.call("accessibility_tree", app="nobody") == "no program exposes an accessibility tree"
    menu = next(element for element in elements if element["name"] == "Edit")
    tools.call("click_mouse", x=menu["x"] + 5, y=menu["y"] + 5)
    eventually(lambda: "'Undo'" in tools.call("accessibility_tree", app="mousepad"))
    tools.call("press_keys", keys="escape")


def test_unresponsive_clipboard_owner_is_reported(tools: ToolClient, editor: int) -> None:
    tools.call("write_file", path="/tmp/deaf.py", content=DEAF_OWNER)
    tools.shell("python3 /tmp/deaf.py > /tmp/deaf.out &")
    try:
        eventually(lambda: tools.shell("cat /tmp/deaf.out") == "owns\n")
        assert "does not answer" in tools.fails("get_clipboard")
        assert tools.data("input_text", text="还好")["method"] == "clipboard"
    finally:
        tools.shell("pkill -f deaf.py")


def test_huge_window_titles_are_cut(tools: ToolClient) -> None:
    tools.call("write_file", path="/tmp/greedy.py", content=GREEDY)
    started = tools.data("start_app", app="python3 /tmp/greedy.py")
    try:
        (window,) = tools.data("list_windows")["windows"]
        assert len(window["title"]) <= 200 and len(window["app"]) <= 200
        assert len(tools.call("window_maximize")) < 2000
    finally:
        tools.shell("pkill -f greedy.py")
    assert started["window"]["window"] == window["window"]

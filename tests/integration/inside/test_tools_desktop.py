"""The tools of a Linux desktop, checked with X and real programs."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from .daemon import eventually
from .probe_window import BLINKER, PROBE, RESIZE
from .tool_client import ToolClient, desktop, pictures_of

SHIFT, CONTROL, ALT = 1, 4, 8


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolClient]:
    with desktop(tmp_path_factory.mktemp("desktop")) as sandbox:
        for name, source in (("probe", PROBE), ("blinker", BLINKER), ("resize", RESIZE)):
            sandbox.call("write_file", path=f"/tmp/{name}.py", content=source)
        yield sandbox


class Probe:
    """A window that logs its events."""

    def __init__(self, tools: ToolClient, title: str) -> None:
        self._tools = tools
        self._log = f"/tmp/{title}.log"
        self._read = 0
        tools.call("write_file", path=self._log, content="")
        started = tools.data("start_app", app=f"python3 /tmp/probe.py {title} {self._log}")
        self.pid: int = started["pid"]
        self.window: str = started["window"]["window"]
        self.x: int = started["window"]["x"]
        self.y: int = started["window"]["y"]

    def events(self, count: int) -> list[str]:
        """Wait for this many events and return them."""
        lines: list[str] = []

        def enough() -> bool:
            lines[:] = self._tools.call("read_file", path=self._log).splitlines()[self._read :]
            return len(lines) >= count

        eventually(enough)
        self._read += len(lines)
        return lines


@pytest.fixture
def probe(tools: ToolClient, request: pytest.FixtureRequest) -> Iterator[Probe]:
    made = Probe(tools, f"probe-{abs(hash(request.node.name)) % 10**6}")
    yield made
    tools.result("stop_app", app=str(made.pid), force=True)


def size_of(picture: bytes) -> tuple[int, int]:
    """Return the size in the header of a JPEG or PNG."""
    if picture.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", picture[16:24])
        return width, height
    at = 2
    while picture[at + 1] not in (0xC0, 0xC2):
        at += 2 + struct.unpack(">H", picture[at + 2 : at + 4])[0]
    height, width = struct.unpack(">HH", picture[at + 5 : at + 9])
    return width, height


def test_a_screenshot_shows_the_screen(tools: ToolClient) -> None:
    result = tools.result("screenshot")
    (picture,) = pictures_of(result)
    assert picture.startswith(b"\xff\xd8") and size_of(picture) == (1280, 800)
    data = result["structuredContent"]
    assert (data["width"], data["height"], data["screen"]) == (1280, 800, {"width": 1280, "height": 800})
    assert result["_meta"]["paddock"]["shot"] == data["shot"]


def test_screenshot_has_the_requested_size_format_and_region(tools: ToolClient) -> None:
    region = {"x": 100, "y": 50, "width": 200, "height": 100}
    for arguments, size, magic in (
        ({"scale": 0.25}, (320, 200), b"\xff\xd8"),
        ({"max_width": 640, "format": "png"}, (640, 400), b"\x89PNG"),
        ({"region": region, "scale": 2}, (400, 200), b"\xff\xd8"),
    ):
        (picture,) = pictures_of(tools.result("screenshot", **arguments))
        assert picture.startswith(magic) and size_of(picture) == size
    (picture,) = pictures_of(tools.result("screenshot", format="webp"))
    assert picture[8:12] == b"WEBP"


def test_screenshot_shows_the_pointer_on_request(tools: ToolClient, probe: Probe) -> None:
    region = {"x": probe.x + 100, "y": probe.y + 100, "width": 40, "height": 40}
    tools.call("move_mouse", x=probe.x + 120, y=probe.y + 120)
    plain, again = (pictures_of(tools.result("screenshot", region=region, format="png")) for _ in range(2))
    pointed = pictures_of(tools.result("screenshot", region=region, format="png", pointer=True))
    assert plain == again != pointed
    tools.call("move_mouse", x=probe.x + 105, y=probe.y + 105)
    assert pictures_of(tools.result("screenshot", region=region, format="png", pointer=True)) != pointed


def test_screenshot_is_saved_to_a_path(tools: ToolClient) -> None:
    result = tools.result("screenshot", path="~/shots/one.jpg", max_width=320)
    assert result["_meta"]["paddock"]["files"] == ["/home/agent/shots/one.jpg"]
    assert pictures_of(tools.result("read_file", path="~/shots/one.jpg")) == pictures_of(result)


def test_clicks_reach_their_points(tools: ToolClient, probe: Probe) -> None:
    x, y = probe.x + 50, probe.y + 60
    text = tools.call("click_mouse", x=x, y=y)
    assert f"clicked the left button at {x}, {y}; the screen changed" in text
    assert probe.events(2) == [f"press 1 {x} {y} 0", f"release 1 {x} {y}"]
    assert tools.data("get_cursor_position") == {"x": x, "y": y}
    tools.call("click_mouse", button="right", clicks=2)
    assert [line.split()[1] for line in probe.events(4)] == ["3", "3", "3", "3"]
    tools.call("click_mouse", x=x, y=y, modifiers=["ctrl", "shift"])
    assert probe.events(4)[:3] == ["key Control_L 0", f"key Shift_L {CONTROL}", f"press 1 {x} {y} {CONTROL | SHIFT}"]
    tools.call("click_mouse", x=x, y=y)
    assert probe.events(2)[0] == f"press 1 {x} {y} 0"


def test_screenshot_points_map_to_the_screen(tools: ToolClient, probe: Probe) -> None:
    small = tools.data("screenshot", scale=0.5)["shot"]
    tools.call("click_mouse", x=(probe.x + 100) / 2, y=(probe.y + 100) / 2, shot=small)
    pressed = probe.events(2)[0].split()
    assert abs(int(pressed[2]) - probe.x - 100) <= 1 and abs(int(pressed[3]) - probe.y - 100) <= 1
    region = {"x": probe.x, "y": probe.y, "width": 100, "height": 50}
    zoomed = tools.data("screenshot", region=region, scale=4)["shot"]
    tools.call("click_mouse", x=40, y=80, shot=zoomed)
    assert probe.events(2)[0] == f"press 1 {probe.x + 10} {probe.y + 20} 0"
    assert "outside the picture, which is 400x200" in tools.fails("click_mouse", x=400, y=5, shot=zoomed)
    assert "take a new one" in tools.fails("click_mouse", x=1, y=1, shot="none")


def test_mouse_drags_and_scrolls(tools: ToolClient, probe: Probe) -> None:
    x, y = probe.x + 20, probe.y + 30
    tools.call("drag_mouse", x=x, y=y, to_x=x + 100, to_y=y + 50, seconds=0.1)
    events = probe.events(3)
    assert events[0] == f"press 1 {x} {y} 0" and events[-1] == f"release 1 {x + 100} {y + 50}"
    assert len([line for line in events if line.startswith("move")]) >= 3
    tools.call("scroll", x=x, y=y, direction="up", amount=2)
    assert [line.split()[1] for line in probe.events(4) if line.startswith("press")] == ["4", "4"]
    tools.call("scroll", amount=1)
    assert probe.events(2)[0] == f"press 5 {x} {y} 0"


@pytest.mark.parametrize("point", [(1280, 5), (5, 800), (-1, 5), (1e9, 1e9)])
def test_points_off_the_screen_are_refused_with_its_size(tools: ToolClient, point: tuple[float, float]) -> None:
    where = tools.data("get_cursor_position")
    for tool in ("click_mouse", "move_mouse", "scroll"):
        assert "off the screen, which is 1280x800" in tools.fails(tool, x=point[0], y=point[1])
    assert "1280x800" in tools.fails("drag_mouse", x=1, y=1, to_x=point[0], to_y=point[1])
    assert tools.data("get_cursor_position") == where


def test_invalid_points_are_refused(tools: ToolClient) -> None:
    assert "give both x and y" in tools.fails("click_mouse", x=5)
    assert tools.refuses("click_mouse", x="5", y=5) == "'x' must be a number, not the text '5'"
    assert "must be one of left, middle" in tools.refuses("click_mouse", button="top")
    assert "is not a modifier; the modifiers are: ctrl" in tools.fails("click_mouse", modifiers=["q"])
    assert "off the screen" in tools.fails("screenshot", region={"x": 2000, "y": 0, "width": 5, "height": 5})


def test_keys_are_pressed_together_and_in_sequence(tools: ToolClient, probe: Probe) -> None:
    tools.call("press_keys", keys="ctrl+shift+t F5 enter")
    assert probe.events(5) == [
        "key Control_L 0", f"key Shift_L {CONTROL}", f"key T {CONTROL | SHIFT}", "key F5 0", "key Return 0",
    ]  # fmt: skip
    tools.call("press_keys", keys="A ctrl+A", repeat=1)
    assert probe.events(4) == ["key Shift_L 0", f"key A {SHIFT}", "key Control_L 0", f"key a {CONTROL}"]
    tools.call("press_keys", keys="alt+Page_Down", repeat=2)
    assert probe.events(4)[1] in (f"key Page_Down {ALT}", f"key Next {ALT}")


@pytest.mark.parametrize(
    ("keys", "suggestion"),
    [
        ("entr", "there is no key 'entr'; did you mean enter"),
        ("ctrl+shfit+t", "did you mean shift"),
        ("qqqqqq", "keys are named like enter"),
        ("ctrl+", "write it like ctrl+shift+t"),
        ("中", "input_text writes any character"),
        ("   ", "the space bar is called space"),
    ],
)
def test_unknown_keys_get_a_suggestion(tools: ToolClient, probe: Probe, keys: str, suggestion: str) -> None:
    assert suggestion in tools.fails("press_keys", keys=keys)
    tools.call("press_keys", keys="x")
    assert probe.events(1) == ["key x 0"]


def test_plain_text_is_typed(tools: ToolClient, probe: Probe) -> None:
    result = tools.data("input_text", text="Az 1!\t\n")
    assert result["method"] == "keys" and result["focus"]["window"] == probe.window
    keys = [line.split()[1] for line in probe.events(9) if "Shift_L" not in line]
    assert keys == ["A", "z", "space", "1", "exclam", "Tab", "Return"]


def test_window_without_text_input_is_reported(tools: ToolClient, probe: Probe) -> None:
    tools.call("set_clipboard", text="kept")
    assert "did not take the text; click into a text field" in tools.fails("input_text", text="你好")
    assert tools.data("get_clipboard")["text"] == "kept"
    assert "has no key for '你'" in tools.fails("input_text", text="a你", method="keys")


def test_windows_are_listed_and_changed(tools: ToolClient, probe: Probe) -> None:
    def now() -> dict[str, object]:
        windows = tools.data("list_windows")["windows"]
        return next(dict(window) for window in windows if window["window"] == probe.window)

    assert now()["active"] is True and now()["pid"] == probe.pid and now()["app"] == "Probe"
    assert tools.data("window_maximize")["width"] == 1280
    assert now()["maximized"] is True
    tools.call("window_restore", window=probe.window)
    usual = now()
    hidden = tools.call("window_minimize", window=probe.window)
    assert now()["minimized"] is True and now()["active"] is False
    assert " at " not in hidden, "what is hidden has no place"
    restored = tools.data("window_restore", window=probe.window)
    assert (restored["x"], restored["y"]) == (usual["x"], usual["y"]), "where it is, and not where it comes from"
    assert (now()["minimized"], now()["maximized"], now()["width"]) == (False, False, 400)
    moved = tools.data("resize_window", window=probe.window, width=500, height=350, x=30, y=60)
    assert (moved["width"], moved["height"]) == (500, 350) and abs(moved["x"] - 30) < 10
    other = Probe(tools, "other")
    assert now()["active"] is False
    assert tools.data("activate_window", window=probe.window)["active"] is True
    assert "several windows" in tools.fails("activate_window", window="o")
    assert "no window has 'nothing' in its title" in tools.fails("activate_window", window="nothing")
    assert tools.data("close_window", window="other")["closed"] is True
    assert "there is no window" in tools.fails("activate_window", window=other.window)
    assert "give width and height" in tools.fails("resize_window", window=probe.window)


def test_vanished_window_is_reported(tools: ToolClient) -> None:
    probe = Probe(tools, "vanishing")
    tools.shell(f"kill -9 {probe.pid}")
    eventually(lambda: "vanishing" not in tools.call("list_windows"))
    for tool in ("activate_window", "close_window", "window_maximize", "window_minimize", "resize_window"):
        more = {"width": 100} if tool == "resize_window" else {}
        assert "there is no window" in tools.fails(tool, window=probe.window, **more)


def test_programs_are_started_listed_and_stopped(tools: ToolClient) -> None:
    names = [app["name"] for app in tools.data("list_installed_apps")["apps"]]
    assert "LXTerminal" in names and "Mousepad" in names
    started = tools.data("start_app", app="LXTerminal")
    assert started["window"]["app"] == "Lxterminal" and started["window"]["active"] is True
    assert [app["pid"] for app in tools.data("list_apps")["apps"]] == [started["pid"]]
    assert tools.data("stop_app", app="lxterminal")["stopped"] == [started["pid"]]
    assert tools.data("list_apps")["apps"] == []


def test_start_failures_are_explained(tools: ToolClient) -> None:
    assert "list_installed_apps" in tools.fails("start_app", app="nonsense")
    error_text = tools.fails("start_app", app="sh -c 'echo no such thing >&2; exit 4'")
    assert error_text == "sh exited at once with code 4: no such thing"
    assert "No closing quotation" in tools.fails("start_app", app="sh -c 'oh")
    assert "no window yet" in tools.call("start_app", app="sleep 30", wait=0.1)
    assert tools.data("stop_app", app="sleep", force=True)["stopped"]
    assert "no program 'sleep' is running" in tools.fails("stop_app", app="sleep")


def test_start_handled_by_a_running_instance_names_its_window(tools: ToolClient) -> None:
    tools.call("write_file", path="/workspace/a.txt", content="a")
    tools.call("write_file", path="/workspace/b.txt", content="b")
    window = tools.data("start_app", app="mousepad", arguments=["/workspace/a.txt"])["window"]["window"]
    try:
        started_at = time.monotonic()
        start_result = tools.result("start_app", app="mousepad", arguments=["/workspace/b.txt"])
        assert time.monotonic() - started_at < 8
        taken = start_result["structuredContent"]["window"]
        assert "b.txt" in taken["title"] and taken["active"] is True
        assert taken["window"] != window or "was already running" in start_result["content"][0]["text"]
    finally:
        tools.call("stop_app", app="mousepad", force=True)


def test_program_exiting_without_a_window_is_reported(tools: ToolClient) -> None:
    started_at = time.monotonic()
    assert tools.call("start_app", app="true") == "true has already exited (exit code 0) without a window"
    assert time.monotonic() - started_at < 5
    left = tools.call("start_app", app="sh -c 'sleep 30 & exit 0'", wait=2.5)
    assert "has already exited" in left and time.monotonic() - started_at > 2.5, "what it left may still show something"
    tools.call("stop_app", app="sleep", force=True)


def test_blocking_dialog_is_activated(tools: ToolClient) -> None:
    tools.call("start_app", app="mousepad")
    tools.call("input_text", text="not saved")
    tools.call("start_app", app="lxterminal")
    tools.call("window_maximize")
    try:
        close_result = tools.result("close_window", window="Mousepad")
        dialog = close_result["structuredContent"]["dialog"]
        assert "must be answered first and is now in front" in close_result["content"][0]["text"]
        assert dialog["active"] is True and tools.data("list_windows")["windows"][-1]["window"] == dialog["window"]
        tools.call("activate_window", window="lxterminal")
        again = tools.data("stop_app", app="mousepad")
        assert again["stopped"] == [] and again["dialog"]["active"] is True
    finally:
        tools.call("stop_app", app="mousepad", force=True)
        tools.call("stop_app", app="lxterminal", force=True)


def test_new_window_without_focus_is_reported(tools: ToolClient, probe: Probe) -> None:
    assert "has opened" not in tools.call("press_keys", keys="a")
    text = tools.call("press_keys", keys="F9", wait=5)
    assert "'back\\slash' (0x" in text and "has opened but is not active" in text
    assert "'back\\slash'" in tools.call("list_windows"), "a title is shown as it is"


def test_wait_ends_when_the_screen_is_settled(tools: ToolClient) -> None:
    settled = tools.data("wait_for_settled_screen", quiet=0.1)
    assert settled["settled"] is True and settled["seconds"] >= 0.1
    pid = tools.data("start_app", app="python3 /tmp/blinker.py", wait=0)["pid"]
    try:
        eventually(lambda: not tools.data("wait_for_settled_screen", quiet=0.3, timeout=0.4)["settled"])
    finally:
        tools.call("stop_app", app=str(pid), force=True)
    assert tools.data("wait_for_settled_screen", quiet=0.1)["settled"] is True


def test_screen_size_may_change(tools: ToolClient) -> None:
    old = tools.data("screenshot")["shot"]
    tools.shell("python3 /tmp/resize.py 1024x768")
    try:
        assert tools.data("get_screen_size") == {"width": 1024, "height": 768}
        (picture,) = pictures_of(tools.result("screenshot"))
        assert size_of(picture) == (1024, 768)
        assert "the screen is now 1024x768" in tools.fails("click_mouse", x=5, y=5, shot=old)
        assert "off the screen, which is 1024x768" in tools.fails("move_mouse", x=1100, y=5)
    finally:
        tools.shell("python3 /tmp/resize.py 1280x800")
    assert tools.data("get_screen_size") == {"width": 1280, "height": 800}

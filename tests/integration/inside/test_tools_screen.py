"""The screen over HTTP: pictures that cost nothing while nothing changes, streams, and X servers that die."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from .daemon import eventually
from .probe_window import BLINKER
from .tool_client import ToolClient, desktop


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolClient]:
    with desktop(tmp_path_factory.mktemp("desktop")) as sandbox:
        sandbox.call("write_file", path="/tmp/blinker.py", content=BLINKER)
        # The clock in the panel changes the screen when it pleases.
        sandbox.ask("POST", "/paddock/services/stop", {"names": ["panel"]})
        sandbox.call("wait_for_settled_screen", quiet=0.3)
        yield sandbox


def next_frame(response: http.client.HTTPResponse) -> dict[str, Any]:
    line = response.readline()
    assert line, "the stream ended"
    head: dict[str, Any] = json.loads(line)
    data = response.read(head["bytes"])
    assert data.startswith(b"\xff\xd8") and len(data) == head["bytes"]
    return head


def frames_until_silence(response: http.client.HTTPResponse) -> int:
    count = 0
    try:
        while True:
            next_frame(response)
            count += 1
    except TimeoutError:
        return count


def blink(tools: ToolClient) -> int:
    pid: int = tools.data("start_app", app="python3 /tmp/blinker.py", wait=0)["pid"]
    return pid


def test_unchanged_screen_is_not_sent_again(tools: ToolClient) -> None:
    first = tools.ask("GET", "/screen/shot")
    assert first.status == 200 and first.headers["Content-Type"] == "image/jpeg"
    assert (first.headers["X-Paddock-Width"], first.headers["X-Paddock-Height"]) == ("1280", "800")
    again = tools.ask("GET", "/screen/shot", If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    other = tools.ask("GET", "/screen/shot?scale=0.5", If_None_Match=first.headers["ETag"])
    assert other.status == 200 and other.headers["X-Paddock-Width"] == "640"
    pid = tools.data("start_app", app="lxterminal")["pid"]
    changed = tools.ask("GET", "/screen/shot", If_None_Match=first.headers["ETag"])
    assert changed.status == 200 and changed.headers["ETag"] != first.headers["ETag"] and changed.body != first.body
    tools.call("stop_app", app=str(pid), force=True)


@pytest.mark.parametrize(
    ("query", "expected_message"),
    [
        ("format=bmp", "jpeg, png or webp"),
        ("quality=0", "quality must be 1 to 100"),
        ("quality=x", "must be a whole number"),
        ("scale=9", "scale must be a number from 0.01 to 4"),
        ("scale=nan", "scale must be a number"),
        ("region=1,2,3", "region must be x,y,width,height"),
        ("region=-1,0,5,5", "region must be x,y,width,height"),
    ],
)
def test_invalid_screenshot_options_are_refused(tools: ToolClient, query: str, expected_message: str) -> None:
    answer = tools.ask("GET", f"/screen/shot?{query}")
    assert answer.status == 400 and expected_message in answer.json()["message"]


def test_a_region_off_the_screen_is_refused(tools: ToolClient) -> None:
    answer = tools.ask("GET", "/screen/shot?region=5000,0,10,10")
    assert answer.status == 400 and "which is 1280x800" in answer.json()["message"]


def test_frames_are_sent_only_when_the_screen_changes(tools: ToolClient) -> None:
    with tools.stream("/screen/frames?width=320&fps=20", timeout=0.6) as response:
        first = next_frame(response)
        assert (first["width"], first["height"]) == (320, 200) and abs(first["at"] - time.time()) < 60
        assert frames_until_silence(response) < 5, "what settled at first may still come; then nothing does"
    pid = blink(tools)
    try:
        with tools.stream("/screen/frames?width=320&fps=20") as response:
            numbers = [next_frame(response)["sequence"] for _ in range(5)]
            assert numbers == sorted(set(numbers))
    finally:
        tools.call("stop_app", app=str(pid), force=True)


def test_frame_rate_is_bounded_and_frames_are_shared(tools: ToolClient) -> None:
    pid = blink(tools)
    seen: dict[int, list[tuple[int, float]]] = {0: [], 1: []}

    def watch(number: int) -> None:
        with tools.stream("/screen/frames?width=160&fps=5") as response:
            while len(seen[number]) < 6:
                head = next_frame(response)
                seen[number].append((head["sequence"], head["at"]))

    try:
        watchers = [threading.Thread(target=watch, args=(number,)) for number in seen]
        for watcher in watchers:
            watcher.start()
        for watcher in watchers:
            watcher.join(20)
    finally:
        tools.call("stop_app", app=str(pid), force=True)
    for frames in seen.values():
        gaps = [later - earlier for (_, earlier), (_, later) in pairwise(frames)]
        assert len(gaps) == 5 and sum(gaps) > 5 * 0.18
    assert len(set(seen[0]) & set(seen[1])) >= 4, "both saw the same pictures"


@pytest.mark.parametrize("query", ["width=99999", "quality=100", "fps=61", "width=x"])
def test_invalid_frame_options_are_refused(tools: ToolClient, query: str) -> None:
    assert tools.ask("GET", f"/screen/frames?{query}").status == 400


def test_text_input_needs_an_active_window(tools: ToolClient) -> None:
    tools.ask("POST", "/paddock/services/stop", {"names": ["files"]})
    eventually(lambda: tools.data("get_screen_size"))
    eventually(lambda: "use activate_window first" in str(tools.result("input_text", text="x")))
    assert "no window is active; choose one: none" in tools.fails("window_maximize")
    tools.ask("POST", "/paddock/services/start", {"names": ["files"]})


def test_killed_x_server_is_reported_and_its_successor_used(tools: ToolClient) -> None:
    tools.call("screenshot")
    with tools.stream("/screen/frames?width=64&fps=5", timeout=20) as response:
        next_frame(response)
        tools.shell("kill -9 $(pidof Xvnc)")
        killed = time.time()
        # The stream ends cleanly, or goes on with the successor's pictures when that was there in time.
        while response.peek(1):
            if next_frame(response)["at"] > killed:
                break
    eventually(lambda: not tools.result("screenshot")["isError"], 20)
    tools.ask("POST", "/paddock/services/start", {})
    tools.call("wait_for_settled_screen", quiet=0.2)
    started = tools.data("start_app", app="lxterminal")
    assert tools.data("input_text", text="你好")["focus"]["window"] == started["window"]["window"]
    with tools.stream("/screen/frames?width=64&fps=5") as response:
        next_frame(response)


def test_stopped_desktop_is_reported(tools: ToolClient) -> None:
    tools.ask("POST", "/paddock/services/stop", {})
    try:
        for tool, arguments in (
            ("screenshot", {}), ("get_screen_size", {}), ("click_mouse", {"x": 1, "y": 1}), ("list_windows", {}),
            ("press_keys", {"keys": "a"}), ("input_text", {"text": "a"}), ("get_clipboard", {}), ("list_apps", {}),
            ("set_clipboard", {"text": "a"}), ("start_app", {"app": "lxterminal"}), ("wait_for_settled_screen", {}),
        ):  # fmt: skip
            error_text = tools.fails(tool, **arguments)
            assert "the desktop is not running" in error_text, tool
            assert "start it with POST /v1/sandboxes/{id}/desktop" in error_text, tool
        for target in ("/screen/shot", "/screen/frames"):
            answer = tools.ask("GET", target)
            assert answer.status == 503 and "the desktop is not running" in answer.json()["message"]
        assert tools.shell("echo still here") == "still here\n"
    finally:
        tools.ask("POST", "/paddock/services/start", {})
    assert not tools.result("screenshot")["isError"]


def test_screenshot_waits_until_a_new_desktop_is_drawn(tools: ToolClient) -> None:
    tools.ask("POST", "/paddock/services/stop", {})
    tools.ask("POST", "/paddock/services/start", {"names": ["display"]})
    pid = blink(tools)
    try:
        eventually(lambda: tools.data("list_windows"))
        started_at = time.monotonic()
        assert tools.ask("GET", "/screen/shot").status == 200
        assert 0.8 < time.monotonic() - started_at < 3, "a screen that never rests is shown all the same"
    finally:
        tools.call("stop_app", app=str(pid), force=True)
        tools.ask("POST", "/paddock/services/start", {})
    tools.call("wait_for_settled_screen", quiet=0.3)
    tools.shell("touch -d '1 minute ago' /tmp/.X11-unix/X1")
    started_at = time.monotonic()
    tools.call("screenshot")
    assert time.monotonic() - started_at < 0.8


def test_hung_x_server_times_out(tools: ToolClient) -> None:
    tools.call("screenshot")
    tools.shell("kill -STOP $(pidof Xvnc)")
    started_at = time.monotonic()
    try:
        assert "does not answer" in tools.fails("screenshot")
        assert "does not answer" in tools.fails("get_clipboard")
        assert time.monotonic() - started_at < 15
    finally:
        tools.shell("kill -CONT $(pidof Xvnc)")
    eventually(lambda: not tools.result("screenshot")["isError"])

"""A job at a Linux desktop, done by tools alone: open the editor, write Chinese, save, and read it back."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.boxes import Box, box_of, data_of, read_png, screens_server
from tests.serving import Server, eventually

WORDS = "春眠不觉晓\n处处闻啼鸟。 🐦\nÀ bientôt — до свидания"
WHITE = (255, 255, 255)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux") as running:
        yield running


@pytest.fixture
def box(client: httpx.Client) -> Iterator[Box]:
    with box_of(client, "linux") as made:
        yield made


def windows(box: Box) -> list[str]:
    return [window["title"] for window in box.call("list_windows")["structuredContent"]["windows"]]


def white(box: Box) -> float:
    """How much of the screen is."""
    return read_png(data_of(box.call("screenshot", format="png", scale=0.25))).share(WHITE)


def test_text_written_in_the_editor_is_in_the_file(box: Box) -> None:
    started = box.call("start_app", app="mousepad")
    assert "Mousepad" in started["structuredContent"]["window"]["title"]
    box.call("input_text", text=WORDS)
    box.call("press_keys", keys="ctrl+s")
    eventually(lambda: any("Save" in title for title in windows(box)))
    box.call("wait_for_settled_screen")
    box.call("press_keys", keys="ctrl+a")
    box.call("input_text", text="/home/agent/Documents/诗.txt")
    box.call("wait_for_settled_screen")  # The dialog looks for files that begin so, and takes no key meanwhile.
    box.call("press_keys", keys="enter")
    eventually(lambda: box.post("read_file", {"path": "/home/agent/Documents/诗.txt"}).json()["isError"] is False)
    assert WORDS in box.text("read_file", path="/home/agent/Documents/诗.txt")
    eventually(lambda: any("诗.txt" in title for title in windows(box)))
    box.call("stop_app", app="mousepad")
    assert windows(box) == []


def test_the_window_does_what_it_is_told_and_the_screen_shows_it(box: Box) -> None:
    box.call("start_app", app="mousepad")
    box.call("window_maximize")
    eventually(lambda: white(box) > 0.6)  # An empty page fills the screen.
    box.call("window_minimize")
    eventually(lambda: white(box) < 0.2)
    box.call("window_restore", window="Mousepad")
    assert "Mousepad" in " ".join(windows(box))


def test_a_sandbox_says_of_which_kind_it_is(box: Box) -> None:
    said = box.client.get(box.path).json()
    assert said["extensions"]["paddock.kind"] == "linux"
    assert box.text("run_shell_command", command="echo $PADDOCK_KIND") == "linux"


def test_a_picture_of_the_screen_becomes_a_file(box: Box) -> None:
    moved = box.move({"screenshot": True}, box, "/workspace/")
    assert (moved["type"], moved["destinationPath"]) == ("screenshot", "/workspace/screenshot.png")
    picture = read_png(data_of(box.call("read_file", path="/workspace/screenshot.png")))
    assert (picture.width, picture.height) == (1280, 800)
    [event] = box.events("file.moved")
    assert event["data"]["sha256"] == moved["sha256"]

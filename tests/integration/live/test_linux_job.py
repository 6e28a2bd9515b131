"""A job at a Linux desktop, done by tools alone: open the editor, write Chinese, save, and read it back."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, read_png, sandbox_of, screens_server
from tests.support.server import Server, eventually

WORDS = "春眠不觉晓\n处处闻啼鸟。 🐦\nÀ bientôt — до свидания"
WHITE = (255, 255, 255)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux") as running:
        yield running


@pytest.fixture
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "linux") as made:
        yield made


def windows(sandbox: Sandbox) -> list[str]:
    return [window["title"] for window in sandbox.call("list_windows")["structuredContent"]["windows"]]


def white(sandbox: Sandbox) -> float:
    """Return the white share of the screen."""
    return read_png(data_of(sandbox.call("screenshot", format="png", scale=0.25))).share(WHITE)


def test_text_written_in_the_editor_is_in_the_file(sandbox: Sandbox) -> None:
    started = sandbox.call("start_app", app="mousepad")
    assert "Mousepad" in started["structuredContent"]["window"]["title"]
    sandbox.call("input_text", text=WORDS)
    sandbox.call("press_keys", keys="ctrl+s")
    eventually(lambda: any("Save" in title for title in windows(sandbox)))
    sandbox.call("wait_for_settled_screen")
    sandbox.call("press_keys", keys="ctrl+a")
    sandbox.call("input_text", text="/home/agent/Documents/诗.txt")
    sandbox.call("wait_for_settled_screen")  # The dialog looks for files that begin so, and takes no key meanwhile.
    sandbox.call("press_keys", keys="enter")
    eventually(lambda: sandbox.post("read_file", {"path": "/home/agent/Documents/诗.txt"}).json()["isError"] is False)
    assert WORDS in sandbox.text("read_file", path="/home/agent/Documents/诗.txt")
    eventually(lambda: any("诗.txt" in title for title in windows(sandbox)))
    sandbox.call("stop_app", app="mousepad")
    assert windows(sandbox) == []


def test_window_changes_are_visible_on_the_screen(sandbox: Sandbox) -> None:
    sandbox.call("start_app", app="mousepad")
    sandbox.call("window_maximize")
    eventually(lambda: white(sandbox) > 0.6)  # An empty page fills the screen.
    sandbox.call("window_minimize")
    eventually(lambda: white(sandbox) < 0.2)
    sandbox.call("window_restore", window="Mousepad")
    assert "Mousepad" in " ".join(windows(sandbox))


def test_sandbox_document_has_its_kind(sandbox: Sandbox) -> None:
    document = sandbox.client.get(sandbox.path).json()
    assert document["extensions"]["paddock.kind"] == "linux"
    assert sandbox.text("run_shell_command", command="echo $PADDOCK_KIND") == "linux"


def test_picture_of_the_screen_is_saved_as_a_file(sandbox: Sandbox) -> None:
    moved = sandbox.move({"screenshot": True}, sandbox, "/workspace/")
    assert (moved["type"], moved["destinationPath"]) == ("screenshot", "/workspace/screenshot.png")
    picture = read_png(data_of(sandbox.call("read_file", path="/workspace/screenshot.png")))
    assert (picture.width, picture.height) == (1280, 800)
    [event] = sandbox.events("file.moved")
    assert event["data"]["sha256"] == moved["sha256"]

"""A job on Windows (Wine), done by tools alone: notepad, its window, a file that it saves, and cmd."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, read_png, sandbox_of, screens_server
from tests.support.server import Server, eventually

WORDS = "你好世界\nGrüße aus Wine"
WHITE = (255, 255, 255)
NOTES = r"C:\users\agent\Documents\笔记.txt"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "windows") as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "windows") as made:
        yield made


@pytest.fixture(autouse=True)
def closed(sandbox: Sandbox) -> Iterator[None]:
    yield
    for app in sandbox.call("list_apps")["structuredContent"]["apps"]:
        sandbox.post("stop_app", {"app": str(app["pid"]), "force": True})


def titles(sandbox: Sandbox) -> list[str]:
    return [window["title"] for window in sandbox.call("list_windows")["structuredContent"]["windows"]]


def white(sandbox: Sandbox) -> float:
    """Return the white share of the screen."""
    return read_png(data_of(sandbox.call("screenshot", format="png", scale=0.25))).share(WHITE)


def test_text_written_in_notepad_is_in_the_file(sandbox: Sandbox) -> None:
    started = sandbox.call("start_app", app="notepad")
    assert "Notepad" in started["structuredContent"]["window"]["title"]
    sandbox.call("input_text", text=WORDS)
    sandbox.call("press_keys", keys="ctrl+s")
    eventually(lambda: "Save As" in titles(sandbox))
    sandbox.call("activate_window", window="Save As")

    def named() -> bool:
        """A dialog is there a moment before it takes keys."""
        sandbox.call("press_keys", keys="ctrl+a")
        return not sandbox.post("input_text", {"text": NOTES}).json()["isError"]

    eventually(named)
    sandbox.call("press_keys", keys="enter")
    eventually(lambda: "笔记.txt - Notepad" in titles(sandbox))
    assert sandbox.text("read_file", path=NOTES).replace("\r\n", "\n") == WORDS
    assert sandbox.text("run_shell_command", command=f"type {NOTES}") == WORDS
    sandbox.call("stop_app", app="notepad")
    assert titles(sandbox) == []


def test_a_window_is_maximised_minimised_and_restored(sandbox: Sandbox) -> None:
    sandbox.call("start_app", app=r"C:\windows\notepad.exe")
    usual = sandbox.call("list_windows")["structuredContent"]["windows"][0]
    sandbox.call("window_maximize")
    eventually(lambda: white(sandbox) > 0.6)  # An empty page fills the screen.
    sandbox.call("window_minimize")
    eventually(lambda: white(sandbox) < 0.2)
    sandbox.call("window_restore", window="Notepad")

    def restored() -> bool:
        now = sandbox.call("list_windows")["structuredContent"]["windows"][0]
        return (now["width"], now["height"]) == (usual["width"], usual["height"])

    eventually(restored)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo 你好 🙂 é", "你好 🙂 é"),
        ('echo "quoted words" & echo two', '"quoted words" \ntwo'),
        ("for %i in (1 2) do echo %i", "1\n2"),
        ("echo 一> C:\\一.txt && type C:\\一.txt", "一"),
        ("echo first\necho second", "first\nsecond"),
        ("cd", "Z:\\workspace"),
    ],
)
def test_cmd_runs_and_its_output_is_text(sandbox: Sandbox, command: str, output: str) -> None:
    assert sandbox.text("run_shell_command", command=command).strip() == output


def test_cmd_returns_exit_code_and_error_output(sandbox: Sandbox) -> None:
    result = sandbox.call("run_shell_command", command="exit /b 7")
    assert result["structuredContent"]["exit_code"] == 7
    assert "Can't recognize" in sandbox.text("run_shell_command", command="no-such-program")


def test_endless_command_is_terminated(sandbox: Sandbox) -> None:
    assert "(timeout)" in sandbox.fails("run_shell_command", command="ping -n 60 127.0.0.1", timeout=0.5)
    left = sandbox.text("run_shell_command", command="ps -eo comm | grep -ci '^ping' || true", shell="bash")
    assert left.splitlines()[0] == "0"


def test_a_warm_cmd_answers_quickly(sandbox: Sandbox) -> None:
    sandbox.call("run_shell_command", command="ver")

    def seconds() -> float:
        began = time.perf_counter()
        sandbox.call("run_shell_command", command="ver")
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 0.5


def test_windows_and_unix_paths_name_the_same_files(sandbox: Sandbox) -> None:
    written = sandbox.call("write_file", path=r"C:\data\Zahlen.csv", content="1;2")
    assert written["content"][0]["text"] == r"wrote 3 bytes to C:\data\Zahlen.csv"
    assert sandbox.text("read_file", path=r"c:\DATA\zahlen.CSV") == "1;2"
    moved = sandbox.call("move_file", source=r"C:\data\Zahlen.csv", destination="/workspace/zahlen.csv")
    assert moved["content"][0]["text"] == r"moved C:\data\Zahlen.csv to /workspace/zahlen.csv"
    assert sandbox.text("run_shell_command", command=r"type Z:\workspace\zahlen.csv") == "1;2"
    assert "windows/" in sandbox.text("list_directory", path="C:\\")
    assert "there is no drive Q:" in sandbox.fails("read_file", path=r"Q:\x")


def test_opened_document_is_named_by_its_window(sandbox: Sandbox) -> None:
    sandbox.call("write_file", path=r"C:\报告.txt", content="report")
    started = sandbox.call("start_app", app=r"C:\报告.txt")
    assert "报告.txt" in started["structuredContent"]["window"]["title"]


def test_unusable_tools_are_not_offered(client: httpx.Client, sandbox: Sandbox) -> None:
    names = {tool["name"] for tool in client.get(f"{sandbox.path}/tools").json()["items"]}
    assert "list_windows" in names and "accessibility_tree" not in names


def test_start_and_stop_failures_are_reported(sandbox: Sandbox) -> None:
    assert "list_directory" in sandbox.fails("start_app", app=r"C:\no\such.exe")
    assert "list_installed_apps" in sandbox.fails("start_app", app="no-such-program")
    assert "no program 'solitaire' is running" in sandbox.fails("stop_app", app="solitaire")


def test_console_program_gets_a_window(sandbox: Sandbox) -> None:
    started = sandbox.call("start_app", app="cmd")
    assert "cmd.exe" in started["structuredContent"]["window"]["title"]
    assert r"'C:\windows\system32\cmd.exe'" in started["content"][0]["text"], "as it is written there"
    sandbox.call("input_text", text=r"echo typed> C:\typed.txt", enter=True)
    eventually(lambda: not sandbox.post("read_file", {"path": r"C:\typed.txt"}).json()["isError"])
    assert sandbox.text("read_file", path=r"C:\typed.txt").strip() == "typed"
    sandbox.call("stop_app", app="cmd", force=True)


def test_a_sandbox_is_ready_within_seconds(client: httpx.Client) -> None:
    began = time.monotonic()
    with sandbox_of(client, "windows") as fresh:
        assert "Microsoft Windows" in fresh.text("run_shell_command", command="ver")
        assert time.monotonic() - began < 15, "five seconds on a machine that is at rest"


def test_data_are_moved_by_windows_paths(sandbox: Sandbox) -> None:
    sandbox.call("write_file", path=r"C:\data\from.txt", content="数据")
    moved = sandbox.move(r"C:\data\from.txt", sandbox, r"C:\data\to.txt")
    assert (moved["sourcePath"], moved["destinationPath"]) == (r"C:\data\from.txt", r"C:\data\to.txt")
    assert sandbox.text("run_shell_command", command=r"type C:\data\to.txt") == "数据"

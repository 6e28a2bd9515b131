"""The tools for files, as every kind of sandbox has them."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

from .daemon import TOKEN, Daemon
from .tool_client import ToolClient, pictures_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def tools(daemon: Daemon) -> ToolClient:
    return ToolClient(daemon.socket_path, TOKEN)


def test_written_file_is_read_back(tools: ToolClient, daemon: Daemon) -> None:
    text = "第一行\nsecond 🦄\n"
    result = tools.result("write_file", path="notes/一.txt", content=text)
    path = daemon.directory / "notes/一.txt"
    assert path.read_text() == text and stat.S_IMODE(path.stat().st_mode) == 0o644
    assert result["_meta"]["paddock"]["files"] == [str(path)]
    assert result["structuredContent"]["created"] is True
    assert tools.call("read_file", path=str(path)) == text
    assert tools.call("read_file", path="notes/一.txt") == text


def test_replaced_file_has_the_old_mode(tools: ToolClient, daemon: Daemon) -> None:
    path = daemon.directory / "script"
    path.write_text("old and longer")
    path.chmod(0o755)
    assert tools.data("write_file", path="script", content="new")["created"] is False
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o755
    tools.call("write_file", path="script", content="er", append=True)
    assert path.read_text() == "newer"
    assert [entry.name for entry in daemon.directory.iterdir()] == ["script"]


def test_base64_round_trip(tools: ToolClient, daemon: Daemon) -> None:
    content = bytes(range(256)) * 5
    tools.call("write_file", path="data", content=base64.b64encode(content).decode(), encoding="base64")
    assert (daemon.directory / "data").read_bytes() == content
    text = tools.call("read_file", path="data", encoding="base64", start_byte=256, bytes=512)
    assert base64.b64decode(text.splitlines()[1]) == content[256:768]
    assert "not base64" in tools.fails("write_file", path="x", content="*", encoding="base64")


def test_binary_data_is_not_returned_as_text(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "program").write_bytes(b"\x7fELF\0\0\0")
    assert "read it with encoding base64" in tools.fails("read_file", path="program")


def test_non_utf8_bytes_are_marked(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "latin").write_bytes("grün".encode("latin-1"))
    assert tools.call("read_file", path="latin") == "gr�n"
    assert "not UTF-8" in tools.data("read_file", path="latin")["note"]


def test_image_file_is_returned_as_image(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "dot.png").write_bytes(PNG)
    assert pictures_of(tools.result("read_file", path="dot.png")) == [PNG]


def test_a_long_file_is_read_by_lines(tools: ToolClient, daemon: Daemon) -> None:
    lines = [f"line {number}\n" for number in range(1, 50_001)]
    (daemon.directory / "long").write_text("".join(lines))
    first = tools.result("read_file", path="long")
    read = first["structuredContent"]["lines"]
    assert 5_000 < read < 50_000 and first["structuredContent"]["end"] is False
    assert f"continue with start_line {read + 1}]" in first["content"][0]["text"]
    assert tools.call("read_file", path="long", start_line=read + 1, lines=2).startswith(lines[read] + lines[read + 1])
    assert tools.call("read_file", path="long", start_line=50_000) == lines[-1]
    assert "has 50000 lines" in tools.fails("read_file", path="long", start_line=60_000)


def test_a_line_without_end_is_cut(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "one").write_text("x" * 3_000_000)
    result = tools.result("read_file", path="one")
    assert len(result["content"][0]["text"]) < 110_000 and result["structuredContent"]["end"] is False


def test_huge_file_is_read_in_constant_memory(tools: ToolClient, daemon: Daemon) -> None:
    with (daemon.directory / "huge").open("wb") as stream:
        stream.write(b"beginning\n" * 100_000)
        stream.truncate(5 * 2**30)
    assert "continue with start_line" in tools.call("read_file", path="huge")
    assert tools.data("read_file", path="huge", encoding="base64", start_byte=2**32, bytes=10)["bytes"] == 10
    pid = daemon.call("GET", "/paddock/services").json()["tools"]["pid"]
    resident = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]
    assert int(resident) < 100_000


def test_only_regular_files_are_read(tools: ToolClient, daemon: Daemon) -> None:
    os.mkfifo(daemon.directory / "pipe")
    assert "not a regular file" in tools.fails("read_file", path="pipe")
    assert "not a regular file" in tools.fails("read_file", path="/dev/zero")
    assert "list_directory" in tools.fails("read_file", path=".")
    assert "no such file or directory: " in tools.fails("read_file", path="nothing")
    assert "is a directory" in tools.fails("write_file", path=".", content="x")
    assert "not a regular file" in tools.fails("write_file", path="pipe", content="x")
    assert "NUL" in tools.fails("read_file", path="a\0b")


def test_directories_are_listed(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "a/b").mkdir(parents=True)
    (daemon.directory / "a/b/deep.txt").write_text("12345")
    (daemon.directory / "link").symlink_to("a/b/deep.txt")
    assert tools.call("list_directory") == "a/\nlink -> a/b/deep.txt"
    assert "a/b/deep.txt  5 bytes" in tools.call("list_directory", depth=3)
    names = [entry["name"] for entry in tools.data("list_directory", path="a", depth=2)["entries"]]
    assert names == ["b", "b/deep.txt"]
    assert "no such file" in tools.fails("list_directory", path="nowhere")


def test_large_directory_listing_is_cut(tools: ToolClient, daemon: Daemon) -> None:
    for number in range(1200):
        (daemon.directory / f"{number:04}").touch()
    listing = tools.data("list_directory")
    assert len(listing["entries"]) == 1000 and listing["complete"] is False


def test_non_utf8_names_are_handled(tools: ToolClient, daemon: Daemon) -> None:
    Path(os.fsdecode(os.fsencode(daemon.directory) + b"/\xff\xfe")).touch()
    assert tools.data("list_directory")["entries"][0]["name"] == "??"


def test_existing_directory_is_accepted(tools: ToolClient, daemon: Daemon) -> None:
    assert tools.data("create_directory", path="x/y/z")["created"] is True
    assert tools.data("create_directory", path="x/y/z")["created"] is False
    (daemon.directory / "file").touch()
    assert "is not a directory" in tools.fails("create_directory", path="file")


def test_move_does_not_overwrite_by_default(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "a").write_text("a")
    (daemon.directory / "b").write_text("b")
    (daemon.directory / "d").mkdir()
    assert "pass overwrite" in tools.fails("move_file", source="a", destination="b")
    tools.call("move_file", source="a", destination="b", overwrite=True)
    assert (daemon.directory / "b").read_text() == "a" and not (daemon.directory / "a").exists()
    tools.call("move_file", source="b", destination="d")
    tools.call("move_file", source="d/b", destination="new/name")
    assert (daemon.directory / "new/name").read_text() == "a"
    assert "into itself" in tools.fails("move_file", source="new", destination="new/x/y")
    assert "no such file" in tools.fails("move_file", source="gone", destination="x")


def test_non_empty_directories_are_deleted_only_recursively(tools: ToolClient, daemon: Daemon) -> None:
    (daemon.directory / "d/e").mkdir(parents=True)
    (daemon.directory / "d/f").touch()
    (daemon.directory / "link").symlink_to("d")
    tools.call("delete_file", path="link")
    assert (daemon.directory / "d/f").exists()
    assert "pass recursive" in tools.fails("delete_file", path="d")
    tools.call("delete_file", path="d/e")
    tools.call("delete_file", path="d", recursive=True)
    assert list(daemon.directory.iterdir()) == []
    assert "no such file" in tools.fails("delete_file", path="d")
    assert "cannot be deleted" in tools.fails("delete_file", path="/", recursive=True)


def test_invalid_arguments_are_reported(tools: ToolClient) -> None:
    assert tools.refuses("read_file") == "the argument 'path' is missing"
    assert tools.refuses("read_file", path=3) == "'path' must be text, not 3"
    assert "unknown argument 'file'" in tools.refuses("read_file", path="x", file="y")
    assert "'start_line' must be at least 1, not 0" in tools.refuses("read_file", path="x", start_line=0)

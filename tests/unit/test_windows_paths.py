"""Windows paths and commands, as the tools of a sandbox with Wine understand them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.inside.tools.tool_context import ToolContext
from paddock.inside.tools.tool_result import ToolError
from paddock.inside.tools.wine.windows_paths import to_unix_path, to_windows_path
from paddock.inside.tools.wine.wine_tools import render_batch_file, windows_program_argv


@pytest.fixture(autouse=True)
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix with its C: elsewhere, as in the image."""
    root = tmp_path / "lib" / "drive_c"
    for directory in ("users/agent/Documents", "Program Files", "windows/system32"):
        (root / directory).mkdir(parents=True)
    devices = tmp_path / "prefix" / "dosdevices"
    devices.mkdir(parents=True)
    (tmp_path / "prefix" / "drive_c").symlink_to(root)
    (devices / "c:").symlink_to("../drive_c")
    (devices / "z:").symlink_to("/")
    monkeypatch.setenv("WINEPREFIX", str(tmp_path / "prefix"))
    return root


def test_drive_is_a_directory_and_case_is_ignored(drive: Path) -> None:
    (drive / "users/agent/Documents/笔记.txt").touch()
    for path in (
        r"C:\users\agent\Documents\笔记.txt",
        r"c:\Users\AGENT\documents\笔记.TXT",
        r"C:/users/agent/Documents/笔记.txt",
        r"C:\windows\..\users\.\agent\\Documents\笔记.txt",
    ):
        assert to_unix_path(path) == str(drive / "users/agent/Documents/笔记.txt")
    assert to_unix_path("C:\\") == to_unix_path("C:") == str(drive)
    assert to_unix_path(r"Z:\etc\passwd") == "/etc/passwd"


def test_paths_cannot_leave_their_drive(drive: Path) -> None:
    assert to_unix_path(r"C:\..\..\..\etc") == str(drive / "etc")


def test_missing_file_keeps_its_name(drive: Path) -> None:
    assert to_unix_path(r"C:\USERS\New Folder\File.txt") == str(drive / "users/New Folder/File.txt")


def test_unix_paths_are_unchanged_and_backslashes_separate_names() -> None:
    assert to_unix_path("/etc/a:b") == "/etc/a:b"
    assert to_unix_path(r"sub\file.txt") == "sub/file.txt"
    assert ToolContext("/workspace", "windows").absolute_path(r"sub\file.txt") == "/workspace/sub/file.txt"
    assert ToolContext("/workspace", "linux").absolute_path(r"sub\file.txt") == r"/workspace/sub\file.txt"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (r"D:\x", "there is no drive D: .* there are: C:, Z:"),
        ("C:file.txt", r"use an absolute path such as C:\\file.txt"),
        (r"\file.txt", "has no drive"),
        (r"\\server\share\x", "network path"),
        (r"C:\con", "device"),
        (r"C:\NUL.txt", "device"),
        (r"C:\what?.txt", "is not allowed in Windows file names"),
        ("C:\\a\nb", "is not allowed in Windows file names"),
        (r"C:\a:stream", "is not allowed in Windows file names"),
        (r"C:\trailing.\x", "dot or a space"),
        ("C:\\trailing ", "dot or a space"),
    ],
)
def test_invalid_paths_are_refused_in_one_line(path: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        to_unix_path(path)


def test_windows_programs_get_windows_paths(drive: Path) -> None:
    assert to_windows_path(str(drive / "users/x.txt")) == r"C:\users\x.txt"
    assert to_windows_path(str(drive.parents[1] / "prefix/drive_c/users/x.txt")) == r"C:\users\x.txt"
    assert to_windows_path("/workspace/a b.txt") == r"Z:\workspace\a b.txt"
    assert to_windows_path("/") == "Z:\\"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ('echo "a b" > C:\\x.txt & type C:\\x.txt', 'echo "a b" > C:\\x.txt & type C:\\x.txt'),
        ("for %i in (1 2) do echo %i", "for %%i in (1 2) do echo %%i"),
        ("for %%i in (1 2) do echo %%i", "for %%i in (1 2) do echo %%i"),
        ("for %f in (*.txt) do echo %~nf %PATH%", "for %%f in (*.txt) do echo %%~nf %PATH%"),
        ("echo %USERNAME% %ProgramFiles(x86)%", "echo %USERNAME% %ProgramFiles(x86)%"),
        ("echo 100%", "echo 100%"),
    ],
)
def test_command_line_becomes_batch_file_line(command: str, line: str) -> None:
    assert render_batch_file(command).decode() == f"@echo off\r\n{line}\r\n"


def test_multi_line_commands_and_scripts_are_unchanged() -> None:
    assert render_batch_file("echo 你好\r\necho 🙂\n").decode() == "@echo off\r\necho 你好\r\necho 🙂\r\n\r\n"


def test_line_too_long_for_cmd_is_refused() -> None:
    render_batch_file("echo 1\n" * 5000)
    with pytest.raises(ToolError, match="up to 8000 characters"):
        render_batch_file("echo " + "1" * 8000)


def test_programs_are_found_by_name_and_path(drive: Path) -> None:
    for name in ("notepad.exe", "system32/cmd.exe"):
        _write_program(drive / "windows" / name, console=name.endswith("cmd.exe"))
    assert windows_program_argv("notepad") == windows_program_argv("Notepad.exe") == ["wine", r"C:\windows\notepad.exe"]
    assert windows_program_argv("cmd") == ["wine", "wineconsole", r"C:\windows\system32\cmd.exe"]
    assert windows_program_argv(r"C:\windows\NOTEPAD.EXE") == ["wine", r"C:\windows\notepad.exe"]
    assert windows_program_argv(r"C:\Program Files") == ["wine", "explorer", r"C:\Program Files"]
    (drive / "a.txt").touch()
    assert windows_program_argv(r"C:\a.txt") == ["wine", "notepad", r"C:\a.txt"]
    assert windows_program_argv("xeyes") is None
    assert windows_program_argv("/usr/bin/xeyes") is None
    with pytest.raises(ToolError, match="list_directory"):
        windows_program_argv(r"C:\none.exe")


def _write_program(path: Path, *, console: bool) -> None:
    head = bytearray(512)
    head[0x3C:0x40] = (0x80).to_bytes(4, "little")
    head[0x80:0x84] = b"PE\0\0"
    head[0x80 + 0x5C] = 3 if console else 2
    path.write_bytes(head)

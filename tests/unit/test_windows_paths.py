"""Windows paths and commands, as the tools of a box with Wine understand them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.inside.tools.context import Context
from paddock.inside.tools.drives import unix_path, windows_path
from paddock.inside.tools.results import ToolError
from paddock.inside.tools.windows import batch, program


@pytest.fixture(autouse=True)
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix whose C: lies elsewhere, as in the image."""
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


def test_a_drive_is_a_directory_and_case_does_not_matter(drive: Path) -> None:
    (drive / "users/agent/Documents/笔记.txt").touch()
    for path in (
        r"C:\users\agent\Documents\笔记.txt",
        r"c:\Users\AGENT\documents\笔记.TXT",
        r"C:/users/agent/Documents/笔记.txt",
        r"C:\windows\..\users\.\agent\\Documents\笔记.txt",
    ):
        assert unix_path(path) == str(drive / "users/agent/Documents/笔记.txt")
    assert unix_path("C:\\") == unix_path("C:") == str(drive)
    assert unix_path(r"Z:\etc\passwd") == "/etc/passwd"


def test_nothing_climbs_out_of_a_drive(drive: Path) -> None:
    assert unix_path(r"C:\..\..\..\etc") == str(drive / "etc")


def test_what_is_not_there_yet_keeps_its_name(drive: Path) -> None:
    assert unix_path(r"C:\USERS\New Folder\File.txt") == str(drive / "users/New Folder/File.txt")


def test_unix_paths_stay_as_they_are_and_backslashes_part_names() -> None:
    assert unix_path("/etc/a:b") == "/etc/a:b"
    assert unix_path(r"sub\file.txt") == "sub/file.txt"
    assert Context("/workspace", "windows").path(r"sub\file.txt") == "/workspace/sub/file.txt"
    assert Context("/workspace", "linux").path(r"sub\file.txt") == r"/workspace/sub\file.txt"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (r"D:\x", "there is no drive D: .* there are: C:, Z:"),
        ("C:file.txt", r"write it whole, as in C:\\file.txt"),
        (r"\file.txt", "names no drive"),
        (r"\\server\share\x", "on the network"),
        (r"C:\con", "device"),
        (r"C:\NUL.txt", "device"),
        (r"C:\what?.txt", "cannot be in the name"),
        ("C:\\a\nb", "cannot be in the name"),
        (r"C:\a:stream", "cannot be in the name"),
        (r"C:\trailing.\x", "dot or a space"),
        ("C:\\trailing ", "dot or a space"),
    ],
)
def test_nonsense_is_refused_in_one_line(path: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        unix_path(path)


def test_windows_programs_are_told_of_paths_in_their_own_way(drive: Path) -> None:
    assert windows_path(str(drive / "users/x.txt")) == r"C:\users\x.txt"
    assert windows_path(str(drive.parents[1] / "prefix/drive_c/users/x.txt")) == r"C:\users\x.txt"
    assert windows_path("/workspace/a b.txt") == r"Z:\workspace\a b.txt"
    assert windows_path("/") == "Z:\\"


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
def test_a_command_line_becomes_a_line_of_a_batch_file(command: str, line: str) -> None:
    assert batch(command).decode() == f"@echo off\r\n{line}\r\n"


def test_commands_of_several_lines_and_any_script_are_kept() -> None:
    assert batch("echo 你好\r\necho 🙂\n").decode() == "@echo off\r\necho 你好\r\necho 🙂\r\n\r\n"


def test_a_line_that_cmd_would_cut_is_refused() -> None:
    batch("echo 1\n" * 5000)
    with pytest.raises(ToolError, match="up to 8000 characters"):
        batch("echo " + "1" * 8000)


def test_programs_are_found_by_name_and_path(drive: Path) -> None:
    for name in ("notepad.exe", "system32/cmd.exe"):
        _write_program(drive / "windows" / name, console=name.endswith("cmd.exe"))
    assert program("notepad") == program("Notepad.exe") == ["wine", r"C:\windows\notepad.exe"]
    assert program("cmd") == ["wine", "wineconsole", r"C:\windows\system32\cmd.exe"]
    assert program(r"C:\windows\NOTEPAD.EXE") == ["wine", r"C:\windows\notepad.exe"]
    assert program(r"C:\Program Files") == ["wine", "explorer", r"C:\Program Files"]
    (drive / "a.txt").touch()
    assert program(r"C:\a.txt") == ["wine", "notepad", r"C:\a.txt"]
    assert program("xeyes") is None
    assert program("/usr/bin/xeyes") is None
    with pytest.raises(ToolError, match="list_directory"):
        program(r"C:\none.exe")


def _write_program(path: Path, *, console: bool) -> None:
    head = bytearray(512)
    head[0x3C:0x40] = (0x80).to_bytes(4, "little")
    head[0x80:0x84] = b"PE\0\0"
    head[0x80 + 0x5C] = 3 if console else 2
    path.write_bytes(head)

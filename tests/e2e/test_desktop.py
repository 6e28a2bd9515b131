"""Screens by the command line: start and stop, and copies with Windows paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli_driver import PaddockCliServer
from tests.support.screen_images import share_screen_images


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockCliServer]:
    server = PaddockCliServer(tmp_path_factory.mktemp("e2e") / "data")
    share_screen_images(server.data, "desktop", "windows")
    server.start_server()
    yield server
    server.run("sandbox", "rm", "--all", "--yes")
    assert server.stop_server() == 0


def test_desktop_is_stopped_and_started(server: PaddockCliServer, tmp_path: Path) -> None:
    sandbox = server.output("sandbox", "create", "--kind", "linux")
    assert server.output("sandbox", "desktop", "stop", sandbox) == f"{sandbox}  desktop stopped"
    assert re.search(r"^display +stopped", server.output("sandbox", "desktop", "show", sandbox), re.MULTILINE)
    picture = tmp_path / "screen.png"
    assert server.run("sandbox", "screenshot", sandbox, "-o", str(picture)).returncode == 1
    assert server.output("sandbox", "desktop", "start", sandbox) == f"{sandbox}  desktop started"
    assert server.json_output("sandbox", "desktop", "show", sandbox)["up"] is True
    server.output("sandbox", "screenshot", sandbox, "-o", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_cp_accepts_windows_paths(server: PaddockCliServer, tmp_path: Path) -> None:
    win = server.output("sandbox", "create", "--kind", "windows")
    (tmp_path / "a.txt").write_bytes("报告\tReport\r\n".encode())
    server.output("sandbox", "cp", str(tmp_path / "a.txt"), rf"{win}:C:\report.txt")
    assert server.output("tool", "call", win, "run_shell_command", r"command=type C:\report.txt") == "报告\tReport"
    server.output("sandbox", "cp", f"{win}:C:/report.txt", str(tmp_path / "back.txt"))
    assert (tmp_path / "back.txt").read_bytes() == (tmp_path / "a.txt").read_bytes()
    other = server.output("sandbox", "create", "--image", "host")
    server.output("sandbox", "cp", rf"{win}:C:\report.txt", f"{other}:/workspace/")
    assert "Report" in server.output("sandbox", "exec", other, "--", "cat", "/workspace/report.txt")
    refused = server.run("sandbox", "cp", str(tmp_path / "a.txt"), rf"{other}:C:\report.txt")
    assert refused.returncode == 1 and b"has no drive C:" in refused.stderr

"""`paddock sandbox shell` and other commands on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.cli_driver import PADDOCK_COMMAND, PaddockCliServer

TIMEOUT = 60.0


class TerminalWindow:
    """A pseudo-terminal that runs a command."""

    def __init__(self, server: PaddockCliServer, *arguments: str) -> None:
        self._master, self._slave = os.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(self._slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [PADDOCK_COMMAND, *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**server.env, "NO_COLOR": "1"},
            start_new_session=True,
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, pattern: str) -> re.Match[bytes]:
        """Read until the pattern appears, and discard the text before it."""
        deadline = time.monotonic() + TIMEOUT
        while not (found := re.search(pattern.encode(), self.seen)):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} was not shown; this was: {self.seen!r}"
            self.seen += os.read(self._master, 65536)
        self.seen = self.seen[found.end() :]
        return found

    def mode(self) -> list[object]:
        return list(termios.tcgetattr(self._slave))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def window(server: PaddockCliServer, sandbox: str) -> Iterator[TerminalWindow]:
    window = TerminalWindow(server, "sandbox", "shell", sandbox)
    yield window
    window.close()


def test_shell_input_window_size_and_exit_code(window: TerminalWindow) -> None:
    window.expect(r"\$ ")
    window.type("stty size; echo 'grün 日本' | tr a-z A-Z\r")
    window.expect(r"\r24 80\r\n")
    window.expect("GRüN 日本")
    window.resize(120, 40)
    os.kill(window.process.pid, 28)  # SIGWINCH, which the kernel sends only to a terminal's own session
    window.type("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo re''sized\r")
    window.expect("resized")
    window.type("exit 7\r")
    assert window.process.wait(TIMEOUT) == 7
    assert window.mode() == list(window.before)


def test_ctrl_c_interrupts_the_program_inside(window: TerminalWindow) -> None:
    window.expect(r"\$ ")
    window.type("sh -c 'echo run''ning; exec sleep 600'\r")
    window.expect("running\r\n")
    window.type("\x03")
    window.expect(r"\$ ")
    window.type("echo code=$?\r")
    window.expect("code=130")
    window.type("exit\r")
    window.process.wait(TIMEOUT)


def test_detached_shell_can_be_attached_again(server: PaddockCliServer, sandbox: str, window: TerminalWindow) -> None:
    window.expect(r"\$ ")
    window.type("answer=42; echo re''ady\r")
    window.expect("ready")
    window.expect(r"\$ ")
    window.type("~.")
    session = window.expect(r"--attach ([0-9a-f]{32})")[1].decode()
    assert window.process.wait(TIMEOUT) == 0
    assert window.mode() == list(window.before)
    again = TerminalWindow(server, "sandbox", "shell", sandbox, "--attach", session)
    try:
        again.expect("ready")
        again.type("echo the-answer=$answer; exit 3\r")
        again.expect("the-answer=42")
        assert again.process.wait(TIMEOUT) == 3
    finally:
        again.close()


def test_shell_can_run_a_command(server: PaddockCliServer, sandbox: str) -> None:
    window = TerminalWindow(server, "sandbox", "shell", sandbox, "--", "sh", "-c", "tty && exit 5")
    try:
        window.expect("/dev/pts/")
        assert window.process.wait(TIMEOUT) == 5
    finally:
        window.close()


def test_two_clients_share_a_terminal(server: PaddockCliServer, own_sandbox: str) -> None:
    one = TerminalWindow(server, "sandbox", "shell", own_sandbox, "--terminal", "main")
    two = TerminalWindow(server, "sandbox", "shell", own_sandbox, "--terminal", "main")
    try:
        one.expect(r"\$ ")
        two.expect(r"\$ ")
        one.type("answer=42; echo re''ady\r")
        two.expect("ready")
        two.type("~.")
        two.expect("--terminal main")
        assert two.process.wait(TIMEOUT) == 0
        one.type("echo the-answer=$answer; exit 3\r")
        one.expect("the-answer=42")
        assert one.process.wait(TIMEOUT) == 3
        assert one.mode() == list(one.before)
    finally:
        one.close()
        two.close()


def test_input_without_control_is_ignored_with_notice(server: PaddockCliServer, own_sandbox: str) -> None:
    window = TerminalWindow(server, "sandbox", "shell", own_sandbox, "--terminal", "main")
    late = None
    key = (server.data / "local.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    address = f"{server.url}/v1/sandboxes/{own_sandbox}/input"
    try:
        window.expect(r"\$ ")
        httpx.post(address, json={"viewer": "ann", "name": "Ann"}, headers=headers).raise_for_status()
        window.type("echo lost\r")
        window.expect(r"\[Ann has control; your input is ignored\]\r\n")
        late = TerminalWindow(server, "sandbox", "shell", own_sandbox, "--terminal", "main")
        late.expect(r"\[Ann has control; your input is ignored\]\r\n")
        httpx.delete(address, params={"viewer": "ann"}, headers=headers).raise_for_status()
        window.type("echo fo''und; exit\r")
        window.expect("found")
        assert b"lost" not in window.seen
    finally:
        window.close()
        if late is not None:
            late.close()


def test_cp_prints_its_target_on_a_terminal(server: PaddockCliServer, own_sandbox: str) -> None:
    window = TerminalWindow(server, "sandbox", "cp", __file__, f"{own_sandbox}:/workspace/")
    try:
        window.expect(rf"copied [\d.]+ KiB to {own_sandbox}:/workspace/")
        assert window.process.wait(TIMEOUT) == 0
    finally:
        window.close()


def test_tool_list_fits_a_narrow_window(server: PaddockCliServer, sandbox: str) -> None:
    window = TerminalWindow(server, "tool", "list", sandbox)
    try:
        window.expect(r"run_shell_command  \w+")
        window.expect("Arguments of a tool: paddock tool show")
        assert window.process.wait(TIMEOUT) == 0
    finally:
        window.close()


def test_long_event_is_wrapped(server: PaddockCliServer, own_sandbox: str) -> None:
    server.output("sandbox", "exec", own_sandbox, "--", "sh", "-c", "echo 1 > /workspace/file-with-a-long-name")
    server.output("sandbox", "cp", f"{own_sandbox}:/workspace/file-with-a-long-name", f"{own_sandbox}:/workspace/other")
    window = TerminalWindow(server, "events", "--sandbox", own_sandbox)
    try:
        window.expect(r"file\.moved  ")
        shown = window.expect(r"sha256=[0-9a-f]{12}(?![0-9a-f])")
        assert window.process.wait(TIMEOUT) == 0
        *_, last = shown.string[: shown.end()].decode().splitlines()
        assert last.startswith(" " * 16) and len(last) <= 80
    finally:
        window.close()


def test_terminal_mode_is_restored_after_sigterm(window: TerminalWindow) -> None:
    window.expect(r"\$ ")
    window.process.terminate()
    window.process.wait(TIMEOUT)
    assert window.mode() == list(window.before)


def test_shell_without_terminal_names_alternative(server: PaddockCliServer, sandbox: str) -> None:
    result = server.run("sandbox", "shell", sandbox)
    assert result.returncode == 2
    assert b"`shell` needs a terminal" in result.stderr


def test_tables_fit_the_window(server: PaddockCliServer, sandbox: str) -> None:
    window = TerminalWindow(server, "doctor", "--no-trial")
    try:
        window.expect("All checks passed|optional problems? found")
        assert window.process.wait(TIMEOUT) == 0
    finally:
        window.close()

"""Run a documentation page with its own home, data directory and port."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.docs.output_comparison import find_difference, map_ids
from tests.docs.page_reader import ROOT, PageBlock, PageCommand, page_name, read_blocks
from tests.docs.terminal_input import CONTROL
from tests.support.fake_provider import FakeProvider
from tests.support.server import eventually

PROGRAM_DIRECTORY = Path(sys.executable).parent
COMMAND_TIMEOUT = 110.0
_SERVE_COMMAND = re.compile(r"(?:^|\s)(?:\S*/)?paddock serve\b(?!.*--help)")
_END_MARKER = "end-of-command-71f3"


class PageFailed(AssertionError):
    """A command of a page failed, or its output differs from the page."""


class PageRunner:
    """Runs one page in a shell. `close` stops its server and removes its sandboxes."""

    def __init__(self, path: Path, directory: Path, provider: FakeProvider | None = None) -> None:
        self.path = path
        self.home = directory / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.work = directory / "work"
        self.work.mkdir()
        self.port = _free_port()
        self._ids: dict[str, str] = {}
        self._failures: list[str] = []
        self._server: int | None = None
        self._log = directory / "server.log"
        # A simple terminal, so that progress is not redrawn.
        self._screen, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR", "SSL_CERT_FILE")}
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.work,
            env={
                "LANG": "C.UTF-8",
                **inherited,
                "HOME": str(self.home),
                "PATH": f"{PROGRAM_DIRECTORY}:{os.environ['PATH']}",
                "TERM": "dumb",
                "COLUMNS": "200",
                "LINES": "50",
                "NO_COLOR": "1",
                "SOURCE": str(ROOT),
                "UPSTREAM": provider.url if provider else "",
                "PADDOCK_SERVER__PORT": str(self.port),
                "PADDOCK_SANDBOXES__MIN_FREE_DISK": "0",
                # The tests of the agents use this image as well; it differs from `code` by having no compiler.
                "PADDOCK_KINDS__CODE__IMAGE": "agent-base",
            },
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)

    def run(self) -> None:
        for block in read_blocks(self.path):
            for command in block.setup:
                self._run_successfully(command)
            if block.skip is None:
                self._run_block(block)
        if self._failures:
            raise PageFailed("\n\n".join(self._failures))

    def _run_block(self, block: PageBlock) -> None:
        if block.language == "json":
            json.loads(block.text)
        elif block.file:
            target = self.work / block.file if not block.file.startswith("~/") else self.home / block.file[2:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self._substitute(block.text))
        elif block.language == "python":
            self._run_successfully(PageCommand(block.line, f"python3 - <<'PYTHON'\n{block.text}PYTHON"))
        for command in block.commands:
            if _SERVE_COMMAND.search(command.text):
                self._start_server(command)
            elif block.typed:
                words = ["python3", "-m", "tests.docs.terminal_input", self._substitute(command.text), *block.typed]
                self._run_and_compare(command, f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.join(words)}", block)
            else:
                self._run_and_compare(command, self._substitute(command.text), block)

    def _run_and_compare(self, command: PageCommand, text: str, block: PageBlock) -> None:
        code, printed = self._execute(command, text)
        shown = [self._localize(line) for line in command.output]
        shows_error = block.exit_code is None and any(line.startswith("error:") for line in shown)
        if code != (block.exit_code or 0) and not shows_error:
            self._record_failure(command, f"it ended with {code}", printed)
        self._ids |= map_ids(shown, printed)
        if shown and (found := find_difference(shown, printed, numbers_vary=block.numbers_vary)):
            self._record_failure(command, found, printed)

    def _run_successfully(self, command: PageCommand) -> None:
        if _SERVE_COMMAND.search(command.text):
            self._start_server(command)
            return
        code, printed = self._execute(command, self._substitute(command.text))
        if code:
            self._record_failure(command, f"it ended with {code}", printed)

    def _start_server(self, command: PageCommand) -> None:
        """Start the server in the background, as in a second terminal, and wait until it is ready."""
        self.stop_server()
        text = self._substitute(command.text).split("  #")[0]
        self._log = self._log.with_name(f"server-{command.line}.log")
        out, errors = (shlex.quote(str(self._log.with_suffix(end))) for end in (".out", ".log"))
        code, printed = self._execute(command, f"{text} >{out} 2>{errors} & echo $!")
        if code:
            self._fail_page(command, "it did not start", printed)
        self._server = int(printed[-1])
        banner = self._log.with_suffix(".out")
        eventually(
            lambda: (banner.exists() and "is ready: " in banner.read_text()) or not _is_running(self._server), 60
        )
        lines = banner.read_text().splitlines()
        if not lines:
            self._fail_page(command, "the server did not start", self._log.read_text().splitlines())
        shown = [self._localize(line) for line in command.output]
        if shown and (found := find_difference(shown, lines, prefix=True)):
            self._record_failure(command, found, lines)

    def stop_server(self) -> None:
        if self._server is None:
            return
        pid, self._server = self._server, None
        if _is_running(pid):
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not _is_running(pid), 30)

    def _execute(self, command: PageCommand, text: str) -> tuple[int, list[str]]:
        assert self._bash.stdin is not None
        script = f"{{ {text}\n}} </dev/null; printf '\\n%s %d\\n' {_END_MARKER} $?\n"
        self._bash.stdin.write(script.encode())
        self._bash.stdin.flush()
        printed, deadline = b"", time.monotonic() + COMMAND_TIMEOUT
        while not (end := re.search(rf"\n{_END_MARKER} (\d+)\r\n".encode(), printed)):
            ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._fail_page(command, f"it did not end within {COMMAND_TIMEOUT:.0f} seconds", visible_lines(printed))
            printed += os.read(self._screen, 65536)
        return int(end[1]), visible_lines(printed[: end.start()])

    def _record_failure(self, command: PageCommand, reason: str, printed: Sequence[str]) -> None:
        """Record a failure and continue, so that one run shows all failures."""
        where = f"{page_name(self.path)}:{command.line}"
        self._failures.append("\n".join([f"{where}: $ {command.text}", reason, "--- all it printed:", *printed[-40:]]))

    def _fail_page(self, command: PageCommand, reason: str, printed: Sequence[str]) -> NoReturn:
        __tracebackhide__ = True
        self._record_failure(command, reason, printed)
        raise PageFailed("\n\n".join(self._failures))

    def _localize(self, text: str) -> str:
        """Replace the page's port and home directory by this test's."""
        return text.replace("8420", str(self.port)).replace("/home/you", str(self.home))

    def _substitute(self, text: str) -> str:
        """Replace the page's ids by the printed ones, and its port and home directory by this test's."""
        for page_id, printed_id in self._ids.items():
            text = text.replace(page_id, printed_id)
        return self._localize(text)

    def close(self) -> None:
        try:
            if self._bash.poll() is None:
                self._execute(PageCommand(0, "end"), "paddock sandbox rm --all --yes || true")
        finally:
            self.stop_server()
            assert self._bash.stdin is not None
            self._bash.stdin.close()
            try:
                self._bash.wait(20)
            finally:
                if self._bash.poll() is None:
                    os.killpg(self._bash.pid, signal.SIGKILL)
                    self._bash.wait(20)
                os.close(self._screen)


def visible_lines(printed: bytes) -> list[str]:
    """Return the visible lines of a terminal's output, without control sequences and overwritten text."""
    lines = CONTROL.sub(b"", printed).decode(errors="replace").replace("\r\n", "\n").rstrip("\r\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _is_running(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"

"""Run a documentation page in a home, a data directory and a port of its own."""

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

from tests.docs.matching import actual_ids, difference
from tests.docs.pages import ROOT, Block, Command, read
from tests.docs.terminal import CONTROL
from tests.support.fake_provider import FakeProvider
from tests.support.server import eventually

PROGRAMS = Path(sys.executable).parent
SECONDS = 110.0
_SERVE = re.compile(r"(?:^|\s)(?:\S*/)?paddock serve\b(?!.*--help)")
_END = "end-of-command-71f3"


class PageFailed(AssertionError):
    """A command of a page failed, or printed something else than the page shows."""


class Page:
    """One page at work. `close` stops its server and removes its sandboxes."""

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
        # As in a terminal; a simple one, so that progress is not drawn over and over.
        self._screen, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR", "SSL_CERT_FILE")}
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.work,
            env={
                "LANG": "C.UTF-8",
                **kept,
                "HOME": str(self.home),
                "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
                "TERM": "dumb",
                "COLUMNS": "200",
                "LINES": "50",
                "NO_COLOR": "1",
                "SOURCE": str(ROOT),
                "UPSTREAM": provider.url if provider else "",
                "PADDOCK_SERVER__PORT": str(self.port),
                "PADDOCK_SANDBOXES__MIN_FREE_DISK": "0",
                # An image that the agents' tests use as well; it is much the same, without a compiler.
                "PADDOCK_KINDS__CODE__IMAGE": "agent-base",
            },
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)

    def run(self) -> None:
        for block in read(self.path):
            for command in block.setup:
                self._succeed(command)
            if block.skip is None:
                self._block(block)
        if self._failures:
            raise PageFailed("\n\n".join(self._failures))

    def _block(self, block: Block) -> None:
        if block.language == "json":
            json.loads(block.text)
        elif block.file:
            target = self.work / block.file if not block.file.startswith("~/") else self.home / block.file[2:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self._actual(block.text))
        elif block.language == "python":
            self._succeed(Command(block.line, f"python3 - <<'PYTHON'\n{block.text}PYTHON"))
        for command in block.commands:
            if _SERVE.search(command.text):
                self._serve(command)
            elif block.typed:
                words = ["python3", "-m", "tests.docs.terminal", self._actual(command.text), *block.typed]
                self._compare(command, f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.join(words)}", block)
            else:
                self._compare(command, self._actual(command.text), block)

    def _compare(self, command: Command, text: str, block: Block) -> None:
        code, printed = self._execute(command, text)
        shown = [self._here(line) for line in command.output]
        if code and not block.typed and not any(line.startswith("error:") for line in shown):
            self._failed(command, f"it ended with {code}", printed)
        self._ids |= actual_ids(shown, printed)
        if shown and (found := difference(shown, printed, numbers_vary=block.numbers_vary)):
            self._failed(command, found, printed)

    def _succeed(self, command: Command) -> None:
        if _SERVE.search(command.text):
            self._serve(command)
            return
        code, printed = self._execute(command, self._actual(command.text))
        if code:
            self._failed(command, f"it ended with {code}", printed)

    def _serve(self, command: Command) -> None:
        """Start the server in the background, as a second terminal would have it, and wait until it is ready."""
        self.stop_server()
        text = self._actual(command.text).split("  #")[0]
        self._log = self._log.with_name(f"server-{command.line}.log")
        out, errors = (shlex.quote(str(self._log.with_suffix(end))) for end in (".out", ".log"))
        code, printed = self._execute(command, f"{text} >{out} 2>{errors} & echo $!")
        if code:
            self._fail(command, "it did not start", printed)
        self._server = int(printed[-1])
        banner = self._log.with_suffix(".out")
        eventually(lambda: (banner.exists() and "is ready: " in banner.read_text()) or not _alive(self._server), 60)
        lines = banner.read_text().splitlines()
        if not lines:
            self._fail(command, "the server did not start", self._log.read_text().splitlines())
        shown = [self._here(line) for line in command.output]
        if shown and (found := difference(shown, lines, prefix=True)):
            self._failed(command, found, lines)

    def stop_server(self) -> None:
        if self._server is None:
            return
        pid, self._server = self._server, None
        if _alive(pid):
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not _alive(pid), 30)

    def _execute(self, command: Command, text: str) -> tuple[int, list[str]]:
        assert self._bash.stdin is not None
        words = f"{{ {text}\n}} </dev/null; printf '\\n%s %d\\n' {_END} $?\n"
        self._bash.stdin.write(words.encode())
        self._bash.stdin.flush()
        printed, deadline = b"", time.monotonic() + SECONDS
        while not (found := re.search(rf"\n{_END} (\d+)\r\n".encode(), printed)):
            ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._fail(command, f"it did not end within {SECONDS:.0f} seconds", text_of(printed))
            printed += os.read(self._screen, 65536)
        return int(found[1]), text_of(printed[: found.start()])

    def _failed(self, command: Command, reason: str, printed: Sequence[str]) -> None:
        """Note a failure; the page goes on, so that one run shows all of them."""
        where = f"{self.path.relative_to(ROOT)}:{command.line}"
        self._failures.append("\n".join([f"{where}: $ {command.text}", reason, "--- all it printed:", *printed[-40:]]))

    def _fail(self, command: Command, reason: str, printed: Sequence[str]) -> NoReturn:
        __tracebackhide__ = True
        self._failed(command, reason, printed)
        raise PageFailed("\n\n".join(self._failures))

    def _here(self, text: str) -> str:
        """The page's text with the addresses and directories of this test."""
        return text.replace("8420", str(self.port)).replace("/home/you", str(self.home))

    def _actual(self, text: str) -> str:
        """A command or file of the page with the ids that were printed, too."""
        for ours, theirs in self._ids.items():
            text = text.replace(ours, theirs)
        return self._here(text)

    def close(self) -> None:
        try:
            if self._bash.poll() is None:
                self._execute(Command(0, "end"), "paddock sandbox rm --all --yes || true")
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


def text_of(printed: bytes) -> list[str]:
    """Return the lines of a terminal's output, without control sequences and without what was drawn over."""
    lines = CONTROL.sub(b"", printed).decode(errors="replace").replace("\r\n", "\n").rstrip("\r\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"

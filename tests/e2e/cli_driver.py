"""The real command and a real server, used as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.forked_servers import fork_server

COMMAND = str(Path(sys.executable).with_name("paddock"))
SECONDS = 60
_started: set[tuple[str, ...]] = set()
"""Whether a server was started as its own process; later ones come from the faster fork server."""


class Paddock:
    """The `paddock` command on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
        self.env = {**kept, "PADDOCK_DATA": str(data), "PYTHONWARNINGS": "error"}
        self.env["PADDOCK_RUNS__WARM_SERVER"] = "0"

    def run(self, *words: str, stdin: bytes | None = None, **env: str) -> subprocess.CompletedProcess[bytes]:
        command = tuple(words[:2])
        if stdin is None and command in _started:
            return fork_server().run(words, {**self.env, **env}, SECONDS)
        _started.add(command)
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run(
            [COMMAND, *words], capture_output=True, timeout=SECONDS, env={**self.env, **env}, check=False, **given
        )

    def start(self, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        # Where tests run in the background of a shell, it has had them ignore what Ctrl-C sends.
        return subprocess.Popen([COMMAND, *words], env=self.env, preexec_fn=_heed_ctrl_c, **given)

    def text(self, *words: str) -> str:
        """Run a command that must succeed; return its output."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Server(Paddock):
    """As `Paddock`, with a server that can be stopped and started."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def up(self, port: int = 0) -> None:
        log = open(self.data.parent / "server.log", "ab")  # noqa: SIM115
        words = ("serve", "--port", str(port), "--image", "host", "--json")
        self._process = self.start(*words, stderr=log)
        log.close()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.data.parent / "server.log").read_text()
        self.url = json.loads(line)["url"]

    def down(self, number: int = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def restart(self, number: int = signal.SIGKILL) -> None:
        self.down(number)
        self.up(int(self.url.rpartition(":")[2]))

"""The real `paddock` command and server as subprocesses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.forked_servers import fork_server

PADDOCK_COMMAND = str(Path(sys.executable).with_name("paddock"))
COMMAND_TIMEOUT = 60
WARNING_FILTERS = "error,ignore:SOCKS support in urllib3 requires"
"""All warnings are errors, except one that `requests` suppresses itself while it is imported.

Its filter can be lost: an engine is imported on a thread, and filters belong to the whole process, so that the end of
any `warnings.catch_warnings` block on the server's thread removes what the import has added.
"""
_started: set[tuple[str, ...]] = set()
"""Commands that were already run as a separate process; later runs use the faster fork server."""


class PaddockCli:
    """The `paddock` command on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
        self.env = {**inherited, "PADDOCK_DATA": str(data), "PYTHONWARNINGS": WARNING_FILTERS}
        self.env["PADDOCK_RUNS__WARM_SERVER"] = "0"

    def run(self, *arguments: str, stdin: bytes | None = None, **env: str) -> subprocess.CompletedProcess[bytes]:
        command = tuple(arguments[:2])
        if stdin is None and command in _started:
            return fork_server().run(arguments, {**self.env, **env}, COMMAND_TIMEOUT)
        _started.add(command)
        input_arguments: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run(
            [PADDOCK_COMMAND, *arguments],
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            env={**self.env, **env},
            check=False,
            **input_arguments,
        )

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        stream_arguments = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **streams,
        }
        # A shell makes background processes ignore SIGINT; undo that.
        return subprocess.Popen(
            [PADDOCK_COMMAND, *arguments], env=self.env, preexec_fn=_restore_ctrl_c, **stream_arguments
        )

    def output(self, *arguments: str) -> str:
        """Run a command that must succeed; return its output."""
        result = self.run(*arguments)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout.decode().strip()

    def json_output(self, *arguments: str) -> Any:
        return json.loads(self.output(*arguments, "--json"))


def _restore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class PaddockCliServer(PaddockCli):
    """The command with a server on its data directory that can be stopped and started."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start_server(self, port: int = 0) -> None:
        log = open(self.data.parent / "server.log", "ab")  # noqa: SIM115
        arguments = ("serve", "--port", str(port), "--image", "host", "--json")
        self._process = self.start(*arguments, stderr=log)
        log.close()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.data.parent / "server.log").read_text()
        self.url = json.loads(line)["url"]

    def stop_server(self, number: int = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(COMMAND_TIMEOUT)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def restart_server(self, number: int = signal.SIGKILL) -> None:
        self.stop_server(number)
        self.start_server(int(self.url.rpartition(":")[2]))

"""A real `paddock serve` in a process of its own, for tests that speak HTTP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.support.forked_servers import ForkedProcess, fork_server

T = TypeVar("T")
PROGRAM = Path(sys.executable).parent / "paddock"
DAEMON = 44772


def eventually(condition: Callable[[], T], timeout: float = 20.0) -> T:
    """Wait for a condition, and return what it found."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen within {timeout} seconds"
        time.sleep(0.01)
    return found


class Server:
    """One server process; `start` returns once it answers. With `command` it is the command itself that is started."""

    def __init__(self, data: Path, settings: Mapping[str, Any] | None = None, *, command: bool = False) -> None:
        self.data = data
        self.settings = settings or {}
        self.url = ""
        self.process: subprocess.Popen[str] | ForkedProcess | None = None
        self._command = command

    def start(self, port: int = 0) -> Server:
        self.process = self.popen(port) if self._command else self._born(port)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server did not start: {self.log()}"
        self.url = json.loads(line)["url"]
        return self

    def popen(self, port: int = 0) -> subprocess.Popen[str]:
        with self._log_file().open("ab") as log:
            return subprocess.Popen(
                [PROGRAM, *self._words(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment(),
            )

    def _born(self, port: int) -> ForkedProcess:
        with self._log_file().open("ab") as log:
            return fork_server().start(self._words(port), self._environment(), log.fileno())

    def _words(self, port: int) -> list[str]:
        configuration = self.data.parent / f"{self.data.name}.json"
        sandboxes = {"default_image": "host", **self.settings.get("sandboxes", {})}
        document = {"log": {"level": "debug"}, **self.settings, "sandboxes": sandboxes, "data": str(self.data)}
        configuration.write_text(json.dumps(document))
        return ["serve", "--json", "--config", str(configuration), "--port", str(port)]

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.data.parent)}

    def _log_file(self) -> Path:
        return self.data.parent / f"{self.data.name}.log"

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20.0) -> int:
        """End it with a signal and return its exit code."""
        assert self.process is not None and self.process.stdout is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout)
        self.process.stdout.close()
        self.process = None
        return code

    def log(self) -> str:
        return self._log_file().read_text()

    @property
    def key(self) -> str:
        return (self.data / "local.key").read_text().strip()

    @property
    def domain(self) -> str:
        return self.url.removeprefix("http://")

    def client(self, key: str | None = None, **headers: str) -> httpx.Client:
        """A client that shows a key; an empty one shows none."""
        secret = self.key if key is None else key
        shown = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx.Client(base_url=self.url, headers={**shown, **headers}, timeout=60.0, trust_env=False)


@contextmanager
def serving(directory: Path, settings: Mapping[str, Any] | None = None, *, command: bool = False) -> Iterator[Server]:
    """A server that is stopped at the end, with all its sandboxes."""
    server = Server(directory / "data", settings, command=command)
    try:
        yield server.start()
    finally:
        if server.process is None:
            server.start()
        try:
            remove_all(server)
        finally:
            server.stop()
        shutil.rmtree(server.data, ignore_errors=True)


def remove_all(server: Server) -> None:
    with server.client() as client:
        while items := client.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]:
            for item in items:
                client.delete(f"/v1/sandboxes/{item['id']}")


def run(client: httpx.Client, sandbox_id: str, command: str, **more: Any) -> tuple[str, int]:
    """Run a command through the proxy; what it wrote, and its exit code."""
    body = {"command": command, **more}
    answer = client.post(f"/v1/sandboxes/{sandbox_id}/proxy/{DAEMON}/command", json=body)
    assert answer.status_code == 200, answer.text
    events = [json.loads(line) for line in answer.text.splitlines() if line]
    text = "\n".join(event["text"] for event in events if event["type"] in ("stdout", "stderr"))
    failed = next((event["error"] for event in events if event["type"] == "error"), None)
    return text, int(failed["evalue"]) if failed else 0

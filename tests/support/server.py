"""A real `paddock serve` in a process of its own, for tests that speak HTTP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
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
PADDOCK_COMMAND = Path(sys.executable).parent / "paddock"
DAEMON_PORT = 44772


def eventually(condition: Callable[[], T], timeout: float = 20.0) -> T:
    """Wait until a condition is truthy and return its value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"did not happen within {timeout} seconds"
        time.sleep(0.01)
    return value


def free_port() -> int:
    """Return a loopback port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server process; `start` returns once it responds. With `command`, run `paddock` instead of a fork."""

    def __init__(self, data: Path, settings: Mapping[str, Any] | None = None, *, command: bool = False) -> None:
        self.data = data
        self.settings = settings or {}
        self.url = ""
        self.process: subprocess.Popen[str] | ForkedProcess | None = None
        self._command = command

    def start(self, port: int = 0) -> Server:
        self.process = self.popen(port) if self._command else self._fork(port)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server did not start: {self.log()}"
        self.url = json.loads(line)["url"]
        return self

    def popen(self, port: int = 0) -> subprocess.Popen[str]:
        with self._log_file().open("ab") as log:
            return subprocess.Popen(
                [PADDOCK_COMMAND, *self._arguments(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment(),
            )

    def _fork(self, port: int) -> ForkedProcess:
        with self._log_file().open("ab") as log:
            return fork_server().start(self._arguments(port), self._environment(), log.fileno())

    def _arguments(self, port: int) -> list[str]:
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
        """Stop the process with a signal and return its exit code."""
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
        """Return a client that sends the key; without a header if the key is empty."""
        secret = self.key if key is None else key
        authorization = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx.Client(base_url=self.url, headers={**authorization, **headers}, timeout=60.0, trust_env=False)


@contextmanager
def run_server(
    directory: Path, settings: Mapping[str, Any] | None = None, *, command: bool = False
) -> Iterator[Server]:
    """Run a server; at the end delete its sandboxes and stop it."""
    server = Server(directory / "data", settings, command=command)
    try:
        yield server.start()
    finally:
        if server.process is None:
            server.start()
        try:
            delete_all_sandboxes(server)
        finally:
            server.stop()
        shutil.rmtree(server.data, ignore_errors=True)


def delete_all_sandboxes(server: Server) -> None:
    with server.client() as client:
        while items := client.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]:
            for item in items:
                client.delete(f"/v1/sandboxes/{item['id']}")


def run_in_sandbox(client: httpx.Client, sandbox_id: str, command: str, **more: Any) -> tuple[str, int]:
    """Run a command in a sandbox through the proxy; return its output and exit code."""
    body = {"command": command, **more}
    response = client.post(f"/v1/sandboxes/{sandbox_id}/proxy/{DAEMON_PORT}/command", json=body)
    assert response.status_code == 200, response.text
    events = [json.loads(line) for line in response.text.splitlines() if line]
    text = "\n".join(event["text"] for event in events if event["type"] in ("stdout", "stderr"))
    error = next((event["error"] for event in events if event["type"] == "error"), None)
    return text, int(error["evalue"]) if error else 0

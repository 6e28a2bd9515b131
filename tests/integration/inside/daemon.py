"""A real daemon, started from the packed zipapp, and a plain HTTP client for it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKEN = "correct horse battery staple"
PYTHON = "/usr/bin/python3"


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        super().__init__("box", timeout=timeout)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.body
        return [json.loads(line) for line in self.body.split(b"\n") if line]

    def text(self, stream: str = "stdout") -> list[str]:
        return [event["text"] for event in self.events() if event["type"] == stream]

    def exit_code(self) -> int:
        last = self.events()[-1]
        return 0 if last["type"] == "execution_complete" else int(last["error"]["evalue"])

    def error(self) -> str:
        code: str = self.json()["code"]
        return code


class Daemon:
    def __init__(self, process: subprocess.Popen[bytes], socket_path: Path, directory: Path) -> None:
        self.process = process
        self.socket_path = socket_path
        self.directory = directory

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self, timeout: float = 30.0) -> Connection:
        return Connection(self.socket_path, timeout)

    def dial(self, timeout: float = 10.0) -> socket.socket:
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        raw.settimeout(timeout)
        raw.connect(str(self.socket_path))
        return raw

    def call(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        connection = self.connect()
        try:
            return ask(connection, method, target, body, **headers)
        finally:
            connection.close()

    def run(self, command: str, **options: Any) -> Answer:
        return self.call("POST", "/command", {"command": command, **options})

    def start(self, command: str, **options: Any) -> str:
        identifier: str = self.run(command, background=True, **options).events()[0]["text"]
        return identifier

    @contextmanager
    def stream(self, method: str, target: str, body: Any = None) -> Iterator[http.client.HTTPResponse]:
        """A response read as it arrives; exit closes the connection."""
        connection = self.connect()
        response = None
        try:
            send(connection, method, target, body)
            response = connection.getresponse()
            yield response
        finally:
            if response is not None:
                response.close()
            connection.close()

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def send(connection: Connection, method: str, target: str, body: Any = None, **headers: str) -> None:
    content = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, target, body=content, headers={"X-EXECD-ACCESS-TOKEN": TOKEN, **names})


def ask(connection: Connection, method: str, target: str, body: Any = None, **headers: str) -> Answer:
    send(connection, method, target, body, **headers)
    with connection.getresponse() as response:
        return Answer(response.status, response.read(), dict(response.getheaders()))


def next_event(response: http.client.HTTPResponse) -> dict[str, Any]:
    while line := response.readline():
        if line.strip():
            event: dict[str, Any] = json.loads(line)
            return event
    raise AssertionError("the stream ended")


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition of another process, with a time-out."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


@contextmanager
def running_daemon(
    zipapp: Path, directory: Path, *, beside: str = "", pass_fds: Sequence[int] = (), **settings: Any
) -> Iterator[Daemon]:
    """Start a daemon the way a host does: the listening socket and the settings are inherited.

    What is to run `beside` it, in shell text, is started before it and made known to it as its early service.
    """
    socket_path = directory / "s"
    workspace = directory / "workspace"
    workspace.mkdir()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(socket_path))
    listener.listen(128)
    reader, writer = os.pipe()
    document = {
        "listen": {"fd": listener.fileno()},
        "token": TOKEN,
        "cwd": str(workspace),
        "state": str(directory / "state"),
        "env": {"BOX": "yes"},
        **settings,
    }
    os.write(writer, json.dumps(document).encode())
    os.close(writer)
    words = [PYTHON, "-I", "-S", str(zipapp), "--config-fd", str(reader)]
    if beside:
        words = ["/bin/sh", "-c", f'{beside} & exec "$@" --early $!', "sh", *words]
    process = subprocess.Popen(words, pass_fds=(reader, listener.fileno(), *pass_fds), cwd="/")
    os.close(reader)
    listener.close()
    try:
        yield Daemon(process, socket_path, workspace)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

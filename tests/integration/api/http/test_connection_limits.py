"""Connections never exhaust the server's file descriptors."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually, run_in_sandbox

DESCRIPTOR_LIMIT = 320
HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def limited_descriptors(server: Server) -> Iterator[None]:
    assert server.process is not None
    pid = server.process.pid
    before = resource.prlimit(
        pid, resource.RLIMIT_NOFILE, (DESCRIPTOR_LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def open_descriptors(server: Server) -> int:
    assert server.process is not None
    return len(os.listdir(Path(f"/proc/{server.process.pid}/fd")))


def close_sockets(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


@pytest.fixture
def connections(server: Server) -> Iterator[list[socket.socket]]:
    """Connections to the server, closed at the end."""
    with ExitStack() as held:
        opened: list[socket.socket] = []
        held.callback(close_sockets, opened)
        with limited_descriptors(server):
            yield opened


def open_connections(
    server: Server, connections: list[socket.socket], count: int, sent: bytes, *, answer: bool = False
) -> None:
    host, port = server.domain.rsplit(":", 1)
    for _ in range(count):
        connections.append(socket.create_connection((host, int(port)), timeout=20))
        connections[-1].sendall(sent)
        received = b"" if answer else b"}"
        while not received.endswith(b"}"):
            received += connections[-1].recv(4096)


def test_longest_idle_connections_are_closed_for_new_ones(
    server: Server, client: httpx.Client, connections: list[socket.socket]
) -> None:
    sandbox = create_sandbox(client)
    open_connections(server, connections, 2 * DESCRIPTOR_LIMIT, HEALTH_REQUEST, answer=True)
    assert open_descriptors(server) < DESCRIPTOR_LIMIT
    assert connections[0].recv(1) == b""
    with server.client() as another:
        assert another.get("/v1/sandboxes").status_code == 200
        assert run_in_sandbox(another, sandbox, "echo here") == ("here", 0)
        create_sandbox(another)
    assert "Errno 24" not in server.log()


def test_unfinished_requests_keep_connections_and_new_ones_are_refused(
    server: Server, connections: list[socket.socket]
) -> None:
    open_connections(server, connections, DESCRIPTOR_LIMIT, HEALTH_REQUEST[:-2])

    def is_refused() -> bool:
        open_connections(server, connections, 1, HEALTH_REQUEST)
        with connections.pop() as last:
            try:
                return last.recv(4096).startswith(b"HTTP/1.1 503 ")
            except OSError:  # Closed at once, far beyond the limit.
                return False

    eventually(is_refused)
    assert open_descriptors(server) < DESCRIPTOR_LIMIT
    connections[0].sendall(HEALTH_REQUEST[-2:])
    assert connections[0].recv(4096).startswith(b"HTTP/1.1 200 ")
    assert "Errno 24" not in server.log() and "reconciler task failed" not in server.log()

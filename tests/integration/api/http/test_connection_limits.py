"""Connections never use up the server's file descriptors, and bodies neither its time nor its memory."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.api.conftest import create
from tests.support.server import Server, eventually, run_in_sandbox

DESCRIPTORS = 320
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def few_descriptors(server: Server) -> Iterator[None]:
    assert server.process is not None
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def open_descriptors(server: Server) -> int:
    assert server.process is not None
    return len(os.listdir(Path(f"/proc/{server.process.pid}/fd")))


def close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


@pytest.fixture
def crowd(server: Server) -> Iterator[list[socket.socket]]:
    """Connections to the server, closed at the end."""
    with ExitStack() as held:
        opened: list[socket.socket] = []
        held.callback(close_all, opened)
        with few_descriptors(server):
            yield opened


def connect(server: Server, crowd: list[socket.socket], count: int, sent: bytes, *, answer: bool = False) -> None:
    host, port = server.domain.rsplit(":", 1)
    for _ in range(count):
        crowd.append(socket.create_connection((host, int(port)), timeout=20))
        crowd[-1].sendall(sent)
        received = b"" if answer else b"}"
        while not received.endswith(b"}"):
            received += crowd[-1].recv(4096)


def test_the_longest_idle_connections_are_closed_for_new_ones(
    server: Server, client: httpx.Client, crowd: list[socket.socket]
) -> None:
    sandbox = create(client)
    connect(server, crowd, 2 * DESCRIPTORS, HEALTH, answer=True)
    assert open_descriptors(server) < DESCRIPTORS
    assert crowd[0].recv(1) == b""
    with server.client() as another:
        assert another.get("/v1/sandboxes").status_code == 200
        assert run_in_sandbox(another, sandbox, "echo here") == ("here", 0)
        create(another)
    assert "Errno 24" not in server.log()


def test_connections_with_unfinished_requests_are_kept_and_new_ones_refused(
    server: Server, crowd: list[socket.socket]
) -> None:
    connect(server, crowd, DESCRIPTORS, HEALTH[:-2])

    def is_refused() -> bool:
        connect(server, crowd, 1, HEALTH)
        with crowd.pop() as last:
            try:
                return last.recv(4096).startswith(b"HTTP/1.1 503 ")
            except OSError:  # Closed at once, far beyond the limit.
                return False

    eventually(is_refused)
    assert open_descriptors(server) < DESCRIPTORS
    crowd[0].sendall(HEALTH[-2:])
    assert crowd[0].recv(4096).startswith(b"HTTP/1.1 200 ")
    assert "Errno 24" not in server.log() and "reconciler task failed" not in server.log()

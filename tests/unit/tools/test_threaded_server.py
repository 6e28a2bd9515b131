"""Connections of the HTTP server at the sandbox's limit of processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from paddock.inside.http.buffered_socket import BufferedSocket
from paddock.inside.http.http11 import HttpReply, IncomingRequest
from paddock.inside.http.threaded_server import ThreadedHttpServer
from paddock.inside.http.worker_threads import WorkerThreads
from tests.support.server import eventually

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class EmptyServer(ThreadedHttpServer):
    """Answers every request with an empty reply."""

    def _handle_request(self, request: IncomingRequest, client: BufferedSocket) -> None:
        HttpReply().write(client, request)


@contextmanager
def running(path: Path, threads: WorkerThreads) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=EmptyServer(listener, 8, threads).serve_forever)
        thread.start()
        try:
            yield str(path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def connect(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(path)
    return client


def test_connections_are_served_without_new_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every thread in use, the connections that are idle between two requests make room."""
    threads = WorkerThreads(reserve=2)
    with running(tmp_path / "socket", threads) as path, ExitStack() as stack:
        monkeypatch.setattr(WorkerThreads, "_start_missing_threads", lambda self: None)
        clients = [stack.enter_context(connect(path)) for _ in range(6)]
        for client in clients:
            if client is clients[4]:
                assert [each.recv(1) for each in clients[:4]] == [b""] * 4
                # The fifth connection may stay open once the sixth has a thread.
                eventually(lambda: not threads.exhausted)
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        for client in clients[4:]:
            client.sendall(REQUEST)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")

"""Connections of the HTTP server at the sandbox's limit of processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.inside.http import threaded_server
from paddock.inside.http.buffered_socket import BufferedSocket
from paddock.inside.http.http11 import HttpReply, IncomingRequest
from paddock.inside.http.threaded_server import ThreadedHttpServer

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class EmptyServer(ThreadedHttpServer):
    """Answers every request with an empty reply."""

    def _handle_request(self, request: IncomingRequest, client: BufferedSocket) -> None:
        HttpReply().write(client, request)


@contextmanager
def running(path: Path) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=EmptyServer(listener, 4).serve_forever)
        thread.start()
        try:
            yield str(path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def exchange(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(path)
        client.sendall(REQUEST)
        return client.recv(4096)


@pytest.mark.parametrize(("failures", "answered"), [(3, True), (1000, False)])
def test_connections_wait_for_a_thread_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, answered: bool
) -> None:
    left = failures

    class LimitedThread(threading.Thread):
        def start(self) -> None:
            nonlocal left
            if self.daemon and left:
                left -= 1
                raise RuntimeError("can't start new thread")
            super().start()

    limited: Any = type("LimitedThreading", (), {"Thread": LimitedThread, "Event": threading.Event})
    with running(tmp_path / "socket") as path:
        monkeypatch.setattr(threaded_server, "threading", limited)
        monkeypatch.setattr(threaded_server, "THREAD_TIMEOUT", 0.2)
        try:
            reply = exchange(path)
        except ConnectionError:
            reply = b""
        assert reply.startswith(b"HTTP/1.1 200 ") == answered
        left = 0
        assert exchange(path).startswith(b"HTTP/1.1 200 ")

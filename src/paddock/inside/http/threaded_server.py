"""HTTP server that handles each connection in a thread of its own."""

from __future__ import annotations

import socket
import threading
import time

from .buffered_socket import BufferedSocket, PeerDisconnected, close_gracefully
from .http11 import IncomingBody, IncomingRequest, MalformedRequest, error_reply, read_request

IDLE_TIMEOUT = 600.0
"""Seconds a connection may be idle between requests."""
FIRST_TIMEOUT = 15.0
"""Seconds a new connection may wait before its first request; the request head has its own limit."""
THREAD_TIMEOUT = 1.0
"""Seconds to wait for a thread at the sandbox's limit of processes; threads of closed connections are about to end."""
_THREAD_POLL_SECONDS = 0.02


class ThreadedHttpServer:
    """Accept loop and keep-alive handling, shared by the daemon and its tool worker."""

    def __init__(self, listener: socket.socket, connections: int) -> None:
        self._listener = listener
        self._slots = threading.BoundedSemaphore(connections)

    def serve_forever(self) -> None:
        self._listener.setblocking(True)
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                threading.Event().wait(0.05)  # Out of descriptors: wait until some connections end.
                continue
            self._slots.acquire()
            if not self._start_thread(accepted):
                accepted.close()
                self._slots.release()

    def _start_thread(self, accepted: socket.socket) -> bool:
        """Serve a connection in a new thread; False if none could be started in time."""
        deadline = time.monotonic() + THREAD_TIMEOUT
        while True:
            try:
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()
                return True
            except RuntimeError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_THREAD_POLL_SECONDS)

    def _serve(self, accepted: socket.socket) -> None:
        try:
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._serve_requests(BufferedSocket(accepted))
        except (PeerDisconnected, OSError):
            pass
        finally:
            close_gracefully(accepted)
            self._slots.release()

    def _serve_requests(self, client: BufferedSocket) -> None:
        idle_timeout = FIRST_TIMEOUT
        while True:
            try:
                request = read_request(client, idle_timeout)
            except MalformedRequest as error:
                refused = IncomingRequest("GET", "/", {}, IncomingBody(), keep_alive=False)
                return error_reply(error).write(client, refused)
            if request is None:
                return None
            idle_timeout = IDLE_TIMEOUT
            try:
                self._handle_request(request, client)
                if not request.keep_alive or not request.body.drain():
                    return None
            except MalformedRequest as error:
                request.keep_alive = False
                return error_reply(error).write(client, request)

    def _handle_request(self, request: IncomingRequest, client: BufferedSocket) -> None:
        """Read the request body and write the reply. Raises `MalformedRequest` for invalid HTTP."""
        raise NotImplementedError

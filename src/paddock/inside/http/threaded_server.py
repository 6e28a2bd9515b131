"""HTTP server that handles each connection in its own thread."""

from __future__ import annotations

import socket
import threading
from collections import deque

from .buffered_socket import BufferedSocket, PeerDisconnected, close_gracefully
from .http11 import IncomingBody, IncomingRequest, MalformedRequest, error_reply, read_request
from .worker_threads import WorkerThreads

IDLE_TIMEOUT = 600.0
"""Seconds a connection may be idle between requests."""
FIRST_TIMEOUT = 15.0
"""Seconds a new connection may wait before its first request; the request head has its own limit."""


class ThreadedHttpServer:
    """Accept loop and keep-alive handling, shared by the daemon and its tool worker."""

    def __init__(self, listener: socket.socket, connections: int, threads: WorkerThreads) -> None:
        self._listener = listener
        self._threads = threads
        self._idle: deque[BufferedSocket] = deque()
        """Connections between two requests, longest idle first."""
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
            self._threads.run(lambda accepted=accepted: self._serve(accepted))  # type: ignore[misc]
            if self._threads.exhausted:
                self._close_idle_connection()

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
            if idle_timeout == IDLE_TIMEOUT and not self._wait_for_next_request(client):
                return None
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

    def _wait_for_next_request(self, client: BufferedSocket) -> bool:
        """Wait between two requests; False if the connection ends, because its client or another needs that."""
        self._idle.append(client)
        try:
            if self._threads.exhausted and not client.readable:
                return False
            return client.wait_for_data(IDLE_TIMEOUT)
        finally:
            self._idle.remove(client)

    def _close_idle_connection(self) -> None:
        """End the connection that has been idle longest, so that its thread can serve another."""
        for client in tuple(self._idle):
            if not client.readable:
                client.shut_down_reading()
                break

    def _handle_request(self, request: IncomingRequest, client: BufferedSocket) -> None:
        """Read the request body and write the reply. Raises `MalformedRequest` for invalid HTTP."""
        raise NotImplementedError

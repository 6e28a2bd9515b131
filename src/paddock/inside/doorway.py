"""Accepts connections and has their requests answered, a thread for each."""

from __future__ import annotations

import socket
import threading

from .http import BadRequest, Body, Request, error_reply, read_request
from .wire import Disconnected, Wire, hang_up

IDLE_TIMEOUT = 600.0
"""Seconds a connection may be idle between requests."""
FIRST_TIMEOUT = 15.0
"""Seconds until the first request of a connection begins; its head has a limit of its own."""


class Doorway:
    """What the daemon and its tool worker have in common; `_answer` is each one's own."""

    def __init__(self, listener: socket.socket, connections: int) -> None:
        self._listener = listener
        self._slots = threading.BoundedSemaphore(connections)

    def serve_forever(self) -> None:
        self._listener.setblocking(True)
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                threading.Event().wait(0.05)  # Out of descriptors: let some connections end.
                continue
            self._slots.acquire()
            try:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()
            except RuntimeError:
                client.close()
                self._slots.release()

    def _serve(self, client: socket.socket) -> None:
        try:
            if client.family != socket.AF_UNIX:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._converse(Wire(client))
        except (Disconnected, OSError):
            pass
        finally:
            hang_up(client)
            self._slots.release()

    def _converse(self, wire: Wire) -> None:
        patience = FIRST_TIMEOUT
        while True:
            try:
                request = read_request(wire, patience)
            except BadRequest as error:
                refused = Request("GET", "/", {}, Body(), keep_alive=False)
                return error_reply(error).write(wire, refused)
            if request is None:
                return None
            patience = IDLE_TIMEOUT
            try:
                self._answer(request, wire)
                if not request.keep_alive or not request.body.drain():
                    return None
            except BadRequest as error:
                request.keep_alive = False
                return error_reply(error).write(wire, request)

    def _answer(self, request: Request, wire: Wire) -> None:
        """Read what is left of a request and write its answer. Raises `BadRequest` for one that is no HTTP."""
        raise NotImplementedError

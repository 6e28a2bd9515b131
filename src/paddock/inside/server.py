"""Accepts connections and answers their requests, a thread for each."""

from __future__ import annotations

import os
import socket
import sys
import threading

from .box import Box
from .errors import ApiError
from .http import BadRequest, Body, Reply, Request, error_reply, read_request
from .routes import QUIET, Router
from .settings import Listen
from .wire import Disconnected, Wire, hang_up

MAX_CONNECTIONS = 512
IDLE_TIMEOUT = 600.0


def open_listener(listen: Listen) -> socket.socket:
    if listen.fd is not None:
        sock = socket.socket(fileno=listen.fd)
        sock.set_inheritable(False)
        return sock
    if listen.unix is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(listen.unix)
        os.chmod(listen.unix, 0o600)
    else:
        assert listen.tcp is not None
        sock = socket.socket(socket.AF_INET6 if ":" in listen.tcp[0] else socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(listen.tcp)
    sock.listen(128)
    return sock


class Server:
    """The daemon's front door: every request shows the token first."""

    def __init__(self, box: Box, listener: socket.socket) -> None:
        self._box = box
        self._listener = listener
        self._router = Router()
        self._token = box.settings.token.encode("utf-8", "surrogateescape")
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

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
        while True:
            try:
                request = read_request(wire, IDLE_TIMEOUT)
            except BadRequest as error:
                refused = Request("GET", "/", {}, Body(), keep_alive=False)
                return error_reply(error).write(wire, refused)
            if request is None:
                return None
            try:
                self._answer(request, wire)
                if not request.keep_alive or not request.body.drain():
                    return None
            except BadRequest as error:
                request.keep_alive = False
                return error_reply(error).write(wire, request)

    def _answer(self, request: Request, wire: Wire) -> None:
        try:
            self._authorize(request)
            handler = self._router.find(request)
        except ApiError as error:
            return self._refuse(request, error, wire)
        quiet = request.path in QUIET
        if not quiet:
            self._box.activity.begin()
        try:
            try:
                reply: Reply = handler(self._box, request)
            except BadRequest:
                raise
            except ApiError as error:
                return self._refuse(request, error, wire)
            except (Disconnected, ConnectionError):
                raise Disconnected from None
            except Exception as error:
                return self._refuse(request, _unexpected(error), wire)
            reply.write(wire, request)
        finally:
            if not quiet:
                self._box.activity.end()

    def _refuse(self, request: Request, error: ApiError, wire: Wire) -> None:
        if not request.body.finished and request.body.length != 0:
            request.keep_alive = request.keep_alive and request.body.drain()
        error_reply(error).write(wire, request)

    def _authorize(self, request: Request) -> None:
        shown = request.header("x-execd-access-token")
        if not shown and request.header("upgrade").lower() == "websocket":
            shown = request.query("token")
        if not same_secret(shown.encode("utf-8", "surrogateescape"), self._token):
            raise ApiError(401, "UNAUTHORIZED", "the header X-EXECD-ACCESS-TOKEN is missing or wrong")


def same_secret(shown: bytes, expected: bytes) -> bool:
    """Compare in a time that does not depend on where the first difference is."""
    difference = len(shown) ^ len(expected)
    for position in range(len(expected)):
        difference |= (shown[position] if position < len(shown) else 0) ^ expected[position]
    return difference == 0


def _unexpected(error: Exception) -> ApiError:
    from traceback import print_exception

    print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return ApiError(500, "RUNTIME_ERROR", f"{type(error).__name__}: {error}")

"""Answers what the host asks of the daemon."""

from __future__ import annotations

import os
import socket
import sys

from .box import Box
from .doorway import Doorway
from .errors import ApiError
from .http import BadRequest, Reply, Request, error_reply
from .routes import QUIET, Router
from .settings import Listen
from .wire import Disconnected, Wire

MAX_CONNECTIONS = 512


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


class Server(Doorway):
    """The daemon's front door: every request shows the token first."""

    def __init__(self, box: Box, listener: socket.socket) -> None:
        self._box = box
        super().__init__(listener, MAX_CONNECTIONS)
        self._router = Router()
        self._token = box.settings.token.encode("utf-8", "surrogateescape")

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

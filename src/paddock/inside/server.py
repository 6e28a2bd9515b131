"""The daemon's HTTP server: checks the token, finds the handler, writes the reply."""

from __future__ import annotations

import os
import socket
import sys

from .daemon import Daemon
from .errors import ApiError
from .http.buffered_socket import BufferedSocket, PeerDisconnected
from .http.http11 import HttpReply, IncomingRequest, MalformedRequest, error_reply
from .http.threaded_server import ThreadedHttpServer
from .routes import PASSIVE_PATHS, HandlerRouter
from .settings import ListenSettings

MAX_CONNECTIONS = 512


def open_listening_socket(listen: ListenSettings) -> socket.socket:
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


class DaemonServer(ThreadedHttpServer):
    """HTTP server of the daemon; every request must carry the token."""

    def __init__(self, daemon: Daemon, listener: socket.socket) -> None:
        self._daemon = daemon
        super().__init__(listener, MAX_CONNECTIONS, daemon.threads)
        self._router = HandlerRouter()
        self._token = daemon.settings.token.encode("utf-8", "surrogateescape")

    def _handle_request(self, request: IncomingRequest, client: BufferedSocket) -> None:
        try:
            self._authorize(request)
            handler = self._router.find_handler(request)
        except ApiError as error:
            return self._refuse(request, error, client)
        quiet = request.path in PASSIVE_PATHS
        if not quiet:
            self._daemon.idle_tracker.call_started()
        try:
            try:
                reply: HttpReply = handler(self._daemon, request)
            except MalformedRequest:
                raise
            except ApiError as error:
                return self._refuse(request, error, client)
            except (PeerDisconnected, ConnectionError):
                raise PeerDisconnected from None
            except Exception as error:
                return self._refuse(request, _internal_error(error), client)
            reply.write(client, request)
        finally:
            if not quiet:
                self._daemon.idle_tracker.call_ended()

    def _refuse(self, request: IncomingRequest, error: ApiError, client: BufferedSocket) -> None:
        if not request.body.finished and request.body.length != 0:
            request.keep_alive = request.keep_alive and request.body.drain()
        error_reply(error).write(client, request)

    def _authorize(self, request: IncomingRequest) -> None:
        shown = request.header("x-execd-access-token")
        if not shown and request.header("upgrade").lower() == "websocket":
            shown = request.query("token")
        if not secrets_equal(shown.encode("utf-8", "surrogateescape"), self._token):
            raise ApiError(401, "UNAUTHORIZED", "the header X-EXECD-ACCESS-TOKEN is missing or wrong")


def secrets_equal(shown: bytes, expected: bytes) -> bool:
    """Compare in constant time."""
    difference = len(shown) ^ len(expected)
    for position in range(len(expected)):
        difference |= (shown[position] if position < len(shown) else 0) ^ expected[position]
    return difference == 0


def _internal_error(error: Exception) -> ApiError:
    from traceback import print_exception

    print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return ApiError(500, "RUNTIME_ERROR", f"{type(error).__name__}: {error}")

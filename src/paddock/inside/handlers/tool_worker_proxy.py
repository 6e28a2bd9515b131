"""Handlers that forward requests to the tool worker and its replies back."""

from __future__ import annotations

import select
import socket
import time

from ..daemon import Daemon
from ..errors import ApiError
from ..http.buffered_socket import BLOCK, PeerDisconnected
from ..http.http11 import (
    BufferedSocket,
    ChunkedBody,
    ChunkedWriter,
    HttpReply,
    IncomingRequest,
    MalformedRequest,
    RawConnectionReply,
    StreamingReply,
    error_reply,
    ndjson_error_line,
)
from ..services.tool_worker import ToolWorker, ToolWorkerConnection

MAX_BODY = 32 * 1024 * 1024
MAX_REPLY = 128 * 1024 * 1024
MAX_HEAD = 64 * 1024
HEAD_TIMEOUT = 30.0

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "content-length", "expect",
     "upgrade", "host", "x-execd-access-token", "x-paddock-root"}
)  # fmt: skip


def forward_to_tool_worker(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Forward a request to the worker on a pooled connection."""
    return _ForwardedReply(daemon.tool_worker, request.body.read_all(MAX_BODY))


def stream_from_tool_worker(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Forward a request and stream the reply until the client disconnects."""
    connection = daemon.tool_worker.connect()
    return RawConnectionReply(lambda client: _stream_reply(daemon.tool_worker, connection, request, client))


class _ForwardedReply(HttpReply):
    def __init__(self, worker: ToolWorker, body: bytes) -> None:
        super().__init__()
        self._worker = worker
        self._body = body

    def write(self, client: BufferedSocket, request: IncomingRequest) -> None:
        try:
            reply = self._request_reply(client, request)
        except ApiError as error:
            reply = error_reply(error)
        reply.write(client, request)

    def _request_reply(self, client: BufferedSocket, request: IncomingRequest) -> HttpReply:
        message = _request_head(request, self._body, "keep-alive") + self._body
        for attempt in (1, 2):
            connection = self._worker.connect()
            try:
                reply = self._exchange_messages(connection, client, message)
            except _WorkerHungUp as hung_up:
                connection.socket.close()
                if attempt == 2 or not hung_up.unread:
                    raise self._worker.describe_failure(connection) from None
            except PeerDisconnected:
                connection.socket.close()
                self._worker.check_health(connection)
                raise
            except BaseException:
                connection.socket.close()
                raise
            else:
                if not isinstance(reply, StreamingReply):
                    self._worker.keep_connection(connection)
                return reply
        raise AssertionError("unreachable: the second attempt returns or raises")

    def _exchange_messages(self, connection: ToolWorkerConnection, client: BufferedSocket, message: bytes) -> HttpReply:
        try:
            connection.send(message)
        except PeerDisconnected as error:
            raise _WorkerHungUp(error.__cause__) from None
        _wait_for_reply(connection, client)
        try:
            status, headers = _read_head(connection)
            if _header_value(headers, "transfer-encoding") == "chunked":
                kind = _header_value(headers, "content-type")
                return StreamingReply(kind, lambda chunks: self._forward_lines(connection, client, chunks))
            passed = [pair for pair in headers if pair[0].lower() not in _HOP_BY_HOP]
            return HttpReply(status, _read_body(connection, headers), passed)
        except PeerDisconnected as error:
            raise _WorkerHungUp(error.__cause__) from None

    def _forward_lines(self, connection: ToolWorkerConnection, client: BufferedSocket, chunks: ChunkedWriter) -> None:
        """Forward the lines of a reply as they arrive; if the worker breaks off, the last line is an error."""
        body = ChunkedBody(connection)
        try:
            while not body.finished:
                if not connection.buffered:
                    _wait_for_reply(connection, client)
                try:
                    data = body.read_some()
                except (PeerDisconnected, MalformedRequest):
                    connection.socket.close()
                    return chunks.send(ndjson_error_line(self._worker.describe_failure(connection)))
                chunks.send(data)
        except PeerDisconnected:
            connection.socket.close()
            self._worker.check_health(connection)
            raise
        return self._worker.keep_connection(connection)


class _WorkerHungUp(Exception):
    """The worker closed the connection without a reply; `unread` if it had not read the request."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        # Closing a Unix socket with unread bytes resets the connection; otherwise it ends normally.
        self.unread = isinstance(error, (ConnectionResetError, BrokenPipeError))


def _stream_reply(
    worker: ToolWorker, connection: ToolWorkerConnection, request: IncomingRequest, client: BufferedSocket
) -> None:
    with connection.socket:
        try:
            connection.send(_request_head(request, b"", "close"))
            _wait_for_reply(connection, client)
            data = connection.socket.recv(BLOCK)
        except (ConnectionError, PeerDisconnected):
            data = b""
        if not data:
            return error_reply(worker.describe_failure(connection)).write(client, request)
        while data:
            client.send(data)
            _wait_for_reply(connection, client)
            data = connection.socket.recv(BLOCK)
    return None


def _wait_for_reply(connection: ToolWorkerConnection, client: BufferedSocket) -> None:
    """Wait for the worker's reply until the client disconnects; the client decides how long a tool may take."""
    poller = select.poll()
    poller.register(connection.socket, select.POLLIN)
    # On a Unix socket, a half-closed client can be distinguished from one that disconnected.
    client_events = 0 if client.socket.family == socket.AF_UNIX else select.POLLRDHUP
    poller.register(client.socket, client_events)
    ready = dict(poller.poll())
    if connection.socket.fileno() not in ready:
        raise PeerDisconnected


def _request_head(request: IncomingRequest, body: bytes, connection: str) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1", "host: tools", f"connection: {connection}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _HOP_BY_HOP]
    if body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_head(connection: ToolWorkerConnection) -> tuple[int, list[tuple[str, str]]]:
    head = connection.read_until(b"\r\n\r\n", MAX_HEAD, time.monotonic() + HEAD_TIMEOUT)
    first, *fields = (head or b"").decode("latin-1").split("\r\n")
    status = first.split(" ")[1:2]
    if not first.startswith("HTTP/1.1 ") or not status[0].isdigit():
        raise _invalid_response()
    pairs = [field.partition(":") for field in fields]
    return int(status[0]), [(name, value.strip()) for name, _, value in pairs]


def _read_body(connection: ToolWorkerConnection, headers: list[tuple[str, str]]) -> bytes:
    length = _header_value(headers, "content-length")
    if not length.isdigit():
        raise _invalid_response()
    if int(length) > MAX_REPLY:
        raise ApiError(502, "TOOLS_BROKE_OFF", f"the tool's result is larger than {MAX_REPLY >> 20} MiB")
    return connection.read_exactly(int(length))


def _header_value(headers: list[tuple[str, str]], name: str) -> str:
    return next((value for each, value in headers if each.lower() == name), "")


def _invalid_response() -> ApiError:
    return ApiError(502, "TOOLS_BROKE_OFF", "the sandbox's tool worker sent an invalid HTTP response")

"""Passes requests on to the tool worker, and its answers back."""

from __future__ import annotations

import select
import socket
import time

from ..box import Box
from ..errors import ApiError
from ..http import BadRequest, ChunkedBody, Chunks, Reply, Request, StreamReply, Takeover, Wire, error_line, error_reply
from ..wire import BLOCK, Disconnected
from ..worker import Line, Worker

MAX_BODY = 32 * 1024 * 1024
MAX_ANSWER = 128 * 1024 * 1024
MAX_HEAD = 64 * 1024
HEAD_TIMEOUT = 30.0

_NOT_PASSED_ON = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "content-length", "expect",
     "upgrade", "host", "x-execd-access-token", "x-paddock-root"}
)  # fmt: skip


def forward(box: Box, request: Request) -> Reply:
    """Have the worker answer, on a connection that is kept for the next call."""
    return _Forwarded(box.worker, request.body.read_all(MAX_BODY))


def stream(box: Box, request: Request) -> Reply:
    """Have the worker answer for as long as somebody listens."""
    line = box.worker.connect()
    return Takeover(lambda wire: _stream(box.worker, line, request, wire))


class _Forwarded(Reply):
    def __init__(self, worker: Worker, body: bytes) -> None:
        super().__init__()
        self._worker = worker
        self._body = body

    def write(self, wire: Wire, request: Request) -> None:
        try:
            reply = self._ask(wire, request)
        except ApiError as error:
            reply = error_reply(error)
        reply.write(wire, request)

    def _ask(self, wire: Wire, request: Request) -> Reply:
        message = _request_head(request, self._body, "keep-alive") + self._body
        for attempt in (1, 2):
            line = self._worker.connect()
            try:
                reply = self._exchange(line, wire, message)
            except _Left as left:
                line.socket.close()
                if attempt == 2 or not left.unread:
                    raise self._worker.death(line) from None
            except Disconnected:
                line.socket.close()
                self._worker.suspect(line)
                raise
            except BaseException:
                line.socket.close()
                raise
            else:
                if not isinstance(reply, StreamReply):
                    self._worker.give_back(line)
                return reply
        raise AssertionError("two attempts are all there are")

    def _exchange(self, line: Line, wire: Wire, message: bytes) -> Reply:
        try:
            line.send(message)
        except Disconnected as error:
            raise _Left(error.__cause__) from None
        _await_answer(line, wire)
        try:
            status, headers = _read_head(line)
            if _field(headers, "transfer-encoding") == "chunked":
                kind = _field(headers, "content-type")
                return StreamReply(kind, lambda chunks: self._pass_on(line, wire, chunks))
            passed = [pair for pair in headers if pair[0].lower() not in _NOT_PASSED_ON]
            return Reply(status, _read_body(line, headers), passed)
        except Disconnected as error:
            raise _Left(error.__cause__) from None

    def _pass_on(self, line: Line, wire: Wire, chunks: Chunks) -> None:
        """Pass on the lines of an answer as they come; if the worker breaks off, a last one says so."""
        body = ChunkedBody(line)
        try:
            while not body.finished:
                if not line.buffered:
                    _await_answer(line, wire)
                try:
                    data = body.read_some()
                except (Disconnected, BadRequest):
                    line.socket.close()
                    return chunks.send(error_line(self._worker.death(line)))
                chunks.send(data)
        except Disconnected:
            line.socket.close()
            self._worker.suspect(line)
            raise
        return self._worker.give_back(line)


class _Left(Exception):
    """The worker hung up instead of answering; `unread` when it did so before it had read the call."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        # A Unix socket that is closed with bytes in it resets the connection, one that was read out ends it.
        self.unread = isinstance(error, (ConnectionResetError, BrokenPipeError))


def _stream(worker: Worker, line: Line, request: Request, wire: Wire) -> None:
    with line.socket:
        try:
            line.send(_request_head(request, b"", "close"))
            _await_answer(line, wire)
            data = line.socket.recv(BLOCK)
        except (ConnectionError, Disconnected):
            data = b""
        if not data:
            return error_reply(worker.death(line)).write(wire, request)
        while data:
            wire.send(data)
            _await_answer(line, wire)
            data = line.socket.recv(BLOCK)
    return None


def _await_answer(line: Line, wire: Wire) -> None:
    """Wait for as long as the client does: how long a tool may take is for the client to say."""
    poller = select.poll()
    poller.register(line.socket, select.POLLIN)
    # On a Unix socket a client that only said all it has to say is told from one that left.
    leaving = 0 if wire.socket.family == socket.AF_UNIX else select.POLLRDHUP
    poller.register(wire.socket, leaving)
    ready = dict(poller.poll())
    if line.socket.fileno() not in ready:
        raise Disconnected


def _request_head(request: Request, body: bytes, connection: str) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1", "host: tools", f"connection: {connection}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _NOT_PASSED_ON]
    if body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_head(line: Line) -> tuple[int, list[tuple[str, str]]]:
    head = line.read_until(b"\r\n\r\n", MAX_HEAD, time.monotonic() + HEAD_TIMEOUT)
    first, *fields = (head or b"").decode("latin-1").split("\r\n")
    status = first.split(" ")[1:2]
    if not first.startswith("HTTP/1.1 ") or not status[0].isdigit():
        raise _nonsense()
    pairs = [field.partition(":") for field in fields]
    return int(status[0]), [(name, value.strip()) for name, _, value in pairs]


def _read_body(line: Line, headers: list[tuple[str, str]]) -> bytes:
    length = _field(headers, "content-length")
    if not length.isdigit():
        raise _nonsense()
    if int(length) > MAX_ANSWER:
        raise ApiError(502, "TOOLS_BROKE_OFF", f"the tool's answer is larger than {MAX_ANSWER >> 20} MiB")
    return line.read_exactly(int(length))


def _field(headers: list[tuple[str, str]], name: str) -> str:
    return next((value for each, value in headers if each.lower() == name), "")


def _nonsense() -> ApiError:
    return ApiError(502, "TOOLS_BROKE_OFF", "the box's tools answer with something that is no answer")

"""A small, strict HTTP/1.1: requests with streamed bodies in, replies out."""

from __future__ import annotations

import json
import time

from .errors import ApiError, invalid
from .wire import BLOCK, Disconnected, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MAX_REQUEST_LINE = 16 * 1024
MAX_HEAD = 64 * 1024
MAX_HEADERS = 100
MAX_JSON = 8 * 1024 * 1024
HEAD_TIMEOUT = 15.0

_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CONTROLS = bytes(c for c in range(32) if c != 9) + b"\x7f"
_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"
_SINGLE = frozenset({"content-length", "transfer-encoding", "host", "x-execd-access-token", "x-paddock-root"})
_REASONS = {
    100: "Continue", 101: "Switching Protocols", 200: "OK", 202: "Accepted", 204: "No Content",
    206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large", 414: "URI Too Long",
    416: "Range Not Satisfiable", 426: "Upgrade Required", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}  # fmt: skip


class BadRequest(ApiError):
    """The bytes were not a request we can frame, so the connection cannot go on."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(status, "BAD_REQUEST", message)


class Body:
    """A request body without any bytes."""

    finished = True
    length: int | None = 0

    def read_some(self) -> bytes:
        """Return the next bytes, or nothing at the end."""
        return b""

    def read_all(self, limit: int = MAX_JSON) -> bytes:
        parts, size = [], 0
        while data := self.read_some():
            size += len(data)
            if size > limit:
                raise ApiError(413, "BODY_TOO_LARGE", f"the request body is larger than {limit} bytes")
            parts.append(data)
        return b"".join(parts)

    def drain(self, limit: int = BLOCK) -> bool:
        """Skip what a handler left unread; False when there is too much of it to be worth it."""
        size = 0
        while size <= limit:
            data = self.read_some()
            if not data:
                return True
            size += len(data)
        return False


class _StreamedBody(Body):
    def __init__(self, wire: Wire, expects_continue: bool) -> None:
        self.finished = False
        self._wire = wire
        self._expects_continue = expects_continue

    def read_some(self) -> bytes:
        if self.finished:
            return b""
        if self._expects_continue:
            self._expects_continue = False
            self._wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self._next()

    def drain(self, limit: int = BLOCK) -> bool:
        return False if self._expects_continue else super().drain(limit)

    def _next(self) -> bytes:
        raise NotImplementedError


class _SizedBody(_StreamedBody):
    def __init__(self, wire: Wire, expects_continue: bool, length: int) -> None:
        super().__init__(wire, expects_continue)
        self.length = self._left = length
        self.finished = length == 0

    def _next(self) -> bytes:
        data = self._wire.read_some(self._left)
        self._left -= len(data)
        self.finished = self._left == 0
        return data


class ChunkedBody(_StreamedBody):
    length = None

    def __init__(self, wire: Wire, expects_continue: bool = False) -> None:
        super().__init__(wire, expects_continue)
        self._left = 0

    def _next(self) -> bytes:
        if self._left == 0:
            self._left = self._read_size()
            if self._left == 0:
                self._skip_trailers()
                self.finished = True
                return b""
        data = self._wire.read_some(self._left)
        self._left -= len(data)
        if self._left == 0 and self._wire.read_exactly(2) != b"\r\n":
            raise BadRequest("a chunk is not followed by a line break")
        return data

    def _line(self) -> bytes:
        line = self._wire.read_until(b"\r\n", 1024, time.monotonic() + self._wire.timeout)
        if line is None:
            raise BadRequest("a chunk header is too long")
        return line

    def _read_size(self) -> int:
        size = self._line().partition(b";")[0].rstrip(b" \t")
        if not 1 <= len(size) <= 15 or size.translate(None, _HEX):
            raise BadRequest("a chunk size is not a hexadecimal number")
        return int(size, 16)

    def _skip_trailers(self) -> None:
        for _ in range(MAX_HEADERS):
            if not self._line():
                return
        raise BadRequest("too many trailers", 431)


class Request:
    """One parsed request; `path` is percent-decoded, `target` is as it was sent."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: Body, keep_alive: bool) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive
        raw_path, _, self.raw_query = target.partition("?")
        self.raw_path = raw_path
        self.path = percent_decode(raw_path)
        self.params: dict[str, str] = {}
        self._query: dict[str, list[str]] | None = None

    def header(self, name: str, default: str = "") -> str:
        return self.headers.get(name, default)

    def query_all(self, name: str) -> list[str]:
        if self._query is None:
            self._query = {}
            for pair in self.raw_query.split("&"):
                if pair:
                    key, _, value = pair.replace("+", " ").partition("=")
                    self._query.setdefault(percent_decode(key), []).append(percent_decode(value))
        return self._query.get(name, [])

    def query(self, name: str, default: str = "") -> str:
        values = self.query_all(name)
        return values[0] if values else default

    def query_int(self, name: str, default: int | None = None) -> int | None:
        text = self.query(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise ApiError(400, "MISSING_QUERY", f"query parameter {name!r} must be a whole number, not {text!r}")
        return int(text)

    def json_object(self) -> dict[str, Any]:
        document = self.json()
        if not isinstance(document, dict):
            raise invalid("the request body must be a JSON object")
        return document

    def json(self) -> Any:
        data = self.body.read_all()
        if not data.strip():
            return {}
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise invalid(f"the request body is not JSON: {error}") from None


class Reply:
    """An answer with a known body."""

    def __init__(self, status: int = 200, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)

    def write(self, wire: Wire, request: Request) -> None:
        head = render_head(self.status, [*self.headers, ("Content-Length", str(len(self.body)))], request.keep_alive)
        wire.send(head if request.method == "HEAD" else head + self.body)


class StreamReply(Reply):
    """An answer whose body is produced as it goes, in chunks."""

    def __init__(self, content_type: str, produce: Callable[[Chunks], None], headers: Iterable[tuple[str, str]] = ()):
        super().__init__(200, b"", [("Content-Type", content_type), *headers])
        self._produce = produce

    def write(self, wire: Wire, request: Request) -> None:
        headers = [*self.headers, ("Transfer-Encoding", "chunked"), ("Cache-Control", "no-cache")]
        head = render_head(self.status, headers, request.keep_alive)
        if request.method == "HEAD":
            wire.send(head)
            return
        chunks = Chunks(wire, head)
        self._produce(chunks)
        chunks.finish()


class Takeover(Reply):
    """A handler that speaks on the connection itself and ends it."""

    def __init__(self, run: Callable[[Wire], None]) -> None:
        super().__init__()
        self._run = run

    def write(self, wire: Wire, request: Request) -> None:
        request.keep_alive = False
        self._run(wire)


class Chunks:
    """Writes chunked transfer coding; the head leaves together with the first bytes."""

    def __init__(self, wire: Wire, head: bytes) -> None:
        self.wire = wire
        self._head = head

    def frame(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        return b"%s%x\r\n%s\r\n" % (head, len(data), data) if data else head

    def send(self, data: bytes) -> None:
        if framed := self.frame(data):
            self.wire.send(framed)

    def send_file(self, data: bytes, descriptor: int, offset: int, count: int) -> int:
        """Send `data` and bytes of a file in one chunk; returns how many the file had. The rest is zeros."""
        self.wire.send(self.frame(b"") + b"%x\r\n%s" % (len(data) + count, data))
        with open(descriptor, "rb", buffering=0, closefd=False) as stream:
            sent = self.wire.send_file(stream, offset, count)
        self.wire.send(bytes(count - sent) + b"\r\n")
        return sent

    def finish(self) -> None:
        self.wire.send(self.frame(b"") + b"0\r\n\r\n")


def json_reply(document: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(document).encode(), [("Content-Type", "application/json")])


def error_reply(error: ApiError) -> Reply:
    message = error.message.encode("utf-8", "replace").decode()
    return json_reply({"code": error.code, "message": message}, error.status)


def error_line(error: ApiError) -> bytes:
    """An error as the last of the lines of a stream, which had no status to tell it by."""
    told = {"status": error.status, "code": error.code, "message": error.message.encode("utf-8", "replace").decode()}
    return json.dumps({"error": told}).encode() + b"\n"


def render_head(status: int, headers: Iterable[tuple[str, str]], keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines.append("Connection: keep-alive\r\n\r\n" if keep_alive else "Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1")


def percent_decode(text: str) -> str:
    """Decode %XX; bytes that are not UTF-8 become surrogates, as in file names."""
    if "%" not in text:
        return text
    first, *rest = text.split("%")
    decoded = bytearray(first, "latin-1")
    for piece in rest:
        code = piece[:2]
        if len(code) < 2 or code.encode("latin-1").translate(None, _HEX):
            raise BadRequest("a percent sign in the address is not followed by two hexadecimal digits")
        decoded += bytes.fromhex(code) + piece[2:].encode("latin-1")
    return decoded.decode("utf-8", "surrogateescape")


def read_request(wire: Wire, idle_timeout: float) -> Request | None:
    """Read the next request; None when the client is done."""
    if not wire.wait_for_data(idle_timeout):
        return None
    deadline = time.monotonic() + HEAD_TIMEOUT
    line = b""
    for _ in range(3):
        found = wire.read_until(b"\r\n", MAX_REQUEST_LINE, deadline)
        if found is None:
            raise BadRequest("the request line is too long", 414)
        line = found
        if line:
            break
    method, target, version = _parse_request_line(line)
    headers = _read_headers(wire, deadline)
    if version == "HTTP/1.1" and "host" not in headers:
        raise BadRequest("an HTTP/1.1 request needs a Host header")
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
    return Request(method, target, headers, _body_of(wire, headers, version), keep_alive)


def _parse_request_line(line: bytes) -> tuple[str, str, str]:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise BadRequest("the request line must be: METHOD TARGET VERSION")
    method, target, version = parts
    if not method or method.translate(None, _TOKEN) or len(method) > 32:
        raise BadRequest("the request method is malformed")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
    if not target or any(byte <= 32 or byte >= 127 for byte in target):
        raise BadRequest("the request target has characters that must be percent-encoded")
    text = target.decode("ascii")
    if text.lower().startswith("http://"):
        text = "/" + text[7:].partition("/")[2]
    elif not text.startswith("/") and method != b"CONNECT":
        raise BadRequest("the request target must start with a slash")
    return method.decode("ascii"), text, version.decode("ascii")


def _read_headers(wire: Wire, deadline: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    budget = MAX_HEAD
    for _ in range(MAX_HEADERS + 1):
        line = wire.read_until(b"\r\n", budget, deadline)
        if line is None:
            raise BadRequest("the headers are too large", 431)
        if not line:
            return headers
        budget -= len(line)
        name_bytes, colon, value_bytes = line.partition(b":")
        if not colon or not name_bytes or name_bytes.translate(None, _TOKEN):
            raise BadRequest("a header line is malformed")
        if len(value_bytes.translate(None, _CONTROLS)) != len(value_bytes):
            raise BadRequest("a header value has control characters")
        name, value = name_bytes.decode("ascii").lower(), value_bytes.strip(b" \t").decode("latin-1")
        if name in headers:
            if name in _SINGLE:
                raise BadRequest(f"the header {name} must be sent once")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    raise BadRequest("too many headers", 431)


def _body_of(wire: Wire, headers: dict[str, str], version: str) -> Body:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    expects_continue = headers.get("expect", "").lower() == "100-continue"
    if coding is not None:
        if length is not None or version != "HTTP/1.1" or coding.lower() != "chunked":
            raise BadRequest("the body's framing is ambiguous: send either Content-Length or a chunked body")
        return ChunkedBody(wire, expects_continue)
    if length is None:
        return Body()
    digits = length.encode("latin-1")
    if not 1 <= len(digits) <= 18 or digits.translate(None, _DIGITS):
        raise BadRequest("Content-Length is not a number")
    return _SizedBody(wire, expects_continue, int(digits))


__all__ = ["Disconnected", "Reply", "Request", "StreamReply", "Takeover", "Wire", "json_reply", "read_request"]

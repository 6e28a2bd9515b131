"""Small, strict HTTP/1.1: parses requests with streamed bodies, renders replies."""

from __future__ import annotations

import json
import time

from ..errors import ApiError, invalid_body_error
from .buffered_socket import BLOCK, BufferedSocket

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
_SINGLE_HEADERS = frozenset({"content-length", "transfer-encoding", "host", "x-execd-access-token", "x-paddock-root"})
_REASONS = {
    100: "Continue", 101: "Switching Protocols", 200: "OK", 202: "Accepted", 204: "No Content",
    206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large", 414: "URI Too Long",
    416: "Range Not Satisfiable", 426: "Upgrade Required", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}  # fmt: skip


class MalformedRequest(ApiError):
    """The bytes cannot be framed as a request, so the connection must be closed."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(status, "BAD_REQUEST", message)


class IncomingBody:
    """Request body; this base class is the empty one."""

    finished = True
    length: int | None = 0

    def read_some(self) -> bytes:
        """Return the next bytes; empty at the end."""
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
        """Skip the unread rest of the body; False if it is larger than `limit`."""
        size = 0
        while size <= limit:
            data = self.read_some()
            if not data:
                return True
            size += len(data)
        return False


class _StreamedBody(IncomingBody):
    def __init__(self, client: BufferedSocket, expects_continue: bool) -> None:
        self.finished = False
        self._client = client
        self._expects_continue = expects_continue

    def read_some(self) -> bytes:
        if self.finished:
            return b""
        if self._expects_continue:
            self._expects_continue = False
            self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self._read_next()

    def drain(self, limit: int = BLOCK) -> bool:
        return False if self._expects_continue else super().drain(limit)

    def _read_next(self) -> bytes:
        raise NotImplementedError


class _SizedBody(_StreamedBody):
    def __init__(self, client: BufferedSocket, expects_continue: bool, length: int) -> None:
        super().__init__(client, expects_continue)
        self.length = self._left = length
        self.finished = length == 0

    def _read_next(self) -> bytes:
        data = self._client.read_some(self._left)
        self._left -= len(data)
        self.finished = self._left == 0
        return data


class ChunkedBody(_StreamedBody):
    length = None

    def __init__(self, client: BufferedSocket, expects_continue: bool = False) -> None:
        super().__init__(client, expects_continue)
        self._left = 0

    def _read_next(self) -> bytes:
        if self._left == 0:
            self._left = self._read_size()
            if self._left == 0:
                self._skip_trailers()
                self.finished = True
                return b""
        data = self._client.read_some(self._left)
        self._left -= len(data)
        if self._left == 0 and self._client.read_exactly(2) != b"\r\n":
            raise MalformedRequest("a chunk is not followed by a line break")
        return data

    def _read_line(self) -> bytes:
        line = self._client.read_until(b"\r\n", 1024, time.monotonic() + self._client.timeout)
        if line is None:
            raise MalformedRequest("a chunk header is too long")
        return line

    def _read_size(self) -> int:
        size = self._read_line().partition(b";")[0].rstrip(b" \t")
        if not 1 <= len(size) <= 15 or size.translate(None, _HEX):
            raise MalformedRequest("a chunk size is not a hexadecimal number")
        return int(size, 16)

    def _skip_trailers(self) -> None:
        for _ in range(MAX_HEADERS):
            if not self._read_line():
                return
        raise MalformedRequest("too many trailers", 431)


class IncomingRequest:
    """One parsed request; `path` is percent-decoded, `target` is as received."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: IncomingBody, keep_alive: bool) -> None:
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

    def query_values(self, name: str) -> list[str]:
        if self._query is None:
            self._query = {}
            for pair in self.raw_query.split("&"):
                if pair:
                    key, _, value = pair.replace("+", " ").partition("=")
                    self._query.setdefault(percent_decode(key), []).append(percent_decode(value))
        return self._query.get(name, [])

    def query(self, name: str, default: str = "") -> str:
        values = self.query_values(name)
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
            raise invalid_body_error("the request body must be a JSON object")
        return document

    def json(self) -> Any:
        data = self.body.read_all()
        if not data.strip():
            return {}
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise invalid_body_error(f"the request body is not JSON: {error}") from None


class HttpReply:
    """Reply with a body of known length."""

    def __init__(self, status: int = 200, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)

    def write(self, client: BufferedSocket, request: IncomingRequest) -> None:
        head = render_response_head(
            self.status, [*self.headers, ("Content-Length", str(len(self.body)))], request.keep_alive
        )
        client.send(head if request.method == "HEAD" else head + self.body)


class StreamingReply(HttpReply):
    """Reply with a body that is produced piece by piece and sent chunked."""

    def __init__(
        self, content_type: str, produce: Callable[[ChunkedWriter], None], headers: Iterable[tuple[str, str]] = ()
    ):
        super().__init__(200, b"", [("Content-Type", content_type), *headers])
        self._produce = produce

    def write(self, client: BufferedSocket, request: IncomingRequest) -> None:
        headers = [*self.headers, ("Transfer-Encoding", "chunked"), ("Cache-Control", "no-cache")]
        head = render_response_head(self.status, headers, request.keep_alive)
        if request.method == "HEAD":
            client.send(head)
            return
        chunks = ChunkedWriter(client, head)
        self._produce(chunks)
        chunks.finish()


class RawConnectionReply(HttpReply):
    """Reply that takes over the connection, for upgrades and tunnels."""

    def __init__(self, run: Callable[[BufferedSocket], None]) -> None:
        super().__init__()
        self._run = run

    def write(self, client: BufferedSocket, request: IncomingRequest) -> None:
        request.keep_alive = False
        self._run(client)


class ChunkedWriter:
    """Writes chunked transfer coding; the head is sent together with the first bytes."""

    def __init__(self, client: BufferedSocket, head: bytes) -> None:
        self.client = client
        self._head = head

    def frame(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        return b"%s%x\r\n%s\r\n" % (head, len(data), data) if data else head

    def send(self, data: bytes) -> None:
        if framed := self.frame(data):
            self.client.send(framed)

    def send_file(self, data: bytes, descriptor: int, offset: int, count: int) -> int:
        """Send `data` and `count` bytes of a file in one chunk, padded with zeros; return how many the file had."""
        self.client.send(self.frame(b"") + b"%x\r\n%s" % (len(data) + count, data))
        with open(descriptor, "rb", buffering=0, closefd=False) as stream:
            sent = self.client.send_file(stream, offset, count)
        self.client.send(bytes(count - sent) + b"\r\n")
        return sent

    def finish(self) -> None:
        self.client.send(self.frame(b"") + b"0\r\n\r\n")


def json_reply(document: object, status: int = 200) -> HttpReply:
    return HttpReply(status, json.dumps(document).encode(), [("Content-Type", "application/json")])


def error_reply(error: ApiError) -> HttpReply:
    message = error.message.encode("utf-8", "replace").decode()
    return json_reply({"code": error.code, "message": message}, error.status)


def ndjson_error_line(error: ApiError) -> bytes:
    """Return an error as the last line of an NDJSON stream, because the status has been sent already."""
    document = {
        "status": error.status,
        "code": error.code,
        "message": error.message.encode("utf-8", "replace").decode(),
    }
    return json.dumps({"error": document}).encode() + b"\n"


def render_response_head(status: int, headers: Iterable[tuple[str, str]], keep_alive: bool) -> bytes:
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
            raise MalformedRequest("a percent sign in the address is not followed by two hexadecimal digits")
        decoded += bytes.fromhex(code) + piece[2:].encode("latin-1")
    return decoded.decode("utf-8", "surrogateescape")


def read_request(client: BufferedSocket, idle_timeout: float) -> IncomingRequest | None:
    """Read the next request; None when the client closed the connection or sent nothing."""
    if not client.wait_for_data(idle_timeout):
        return None
    deadline = time.monotonic() + HEAD_TIMEOUT
    line = b""
    for _ in range(3):
        found = client.read_until(b"\r\n", MAX_REQUEST_LINE, deadline)
        if found is None:
            raise MalformedRequest("the request line is too long", 414)
        line = found
        if line:
            break
    method, target, version = _parse_request_line(line)
    headers = _read_headers(client, deadline)
    if version == "HTTP/1.1" and "host" not in headers:
        raise MalformedRequest("an HTTP/1.1 request needs a Host header")
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
    return IncomingRequest(method, target, headers, _make_body(client, headers, version), keep_alive)


def _parse_request_line(line: bytes) -> tuple[str, str, str]:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise MalformedRequest("the request line must be: METHOD TARGET VERSION")
    method, target, version = parts
    if not method or method.translate(None, _TOKEN) or len(method) > 32:
        raise MalformedRequest("the request method is malformed")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise MalformedRequest("only HTTP/1.1 and HTTP/1.0 are supported", 505)
    if not target or any(byte <= 32 or byte >= 127 for byte in target):
        raise MalformedRequest("the request target has characters that must be percent-encoded")
    text = target.decode("ascii")
    if text.lower().startswith("http://"):
        text = "/" + text[7:].partition("/")[2]
    elif not text.startswith("/") and method != b"CONNECT":
        raise MalformedRequest("the request target must start with a slash")
    return method.decode("ascii"), text, version.decode("ascii")


def _read_headers(client: BufferedSocket, deadline: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    budget = MAX_HEAD
    for _ in range(MAX_HEADERS + 1):
        line = client.read_until(b"\r\n", budget, deadline)
        if line is None:
            raise MalformedRequest("the headers are too large", 431)
        if not line:
            return headers
        budget -= len(line)
        name_bytes, colon, value_bytes = line.partition(b":")
        if not colon or not name_bytes or name_bytes.translate(None, _TOKEN):
            raise MalformedRequest("a header line is malformed")
        if len(value_bytes.translate(None, _CONTROLS)) != len(value_bytes):
            raise MalformedRequest("a header value has control characters")
        name, value = name_bytes.decode("ascii").lower(), value_bytes.strip(b" \t").decode("latin-1")
        if name in headers:
            if name in _SINGLE_HEADERS:
                raise MalformedRequest(f"the header {name} must be sent once")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    raise MalformedRequest("too many headers", 431)


def _make_body(client: BufferedSocket, headers: dict[str, str], version: str) -> IncomingBody:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    expects_continue = headers.get("expect", "").lower() == "100-continue"
    if coding is not None:
        if length is not None or version != "HTTP/1.1" or coding.lower() != "chunked":
            raise MalformedRequest("the body's framing is ambiguous: send either Content-Length or a chunked body")
        return ChunkedBody(client, expects_continue)
    if length is None:
        return IncomingBody()
    digits = length.encode("latin-1")
    if not 1 <= len(digits) <= 18 or digits.translate(None, _DIGITS):
        raise MalformedRequest("Content-Length is not a number")
    return _SizedBody(client, expects_continue, int(digits))


__all__ = [
    "BufferedSocket",
    "HttpReply",
    "IncomingRequest",
    "RawConnectionReply",
    "StreamingReply",
    "json_reply",
    "read_request",
]

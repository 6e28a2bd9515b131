"""The heads of requests and answers as bytes, and what a door says when it refuses."""

from __future__ import annotations

import json
from http import HTTPStatus

from paddock.llm.wire.base import Headers

MAX_HEAD = 64 * 1024
"""Longest head that is taken from anybody."""
MAX_HEADERS = 100
"""Most headers of one request."""

OF_REQUESTS = frozenset(
    b"host content-length transfer-encoding connection keep-alive proxy-connection proxy-authorization te trailer "
    b"upgrade expect".split()
)
OF_ANSWERS = frozenset(b"content-length transfer-encoding connection keep-alive proxy-connection te trailer".split())
"""Headers that say how one connection carries a message. Each connection sets its own, and passing on those of
another would let two sides disagree on where a message ends."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
_ERROR_TYPES = {
    413: "request_too_large",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def head_bytes(first: tuple[bytes, ...], headers: Headers, without: frozenset[bytes]) -> bytes:
    """First lines and headers, without the end of the last line. Raises `ValueError` for what could pass as more."""
    lines = [*first, *[b"%b: %b" % header for header in headers if header[0] not in without]]
    head = b"\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise ValueError("a header holds a character that HTTP does not allow")
    return head


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown" % status


def error_body(status: int, message: str) -> bytes:
    """An error that the SDKs of OpenAI and of Anthropic both show."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def size_of(headers: Headers) -> int:
    """How long headers are on the wire."""
    return sum(len(name) + len(value) + 4 for name, value in headers)

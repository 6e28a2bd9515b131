"""Encode the heads of HTTP requests and responses, and the body of an error response."""

from __future__ import annotations

import json
from http import HTTPStatus

from paddock.llm.wire.base import Headers

MAX_HEAD_BYTES = 64 * 1024
"""Largest accepted head, in bytes."""
MAX_HEADERS = 100
"""Maximum number of headers of one request."""

CONNECTION_REQUEST_HEADERS = frozenset(
    b"host content-length transfer-encoding connection keep-alive proxy-connection proxy-authorization te trailer "
    b"upgrade expect".split()
)
CONNECTION_RESPONSE_HEADERS = frozenset(
    b"content-length transfer-encoding connection keep-alive proxy-connection te trailer".split()
)
"""Headers that describe how one connection carries a message. Each connection sets its own; forwarding them would let
two sides disagree on where a message ends."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
_ERROR_TYPES = {
    413: "request_too_large",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def encode_http_head(first: tuple[bytes, ...], headers: Headers, without: frozenset[bytes]) -> bytes:
    """Encode first lines and headers, without the last line break. Raises `ValueError` for header injection."""
    lines = [*first, *[b"%b: %b" % header for header in headers if header[0] not in without]]
    head = b"\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise ValueError("a header holds a character that HTTP does not allow")
    return head


def http_status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown" % status


def http_error_body(status: int, message: str) -> bytes:
    """Return the JSON body of an error in a form that the SDKs of OpenAI and Anthropic both display."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def headers_size(headers: Headers) -> int:
    """Return the size of headers on the wire, in bytes."""
    return sum(len(name) + len(value) + 4 for name, value in headers)

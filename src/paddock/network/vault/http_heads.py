"""Check and rewrite the heads of HTTP/1 messages between programs and servers.

`h11` parses and writes all messages, so both sides see the same lengths. It accepts some old forms that servers read in
different ways; these are refused before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import h11

from paddock.network.vault.secret_masking import SecretMask

MAX_HEAD = 64 * 1024
HEAD_END = b"\r\n\r\n"
_HOP_BY_HOP = frozenset(b"connection keep-alive proxy-connection proxy-authorization te trailer upgrade".split())
_REPLACED = frozenset((b"accept-encoding", b"sec-websocket-extensions"))
"""Compression would hide values from the mask."""
_REFUSED_UPGRADES = frozenset((b"h2c",))
Headers = list[tuple[bytes, bytes]]


class RefusedRequest(Exception):
    """A request is refused with a status and a message for the program."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def check_raw_head(head: bytes) -> None:
    """Refuse forms of a head that servers read differently. Raises `RefusedRequest`."""
    lines = head.removesuffix(HEAD_END).split(b"\r\n")
    if any(character in line for line in lines for character in (b"\n", b"\r", b"\0")):
        raise RefusedRequest(400, "a line of the request's head does not end with CR LF")
    if any(line[:1] in (b" ", b"\t") for line in lines[1:]):
        raise RefusedRequest(400, "a header is continued on the next line")
    names = [line.partition(b":")[0].strip().lower() for line in lines[1:]]
    if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
        raise RefusedRequest(400, "the length of the request's body is given more than once")


def check_request(request: h11.Request, host: str, port: int, default_port: int) -> None:
    """Refuse ambiguous framing and requests for other hosts. Raises `RefusedRequest`."""
    if header_values(request.headers, b"transfer-encoding") and request.http_version < b"1.1":
        raise RefusedRequest(400, "HTTP/1.0 has no Transfer-Encoding")
    if request.method == b"CONNECT" or not (
        request.target.startswith(b"/") or (request.target == b"*" and request.method == b"OPTIONS")
    ):
        raise RefusedRequest(400, "the request's target must be a path")
    expected = {host.encode(), f"{host}:{port}".encode()} if port == default_port else {f"{host}:{port}".encode()}
    for value in header_values(request.headers, b"host"):
        if value.lower().replace(b".:", b":").removesuffix(b".") not in expected:
            shown = value[:100].decode("ascii", "replace")
            raise RefusedRequest(421, f"the request is for {shown}, but the connection is to {host}:{port}")


def request_headers(
    request: h11.Request, host_header: bytes, injected: Sequence[tuple[str, str]]
) -> tuple[Headers, bool]:
    """Return the headers to send on, and whether the request asks for another protocol.

    Injected headers replace those of the program, also in the spelling with underscores that some servers equate.
    """
    upgrade = _requested_upgrade(request)
    dropped = {*_dropped_headers(request.headers), *_REPLACED}
    replaced = {name.lower().encode() for name, _ in injected}
    headers = [
        (name, value)
        for name, value in request.headers.raw_items()
        if name.lower() not in dropped and name.lower().replace(b"_", b"-") not in replaced
    ]
    if not header_values(request.headers, b"host"):
        headers.insert(0, (b"Host", host_header))
    headers += [(name.encode(), value.encode()) for name, value in injected]
    headers.append((b"Accept-Encoding", b"identity"))
    if upgrade is not None:
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade)]
    return headers, upgrade is not None


def response_headers(response: h11.Response | h11.InformationalResponse, mask: SecretMask, decoded: bool) -> Headers:
    """Return masked headers; drop headers of an encoding that was decoded."""
    dropped = _dropped_headers(response.headers)
    if decoded:
        dropped |= {b"content-encoding", b"content-length"}
    headers = [(name, mask.mask(value)) for name, value in response.headers.raw_items() if name.lower() not in dropped]
    if response.status_code == 101:
        headers.append((b"Connection", b"Upgrade"))
        headers += [(b"Upgrade", value) for value in header_values(response.headers, b"upgrade")]
    return headers


def header_values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for each, value in headers if each == name]


def asks_to_close(message: h11.Request | h11.Response) -> bool:
    return any(b"close" in _words(value) for value in header_values(message.headers, b"connection"))


def _dropped_headers(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """Return names of hop-by-hop headers: known names and names listed in `Connection`, except framing headers."""
    named = {word for value in header_values(headers, b"connection") for word in _words(value)}
    return (named - {b"content-length", b"transfer-encoding", b"host"}) | _HOP_BY_HOP


def _requested_upgrade(request: h11.Request) -> bytes | None:
    words = [word for value in header_values(request.headers, b"connection") for word in _words(value)]
    protocols = header_values(request.headers, b"upgrade")
    if b"upgrade" not in words or len(protocols) != 1 or request.http_version < b"1.1":
        return None
    return None if set(_words(protocols[0])) & _REFUSED_UPGRADES else protocols[0]


def _words(value: bytes) -> list[bytes]:
    return [word.strip().lower() for word in value.split(b",")]

"""Which headers pass between a client and a box, and how they are changed on the way.

What a box answers appears under the server's own origin, so nothing it says may speak for that origin: headers with
an effect beyond the answer itself are dropped, cookies are confined to the box's own path, and browsers are told to
treat pages as having no origin at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from multidict import CIMultiDict
from starlette.types import Scope

from paddock.api.access import API_KEY, bearer
from paddock.api.admission import COOKIE, without_session
from paddock.auth.secrets import looks_like_secret

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_NOT_SENT_ON = HOP_BY_HOP | frozenset(
    b"host expect forwarded x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-prefix x-forwarded-proto "
    b"x-real-ip x-execd-access-token x-paddock-console x-paddock-root".split()
) | {API_KEY}  # fmt: skip
_HANDSHAKE = frozenset(
    b"sec-websocket-key sec-websocket-version sec-websocket-extensions sec-websocket-protocol".split()
)
_NOT_SENT_BACK = HOP_BY_HOP | frozenset(
    b"alt-svc clear-site-data nel origin-agent-cluster public-key-pins public-key-pins-report-only report-to "
    b"reporting-endpoints server service-worker-allowed set-login strict-transport-security x-request-id".split()
)
_SANDBOXED = (
    b"content-security-policy",
    b"sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts",
)
_UNSAFE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LOCAL = re.compile(rb"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?=/|$)")


def to_box(scope: Scope, port: int, prefix: bytes) -> CIMultiDict[str]:
    """A client's headers as the program in the box sees them."""
    hop = _named_by_connection(scope["headers"])
    dropped = _NOT_SENT_ON | hop | (_HANDSHAKE if scope["type"] == "websocket" else frozenset())
    if looks_like_secret(bearer(scope)):
        dropped |= {b"authorization"}
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in scope["headers"]:
        if name == b"cookie":
            if left := without_session(value.decode("latin-1")):
                headers.add("cookie", left)
        elif name not in dropped:
            headers.add(name.decode("latin-1"), value.decode("latin-1"))
        elif name == b"host":
            headers.add("X-Forwarded-Host", value.decode("latin-1"))
    headers["Host"] = f"127.0.0.1:{port}"
    headers["X-Forwarded-Proto"] = "https" if scope["scheme"] in ("https", "wss") else "http"
    headers["X-Forwarded-Prefix"] = prefix.decode("latin-1")
    if scope.get("client"):
        headers["X-Forwarded-For"] = scope["client"][0]
    return headers


def from_box(answered: Iterable[tuple[bytes, bytes]], prefix: bytes) -> Headers:
    """A box's headers as they may appear under our origin."""
    answered = [(name.lower(), value) for name, value in answered]
    hop = _named_by_connection(answered)
    headers: Headers = []
    for name, value in answered:
        if name in _NOT_SENT_BACK or name in hop or name.startswith(b"access-control-"):
            continue
        if _UNSAFE.search(name) or _UNSAFE.search(value):
            continue
        if name == b"set-cookie":
            if value.partition(b"=")[0].strip().decode("latin-1") == COOKIE:
                continue  # A box must not log anybody in or out.
            value = confine_cookie(value, prefix)
        elif name in (b"location", b"content-location"):
            value = keep_below(value, prefix)
        headers.append((name, value))
    headers.append(_SANDBOXED)
    return headers


def confine_cookie(cookie: bytes, prefix: bytes) -> bytes:
    """A cookie that only this port of this box gets back."""
    pair, *attributes = cookie.split(b";")
    path = b"/"
    kept = [pair.strip()]
    for attribute in attributes:
        name, _, value = attribute.strip().partition(b"=")
        if name.lower() == b"path":
            path = value.strip() if value.strip().startswith(b"/") else b"/"
        elif name.lower() != b"domain":
            kept.append(attribute.strip())
    return b"; ".join([*kept, b"Path=" + prefix + path])


def keep_below(location: bytes, prefix: bytes) -> bytes:
    """A redirect of the program, which knows nothing of our paths, led back below them."""
    location = _LOCAL.sub(b"", location, count=1) or b"/"
    if location.startswith(b"/") and not location.startswith((b"//", b"/\\")):
        return prefix + location
    return location


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(token.strip().lower() for value in values for token in value.split(b",")) - {b"host"}

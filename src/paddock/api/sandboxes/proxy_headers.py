"""Filter and rewrite headers between clients and programs in a sandbox.

A sandbox's responses appear under the server's own origin, so they must not speak for that origin: headers with an
effect beyond the response are dropped, cookies are confined to the sandbox's own path, and browsers are told to treat
pages as having no origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from multidict import CIMultiDict
from starlette.types import Scope

from paddock.api.http.authentication import LOGIN_COOKIE_NAME, remove_login_cookie
from paddock.api.http.authorization import API_KEY_HEADER, read_bearer_token
from paddock.auth.key_secrets import looks_like_key_secret

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_DROPPED_FROM_REQUESTS = HOP_BY_HOP | frozenset(
    b"host expect forwarded x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-prefix x-forwarded-proto "
    b"x-real-ip x-execd-access-token x-paddock-console x-paddock-root".split()
) | {API_KEY_HEADER}  # fmt: skip
_WEBSOCKET_HANDSHAKE = frozenset(
    b"sec-websocket-key sec-websocket-version sec-websocket-extensions sec-websocket-protocol".split()
)
_DROPPED_FROM_RESPONSES = HOP_BY_HOP | frozenset(
    b"alt-svc clear-site-data nel origin-agent-cluster public-key-pins public-key-pins-report-only report-to "
    b"reporting-endpoints server service-worker-allowed set-login strict-transport-security x-request-id".split()
)
NO_ORIGIN_POLICY = b"sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"
_SANDBOX_POLICY = (b"content-security-policy", NO_ORIGIN_POLICY)
_UNSAFE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LOCAL = re.compile(rb"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?=/|$)")


def headers_to_sandbox(scope: Scope, port: int, prefix: bytes) -> CIMultiDict[str]:
    """Return the client's headers as the program in the sandbox receives them."""
    hop = _connection_headers(scope["headers"])
    dropped = _DROPPED_FROM_REQUESTS | hop | (_WEBSOCKET_HANDSHAKE if scope["type"] == "websocket" else frozenset())
    if looks_like_key_secret(read_bearer_token(scope)):
        dropped |= {b"authorization"}
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in scope["headers"]:
        if name == b"cookie":
            if left := remove_login_cookie(value.decode("latin-1")):
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


def headers_from_sandbox(received: Iterable[tuple[bytes, bytes]], prefix: bytes) -> Headers:
    """Return the sandbox's headers as they may appear under the server's origin."""
    return [*filter_response_headers(received, prefix), _SANDBOX_POLICY]


def filter_response_headers(received: Iterable[tuple[bytes, bytes]], prefix: bytes, *, cors: bool = False) -> Headers:
    """Drop headers with an effect beyond the response, and confine cookies and redirects to a path.

    With `cors`, the program may decide which pages read its responses.
    """
    received = [(name.lower(), value) for name, value in received]
    hop = _connection_headers(received)
    headers: Headers = []
    for name, value in received:
        if name in _DROPPED_FROM_RESPONSES or name in hop or (name.startswith(b"access-control-") and not cors):
            continue
        if _UNSAFE.search(name) or _UNSAFE.search(value):
            continue
        if name == b"set-cookie":
            if value.partition(b"=")[0].strip().decode("latin-1") == LOGIN_COOKIE_NAME:
                continue  # A sandbox must not log a user in or out.
            value = confine_cookie_path(value, prefix)
        elif name in (b"location", b"content-location"):
            value = rewrite_redirect_location(value, prefix)
        headers.append((name, value))
    return headers


def confine_cookie_path(cookie: bytes, prefix: bytes) -> bytes:
    """Restrict a cookie to this port of this sandbox."""
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


def rewrite_redirect_location(location: bytes, prefix: bytes) -> bytes:
    """Prefix a redirect of the program, which does not know its public path."""
    location = _LOCAL.sub(b"", location, count=1) or b"/"
    if location.startswith(b"/") and not location.startswith((b"//", b"/\\")):
        return prefix + location
    return location


def _connection_headers(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(token.strip().lower() for value in values for token in value.split(b",")) - {b"host"}

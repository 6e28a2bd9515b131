"""Headers of previews: a program's page must not act for the console, also where both have the same origin.

Below `/preview/` a page has the console's origin. So it is given none by its content policy, and neither cookies nor
other settings of the origin pass. A preview with a name of its own may use its origin, but not names above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from multidict import CIMultiDict
from starlette.types import Scope

from paddock.api.http.authentication import LOGIN_COOKIE_NAME
from paddock.api.http.authorization import read_header
from paddock.api.sandboxes.preview_addresses import LINK_PARAMETER
from paddock.api.sandboxes.proxy_headers import NO_ORIGIN_POLICY, Headers, filter_response_headers, headers_to_sandbox

_RESERVED_COOKIES = frozenset({LOGIN_COOKIE_NAME, LINK_PARAMETER})
_COOKIE_DOMAIN = re.compile(rb";\s*domain\s*=[^;]*", re.IGNORECASE)
_DROPPED_FROM_PATHS = frozenset(
    b"accept-ch content-security-policy-report-only critical-ch cross-origin-opener-policy permissions-policy "
    b"referrer-policy set-cookie use-as-dictionary vary www-authenticate x-frame-options".split()
)
"""A password prompt would appear to be the console's; an opener policy breaks a page without an origin."""
_NO_PERMISSIONS = ", ".join(
    f"{name}=()"
    for name in (
        "camera display-capture geolocation hid microphone midi payment publickey-credentials-create "
        "publickey-credentials-get screen-wake-lock serial usb"
    ).split()
).encode()


@dataclass(frozen=True)
class PathPreviewHeaders:
    """Headers of a preview below `/preview/`."""

    port: int
    prefix: bytes
    is_opaque: bool
    """Whether a page without an origin asks, such as the preview's own."""

    def to_sandbox(self, scope: Scope) -> CIMultiDict[str]:
        headers = headers_to_sandbox(scope, self.port, self.prefix)
        headers.popall("cookie", None)
        headers.popall("referer", None)
        if "origin" in headers:
            headers["origin"] = _program_origin(self.port)
        return headers

    def from_sandbox(self, received: Iterable[tuple[bytes, bytes]]) -> Headers:
        filtered = filter_response_headers(received, self.prefix)
        headers = [pair for pair in filtered if pair[0] not in _DROPPED_FROM_PATHS]
        vary = [value for name, value in filtered if name == b"vary"]
        return [
            *headers,
            (b"content-security-policy", NO_ORIGIN_POLICY + b"; frame-ancestors 'self'"),
            (b"permissions-policy", _NO_PERMISSIONS),
            # The address contains the token.
            (b"referrer-policy", b"no-referrer"),
            (b"vary", b", ".join([*vary, b"Origin"])),
            *cors_headers(self.is_opaque),
        ]


@dataclass(frozen=True)
class HostPreviewHeaders:
    """Headers of a preview with a name of its own."""

    port: int
    frame_ancestors: bytes

    def to_sandbox(self, scope: Scope) -> CIMultiDict[str]:
        headers = headers_to_sandbox(scope, self.port, b"")
        del headers["X-Forwarded-Prefix"]
        cookies = [_remove_cookie(value) for value in headers.popall("cookie", [])]
        if kept := "; ".join(filter(None, cookies)):
            headers["cookie"] = kept
        own = read_header(scope, b"host").lower()
        if headers.get("origin", "").lower() in (f"http://{own}", f"https://{own}"):
            headers["origin"] = _program_origin(self.port)
        return headers

    def from_sandbox(self, received: Iterable[tuple[bytes, bytes]]) -> Headers:
        headers: Headers = []
        for name, value in filter_response_headers(received, b"", cors=True):
            if name == b"x-frame-options":
                continue
            if name == b"set-cookie":
                if value.partition(b"=")[0].strip().decode("latin-1") in _RESERVED_COOKIES:
                    continue
                value = _COOKIE_DOMAIN.sub(b"", value)
            headers.append((name, value))
        return [*headers, (b"content-security-policy", b"frame-ancestors " + self.frame_ancestors)]


def cors_headers(is_opaque: bool) -> Headers:
    """Let the preview's own page, which has no origin, read responses. They depend on no cookie."""
    if not is_opaque:
        return []
    return [(b"access-control-allow-origin", b"null"), (b"access-control-allow-credentials", b"true")]


def _program_origin(port: int) -> str:
    """Return the origin of the program's pages as the program knows it, since servers check it."""
    return f"http://127.0.0.1:{port}"


def _remove_cookie(value: str) -> str:
    pairs = (pair.strip() for pair in value.split(";"))
    return "; ".join(pair for pair in pairs if pair and pair.partition("=")[0].strip() not in _RESERVED_COOKIES)

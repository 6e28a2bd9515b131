"""Authenticate requests by API key, or by the console's login cookie.

Browsers send a cookie along with requests started by any page, and to every port of this host; pages of sandboxes
appear under this server's own address. So the cookie is only one half of a login: the other half, the proof, lives in
the console's own storage, which no other origin can read, and is sent in a header that no other page can set.
"""

from __future__ import annotations

from starlette.types import Scope

from paddock.api.http.allowed_origins import is_same_origin
from paddock.api.http.authorization import (
    MODEL_KEY_MESSAGE,
    NO_KEY_MESSAGE,
    has_model_key,
    read_header,
    read_request_api_key,
)
from paddock.auth.api_keys import ApiKeys
from paddock.auth.logins import BrowserLogins
from paddock.errors import Unauthorized
from paddock.model.keys import Principal

LOGIN_COOKIE_NAME = "paddock_session"
CONSOLE_HEADER = b"x-paddock-console"
"""The header with the second half of a login."""


class RequestAuthenticator:
    """Authenticates requests."""

    def __init__(self, keys: ApiKeys, logins: BrowserLogins) -> None:
        self._keys = keys
        self._logins = logins

    async def authenticate(self, scope: Scope) -> Principal:
        """Return the principal of a request. Raises `Unauthorized`. A key takes precedence over a cookie."""
        secret = read_request_api_key(scope)
        if secret:
            return await self._keys.authenticate(secret)
        return await self.authenticate_cookie(scope)

    async def authenticate_cookie(self, scope: Scope) -> Principal:
        cookie, proof = read_login_cookie(scope), read_header(scope, CONSOLE_HEADER)
        if cookie and proof and is_console_request(scope):
            return await self._logins.authenticate(cookie, proof)
        raise Unauthorized(MODEL_KEY_MESSAGE if has_model_key(scope) else NO_KEY_MESSAGE)


def is_console_request(scope: Scope) -> bool:
    """Return whether the headers are consistent with a request of the console's own pages."""
    # Pages cannot add a header to a WebSocket, so the console opens WebSockets with tickets.
    if scope["type"] != "http" or read_header(scope, b"sec-fetch-site") not in ("", "same-origin"):
        return False
    return not _has_origin(scope) or is_same_origin(scope)


def read_login_cookie(scope: Scope) -> str:
    """Return the login cookie, or an empty string. Duplicates are refused: another page may have planted one."""
    pairs = (pair.strip().partition("=") for pair in "; ".join(_cookies(scope)).split(";"))
    found = [value for name, _, value in pairs if name == LOGIN_COOKIE_NAME]
    return found[0] if len(found) == 1 else ""


def remove_login_cookie(value: str) -> str:
    """Return a `Cookie` header without the login cookie, to forward to a sandbox."""
    pairs = (pair.strip() for pair in value.split(";"))
    return "; ".join(pair for pair in pairs if pair and pair.partition("=")[0].strip() != LOGIN_COOKIE_NAME)


def format_login_cookie(secret: str, *, secure: bool, seconds: int) -> str:
    parts = [f"{LOGIN_COOKIE_NAME}={secret}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={seconds}"]
    return "; ".join([*parts, "Secure"] if secure else parts)


def _cookies(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"]


def _has_origin(scope: Scope) -> bool:
    return any(name == b"origin" for name, _ in scope["headers"])

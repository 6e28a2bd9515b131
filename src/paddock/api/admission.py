"""Who is let in: by a key, or a browser that is logged in, when it is the console itself that asks.

A cookie is sent along whoever makes the browser ask, and to whoever listens on another port of this host; what a box
answers appears under this server's own address. So a cookie is only one half: the other one is in the console's own
storage, which no other origin can read, and comes in a header that no other page can send.
"""

from __future__ import annotations

from starlette.types import Scope

from paddock.api.access import NO_KEY, header, secret_of
from paddock.api.origins import is_own
from paddock.auth.keys import Keys
from paddock.auth.logins import Logins
from paddock.errors import Unauthorized
from paddock.model.keys import Principal

COOKIE = "paddock_session"
CONSOLE = b"x-paddock-console"
"""The header with the other half of what a login is worth."""


class Admission:
    """Tells who a request comes from."""

    def __init__(self, keys: Keys, logins: Logins) -> None:
        self._keys = keys
        self._logins = logins

    async def principal(self, scope: Scope) -> Principal:
        """Raises `Unauthorized`. A key that is shown counts before a cookie."""
        secret = secret_of(scope)
        if secret:
            return await self._keys.authenticate(secret)
        return await self.by_cookie(scope)

    async def by_cookie(self, scope: Scope) -> Principal:
        cookie, proof = cookie_of(scope), header(scope, CONSOLE)
        if cookie and proof and is_console(scope):
            return await self._logins.authenticate(cookie, proof)
        raise Unauthorized(NO_KEY)


def is_console(scope: Scope) -> bool:
    """Whether nothing that the browser says speaks against its being a page of the console that asks."""
    # Pages cannot add a header to a WebSocket: those are opened by tickets.
    if scope["type"] != "http" or header(scope, b"sec-fetch-site") not in ("", "same-origin"):
        return False
    return not _has_origin(scope) or is_own(scope)


def cookie_of(scope: Scope) -> str:
    """The secret that a browser keeps for us. More than one is somebody's attempt to put theirs in its place."""
    pairs = (pair.strip().partition("=") for pair in "; ".join(_cookies(scope)).split(";"))
    found = [value for name, _, value in pairs if name == COOKIE]
    return found[0] if len(found) == 1 else ""


def without_session(value: str) -> str:
    """A `Cookie` header for somebody else, without what is ours."""
    pairs = (pair.strip() for pair in value.split(";"))
    return "; ".join(pair for pair in pairs if pair and pair.partition("=")[0].strip() != COOKIE)


def set_cookie(secret: str, *, secure: bool, seconds: int) -> str:
    parts = [f"{COOKIE}={secret}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={seconds}"]
    return "; ".join([*parts, "Secure"] if secure else parts)


def _cookies(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"]


def _has_origin(scope: Scope) -> bool:
    return any(name == b"origin" for name, _ in scope["headers"])

"""Which web pages may open WebSockets here. Browsers say where a page is from, and let any page try."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import Scope

from paddock.api.access import header
from paddock.config.schema import ServerConfig


class Origins:
    """This server's own pages, and those of `server.cors_origins`. Who is no browser names no origin."""

    def __init__(self, config: ServerConfig) -> None:
        self._allowed = {origin.rstrip("/").lower() for origin in config.cors_origins}

    def accept(self, scope: Scope) -> bool:
        if not any(name == b"origin" for name, _ in scope["headers"]):
            return True
        origin = header(scope, b"origin").lower()
        return origin in self._allowed or "*" in self._allowed or is_own(scope)


def is_own(scope: Scope) -> bool:
    """Whether a request says that it comes from a page of this very server: same name and same port."""
    try:
        split = urlsplit(header(scope, b"origin").lower())
    except ValueError:
        return False
    return split.scheme in ("http", "https") and split.netloc == header(scope, b"host").lower() != ""

"""Which web pages may open WebSockets: browsers name the page's origin but let any page connect."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import Scope

from paddock.api.http.authorization import read_header
from paddock.config.schema import ServerConfig


class AllowedOrigins:
    """The server's own pages and `server.cors_origins`. Clients other than browsers send no origin."""

    def __init__(self, config: ServerConfig) -> None:
        self._allowed = {origin.rstrip("/").lower() for origin in config.cors_origins}

    def allows_request(self, scope: Scope) -> bool:
        if not any(name == b"origin" for name, _ in scope["headers"]):
            return True
        origin = read_header(scope, b"origin").lower()
        return origin in self._allowed or "*" in self._allowed or is_same_origin(scope)


def is_same_origin(scope: Scope) -> bool:
    """Return whether the request's `Origin` is this server: same name and same port."""
    try:
        split = urlsplit(read_header(scope, b"origin").lower())
    except ValueError:
        return False
    return split.scheme in ("http", "https") and split.netloc == read_header(scope, b"host").lower() != ""

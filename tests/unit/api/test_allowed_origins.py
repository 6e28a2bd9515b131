"""Which web pages may open WebSockets."""

from __future__ import annotations

import pytest

from paddock.api.http.allowed_origins import AllowedOrigins
from paddock.config.schema import ServerConfig


def accepts(origin: bytes | None, host: bytes = b"box.example:8420", allowed: tuple[str, ...] = ()) -> bool:
    headers = [(b"host", host)] + ([(b"origin", origin)] if origin is not None else [])
    return AllowedOrigins(ServerConfig(cors_origins=allowed)).allows_request({"type": "websocket", "headers": headers})


def test_clients_without_origin_are_accepted() -> None:
    assert accepts(None)


@pytest.mark.parametrize(
    "origin", [b"http://box.example:8420", b"https://box.example:8420", b"HTTP://Box.Example:8420"]
)
def test_server_pages_are_accepted(origin: bytes) -> None:
    assert accepts(origin)


@pytest.mark.parametrize(
    "origin",
    [
        b"",
        b"null",
        b"http://evil.example",
        b"http://box.example",
        b"http://box.example:8421",
        b"file://box.example:8420",
        b"http://box.example:8420.evil.example",
        b"http://evil.example@box.example:8420",
        b"http://[",
    ],
)
def test_other_origins_are_refused(origin: bytes) -> None:
    assert not accepts(origin)


def test_listed_origins_are_accepted() -> None:
    assert accepts(b"https://console.example", allowed=("https://console.example/",))
    assert accepts(b"https://anything.example", allowed=("*",))
    assert not accepts(b"http://console.example", allowed=("https://console.example",))


def test_empty_host_is_refused() -> None:
    assert not accepts(b"http://", host=b"")

"""Previews with names of their own, below `server.preview_host`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.api.sandboxes.test_port_proxy import ECHO_PORT
from tests.integration.api.sandboxes.test_previews import LOGIN, STREAM_PORT, expose, start_programs
from tests.support.server import Server


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"server": {"preview_host": "*.preview.example"}}


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[str]:
    yield (created := start_programs(client))
    client.delete(f"/v1/sandboxes/{created}")


def get(server: Server, address: str, **headers: str) -> httpx.Response:
    host, _, path = address.removeprefix("//").partition("/")
    return httpx.get(f"{server.url}/{path}", headers={"Host": host, **headers}, trust_env=False)


def test_link_gives_a_cookie_for_this_name_only(server: Server, client: httpx.Client, sandbox: str) -> None:
    preview = expose(client, sandbox)
    port = server.domain.rpartition(":")[2]
    assert preview["address"] == f"//{ECHO_PORT}-{sandbox}.preview.example:{port}/"
    assert get(server, preview["address"]).status_code == 401
    opened = get(server, f"{preview['link']}&a=1")
    assert (opened.status_code, opened.headers["Location"]) == (303, "/?a=1")
    cookie, *attributes = opened.headers["Set-Cookie"].split("; ")
    assert {"Path=/", "HttpOnly", "SameSite=Lax"} == set(attributes)
    seen = get(server, f"{preview['address']}x", Cookie=f"{cookie}; own=1; paddock_session={LOGIN}")
    assert seen.status_code == 203 and dict(seen.json()["headers"])["cookie"] == "own=1"
    assert seen.headers["Set-Cookie"] == "id=1; HttpOnly; Path=/app"
    assert seen.headers["Content-Security-Policy"].startswith("frame-ancestors 'self' http")
    other = expose(client, sandbox, STREAM_PORT)
    assert get(server, other["address"], Cookie=cookie).status_code == 401


def test_public_address_suffices_until_it_is_closed(server: Server, client: httpx.Client, sandbox: str) -> None:
    address = expose(client, sandbox, public=True)["link"]
    assert get(server, address).status_code == 203
    client.delete(f"/v1/sandboxes/{sandbox}/previews/{ECHO_PORT}")
    assert get(server, address).status_code == 404


@pytest.mark.parametrize("path", ["", "v1/sandboxes", "health", "v1/chat/completions", "preview/x/"])
def test_names_of_previews_serve_nothing_else(server: Server, path: str) -> None:
    for name in ("9-sb-0123456789abcdef", "console", "a.b"):
        response = get(server, f"//{name}.preview.example/{path}", Authorization=f"Bearer {server.key}")
        assert response.status_code == 404
    assert get(server, f"//x.elsewhere.example/{path}").status_code == 421


def test_model_api_of_a_program_is_not_taken_for_the_servers_own(
    server: Server, client: httpx.Client, sandbox: str
) -> None:
    address = expose(client, sandbox, public=True)["link"]
    host = address.removeprefix("//").rstrip("/")
    body = b'{"model": "x"}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    server_host, port = server.domain.split(":")
    with socket.create_connection((server_host, int(port)), timeout=20) as raw:
        raw.sendall(head.encode() + body)
        assert raw.recv(65536).startswith(b"HTTP/1.1 203 ")

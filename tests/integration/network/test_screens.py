"""A desktop and a browser open a site on this machine by name, under an allow rule and only under one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.integration.live.screen_sandboxes import sandbox_of, screens_server
from tests.support.server import Server, eventually, run_in_sandbox

PAGE = b"<!doctype html><title>The shop</title><h1>Welcome to the shop</h1>"


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    shop = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    shop.daemon_threads = True
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    yield int(shop.server_address[1])
    shop.shutdown()
    shop.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    network = {"private_targets": ["shop.test"], "hosts": {"shop.test": "127.0.0.1"}}
    with screens_server(tmp_path_factory.mktemp("paddock"), "browser", "linux", network=network) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


def connections(client: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/sandboxes/{sandbox}/connections").json()["items"]
    return found


def test_browser_opens_site_under_a_rule_and_nothing_in_the_background(client: httpx.Client, port: int) -> None:
    with sandbox_of(client, "browser", network=[f"shop.test:{port}"]) as sandbox:
        assert "The shop" in sandbox.text("browser_navigate", url=f"http://shop.test:{port}/")
        assert "Welcome to the shop" in sandbox.text("browser_get_text")
        seen = eventually(lambda: connections(client, sandbox.id))
        assert {record["name"] for record in seen} == {"shop.test"}


def test_browser_shows_the_rule_that_a_denied_site_needs(client: httpx.Client, port: int) -> None:
    with sandbox_of(client, "browser", network=["web"]) as sandbox:
        sandbox.call("browser_navigate", url=f"http://shop.test:{port}/")
        assert f"`allow shop.test:{port}`" in sandbox.text("browser_get_text")
        client.patch(f"/v1/sandboxes/{sandbox.id}/network", json={"allow": [f"shop.test:{port}"]})
        assert "The shop" in sandbox.text("browser_navigate", url=f"http://shop.test:{port}/")


def test_desktop_reaches_site_under_a_rule_only(client: httpx.Client, port: int) -> None:
    fetch = f"python3 -c 'import urllib.request as r; print(r.urlopen(\"http://shop.test:{port}/\").read())'"
    with sandbox_of(client, "linux", network=[f"shop.test:{port}"]) as sandbox:
        assert "Welcome to the shop" in run_in_sandbox(client, sandbox.id, fetch)[0]
        client.put(f"/v1/sandboxes/{sandbox.id}/network", json={"policy": "none"})
        assert "403" in run_in_sandbox(client, sandbox.id, fetch)[0]

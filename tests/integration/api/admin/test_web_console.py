"""The web console's page and files; no other files of the host are served."""

from __future__ import annotations

import gzip
import os
import socket
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from paddock.api.admin.web_console import WebConsole
from paddock.api.http.error_responses import send_error_response
from tests.support.server import Server

HTML = {"Accept": "text/html,application/xhtml+xml"}
SCRIPT = "console.log('paddock');\n" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html><title>one</title>")
    (static / "icon.svg").write_text("<svg/>")
    (static / "assets/main-1a2b.js").write_text(SCRIPT)
    (static / "assets/packed-3c4d.js").write_text(SCRIPT)
    (static / "assets/packed-3c4d.js.gz").write_bytes(gzip.compress(b"packed"))
    (static / "assets/packed-3c4d.js.br").write_bytes(b"brotli")
    (tmp_path / "secret").write_text("not yours")
    (static / "assets/link.js").symlink_to(tmp_path / "secret")
    return static


def create_console_client(static: Path) -> httpx.AsyncClient:
    console = WebConsole(static)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if console.handles(scope):
            await console.serve(scope, send)
        else:
            await send_error_response(send, 418, "NOT_OURS", "")

    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


pytestmark = pytest.mark.anyio


async def test_console_page_is_never_cached(built: Path) -> None:
    async with create_console_client(built) as client:
        page = await client.get("/")
        assert page.text == "<!doctype html><title>one</title>"
        assert page.headers["Cache-Control"] == "no-cache"
        again = await client.get("/", headers={"If-None-Match": page.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        (built / "index.html").write_text("<!doctype html><title>two</title>")
        os.utime(built / "index.html", ns=(1, 1))
        newer = await client.get("/", headers={"If-None-Match": page.headers["ETag"]})
        assert (newer.status_code, newer.text) == (200, "<!doctype html><title>two</title>")


async def test_console_links_return_its_page(built: Path) -> None:
    async with create_console_client(built) as client:
        for path in ("/chats/ses-1", "/runs", "/sandboxes/sb-1/files/a.b/c", "/v1x", "/index.html"):
            response = await client.get(path, headers=HTML)
            assert "<title>one" in response.text and "script-src 'self'" in response.headers["Content-Security-Policy"]
        assert (await client.get("/chats/ses-1", headers={"Accept": "application/json"})).status_code == 418
        assert (await client.post("/", headers=HTML)).status_code == 418


@pytest.mark.parametrize(
    "path",
    [
        "/v1/x",
        "/v1",
        "/v1beta/models",
        "/mcp/x",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/version",
    ],
)
async def test_api_paths_are_not_served_by_the_console(built: Path, path: str) -> None:
    async with create_console_client(built) as client:
        assert (await client.get(path, headers=HTML)).status_code == 418


async def test_files_with_a_hash_in_their_name_are_cached_forever(built: Path) -> None:
    async with create_console_client(built) as client:
        script = await client.get("/assets/main-1a2b.js", headers={"Accept-Encoding": "gzip, br"})
        assert script.text == SCRIPT
        assert script.headers["Content-Encoding"] == "gzip" and int(script.headers["Content-Length"]) < len(SCRIPT)
        assert script.headers["Content-Type"].startswith("text/javascript")
        assert script.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        plain = await client.get("/assets/main-1a2b.js", headers={"Accept-Encoding": "gzip;q=0"})
        assert plain.text == SCRIPT and "Content-Encoding" not in plain.headers
        head = await client.head("/assets/main-1a2b.js", headers={"Accept-Encoding": "identity"})
        assert (head.content, head.headers["Content-Length"]) == (b"", str(len(SCRIPT)))
        assert (await client.get("/icon.svg")).headers["Cache-Control"] == "no-cache"


async def test_precompressed_files_are_sent_unchanged(built: Path) -> None:
    async with create_console_client(built) as client:
        path = "/assets/packed-3c4d.js"
        assert (await client.get(path, headers={"Accept-Encoding": "gzip"})).text == "packed"
        response = await client.send(client.build_request("GET", path, headers={"Accept-Encoding": "br"}), stream=True)
        assert response.headers["Content-Encoding"] == "br"
        assert b"".join([piece async for piece in response.aiter_raw()]) == b"brotli"


async def test_missing_file_of_an_earlier_build_has_a_clear_error(built: Path) -> None:
    async with create_console_client(built) as client:
        for path in ("/assets/gone.js", "/assets/link.js", "/assets/", "/assets/../../secret", "/assets/%2e%2e/x"):
            response = await client.get(path, headers=HTML)
            assert (response.status_code, "not yours" in response.text) in ((404, False), (200, False)), path
        assert (await client.get("/assets/gone.js", headers=HTML)).json()["code"] == "NOT_FOUND"


async def test_build_during_server_run_is_served(built: Path) -> None:
    async with create_console_client(built) as client:
        assert (await client.get("/assets/new.js")).status_code == 404
        (built / "assets/new.js").write_text("new")
        assert (await client.get("/assets/new.js")).text == "new"


async def test_missing_build_page_explains_how_to_build(tmp_path: Path) -> None:
    async with create_console_client(tmp_path / "nothing") as client:
        for path in ("/", "/chats"):
            response = await client.get(path, headers=HTML)
            assert response.status_code == 200 and "make console" in response.text
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_console_is_public_and_has_security_headers(server: Server) -> None:
    page = httpx.get(f"{server.url}/chats/x", headers=HTML)
    assert page.status_code == 200 and page.headers["Content-Type"].startswith("text/html")
    policy = page.headers["Content-Security-Policy"]
    for word in ("default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"):
        assert word in policy
    assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "camera=()" in page.headers["Permissions-Policy"]
    assert page.headers["X-Content-Type-Options"] == "nosniff" and page.headers["X-Frame-Options"] == "DENY"


def test_unknown_api_path_returns_no_page(server: Server, client: httpx.Client) -> None:
    response = client.get("/v1/nothing-here", headers=HTML)
    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")
    assert httpx.get(f"{server.url}/v1/nothing-here", headers=HTML).status_code == 401


@pytest.mark.parametrize(
    "target",
    [
        "/../../../../etc/passwd",
        "/assets/../../../../../../etc/passwd",
        "/assets/%2e%2e%2f%2e%2e%2fapp.py",
        "//etc/passwd",
    ],
)
def test_console_paths_cannot_escape_the_directory(server: Server, target: str) -> None:
    host, port = server.domain.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n".encode()
        )
        answer = raw.makefile("rb").read()
    assert b"root:" not in answer and b"import" not in answer


async def test_health_returns_page_to_browsers_and_json_to_probes(built: Path) -> None:
    async with create_console_client(built) as client:
        assert "<title>one</title>" in (await client.get("/health", headers=HTML)).text
        assert (await client.get("/health")).status_code == 418

"""MCP servers through a real HTTP proxy on loopback; the policy of addresses holds."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientError, web
from aiohttp.resolver import ThreadedResolver
from multidict import CIMultiDict
from yarl import URL

from paddock.config.outgoing import OutgoingConfig
from paddock.errors import Forbidden, Unavailable
from paddock.mcp import http_client
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.http_client import McpHttpClient
from paddock.network.outgoing_proxy_tunnel import ProxyError
from tests.support.http_proxy import HttpProxy

pytestmark = pytest.mark.anyio
PUBLIC = "93.184.216.34"
ADDRESSES = {"tools.test": PUBLIC, "other.test": PUBLIC, "rebind.test": "10.1.1.1", "internal.test": "10.2.2.2"}
CREDENTIALS = "alice:s3cr3t-p4ss"


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve the names of these tests."""
    real = ThreadedResolver.resolve

    async def resolve(self: ThreadedResolver, host: str, port: int = 0, family: Any = 0) -> Any:
        return await real(self, ADDRESSES.get(host, host), port, family)

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)


@asynccontextmanager
async def mcp_server(*names: str) -> AsyncIterator[tuple[int, Path, list[web.BaseRequest]]]:
    """Serve HTTPS for these names; return the port, the file of its CA, and the received requests."""
    received: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        received.append(request)
        return web.Response(text=f"{request.host} {await request.text()}")

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, "unused.test").configure_cert(context)
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context if names else None)
    await site.start()
    with authority.cert_pem.tempfile() as ca:
        try:
            yield runner.addresses[0][1], Path(ca), received
        finally:
            await runner.cleanup()


@asynccontextmanager
async def client(
    proxy: HttpProxy, ca: Path | None = None, credentials: str | None = None, no_proxy: str = ""
) -> AsyncIterator[McpHttpClient]:
    address = proxy.url.replace("//", f"//{credentials}@") if credentials else proxy.url
    environment = {"HTTPS_PROXY": address, "HTTP_PROXY": address, "NO_PROXY": no_proxy}
    opened = McpHttpClient(McpAddressPolicy(), OutgoingConfig(ca_bundle=ca).proxies(environment))
    try:
        yield opened
    finally:
        await opened.close()


async def ask(opened: McpHttpClient, url: str) -> str:
    async def body() -> AsyncIterator[bytes]:
        yield b"hello"

    async with await opened.send("POST", URL(url), CIMultiDict({"Content-Length": "5"}), body()) as response:
        return await response.text()


async def test_tunnel_leads_to_the_checked_address() -> None:
    proxy = HttpProxy(credentials=CREDENTIALS)
    async with mcp_server("tools.test") as (port, ca, received), proxy.serving():
        proxy.routes[f"{PUBLIC}:443"] = port
        async with client(proxy, ca, CREDENTIALS) as opened:
            for _ in range(2):
                assert await ask(opened, "https://tools.test/mcp") == "tools.test hello"
        assert proxy.requests == [f"CONNECT {PUBLIC}:443 HTTP/1.1"]
        assert all("proxy-authorization" not in each.headers for each in received)


async def test_names_of_one_address_have_tunnels_of_their_own() -> None:
    async with mcp_server("tools.test") as (port, ca, received), HttpProxy().serving() as proxy:
        proxy.routes[f"{PUBLIC}:443"] = port
        async with client(proxy, ca) as opened:
            assert await ask(opened, "https://tools.test/") == "tools.test hello"
            with pytest.raises(ClientError, match="other"):  # The certificate is for tools.test.
                await ask(opened, "https://other.test/")
        assert len(received) == 1 and len(proxy.requests) == 2


async def test_private_addresses_never_reach_the_proxy() -> None:
    async with HttpProxy().serving() as proxy, client(proxy) as opened:
        for url in ("https://rebind.test/", "https://169.254.169.254/", "https://10.0.0.1/"):
            with pytest.raises(Forbidden):
                await ask(opened, url)
        with pytest.raises(Unavailable, match=r"nowhere\.invalid has no address"):
            await ask(opened, "https://nowhere.invalid/")
        assert proxy.requests == []


async def test_http_by_name_is_refused_with_a_way_out() -> None:
    async with HttpProxy().serving() as proxy, client(proxy) as opened:
        with pytest.raises(ProxyError, match=r"use an https address, or list tools\.test in outgoing\.no_proxy"):
            await ask(opened, "http://tools.test/")
        assert proxy.requests == []


async def test_http_by_address_is_forwarded() -> None:
    proxy = HttpProxy(credentials=CREDENTIALS)
    async with mcp_server() as (port, _, _received), proxy.serving():
        proxy.routes[f"{PUBLIC}:80"] = port
        async with client(proxy, credentials=CREDENTIALS) as opened:
            assert await ask(opened, f"http://{PUBLIC}/mcp") == f"{PUBLIC} hello"
        assert proxy.requests == [f"POST http://{PUBLIC}/mcp HTTP/1.1"]


@pytest.mark.parametrize("no_proxy", ["internal.test", "10.0.0.0/8"])
async def test_direct_targets_need_no_proxy(no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDRESSES, "internal.test", "127.0.0.1" if no_proxy == "internal.test" else "10.2.2.2")
    async with HttpProxy().serving() as proxy, client(proxy, no_proxy=no_proxy) as opened:
        with pytest.raises(Forbidden, match="not a public address"):  # By the policy, on the direct way.
            await ask(opened, "https://internal.test/")
        assert proxy.requests == []


@pytest.mark.parametrize("url", ["https://tools.test/", f"http://{PUBLIC}/"])
@pytest.mark.parametrize(
    ("proxy", "problem"),
    [
        (HttpProxy(credentials="bob:other"), r"refused the user name or password \(status 407\)"),
        (HttpProxy(refusal=b"HTTP/1.1 407 No\r\n\r\n"), r"refused the user name or password \(status 407\)"),
    ],
)
async def test_wrong_credentials_name_the_setting(url: str, proxy: HttpProxy, problem: str) -> None:
    async with proxy.serving(), client(proxy, credentials=CREDENTIALS) as opened:
        with pytest.raises(ProxyError, match=rf"the proxy of HTTPS?_PROXY {problem}") as caught:
            await ask(opened, url)
        assert "s3cr3t" not in str(caught.value)


async def test_unreachable_and_silent_proxies_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    async with HttpProxy().serving() as proxy:
        pass
    async with client(proxy) as opened:
        with pytest.raises(ProxyError, match="cannot be reached: "):
            await ask(opened, "https://tools.test/")
    monkeypatch.setattr(http_client, "CONNECT_TIMEOUT", 0.2)
    async with HttpProxy(silent=True).serving() as proxy, client(proxy) as opened:
        with pytest.raises(TimeoutError):
            await ask(opened, "https://tools.test/")

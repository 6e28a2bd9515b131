"""Requests of providers through a real HTTP proxy on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from pydantic import SecretStr

from paddock.config.llm import ProviderConfig
from paddock.config.outgoing_proxy import OutgoingProxies, parse_proxy
from paddock.llm.providers.http_providers import HttpProvider, new_http_provider
from paddock.llm.wire.base import UpstreamError, UpstreamProxyFailed, UpstreamTimeouts, UpstreamTlsFailed
from paddock.llm.wire.http_client import HttpClient, HttpClientResponse, UpstreamAddress
from tests.support.http_proxy import HttpProxy

from .raw_http_peers import Upstream, answering, read_request, until

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
NAME = "upstream.test"
"""A name that only the proxy knows."""
CREDENTIALS = "alice:s3cr3t-p4ss"
QUICK = UpstreamTimeouts(connect=2.0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def server_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)
    return context


@contextlib.asynccontextmanager
async def client_of(ca: Path | None = None) -> AsyncIterator[HttpClient]:
    """A client of which nothing may be left afterwards."""
    before = asyncio.all_tasks()
    client = HttpClient(ca_bundle=ca)
    try:
        yield client
    finally:
        await client.close()
        assert not client._connections and not any(client._idle.values())
        await until(lambda: asyncio.all_tasks() <= before)


async def ask(
    client: HttpClient,
    upstream: Upstream,
    proxy: HttpProxy,
    scheme: str = "https",
    *,
    credentials: str | None = None,
    timeouts: UpstreamTimeouts = QUICK,
) -> HttpClientResponse:
    named = parse_proxy(f"http://{credentials + '@' if credentials else ''}127.0.0.1:{proxy.port}", "HTTPS_PROXY")
    address = replace(UpstreamAddress.parse(f"{scheme}://{NAME}:{upstream.port}/base"), proxy=named)
    headers = [(b"proxy-authorization", b"of the client"), (b"authorization", b"Bearer k")]
    return await client.send(address, "POST", b"/v1/chat?x=1", headers, b"{}", timeouts)


async def failure(*arguments: Any, **options: Any) -> UpstreamError:
    """Return the error of a request, which must not contain the password."""
    with pytest.raises(UpstreamError) as caught:
        await ask(*arguments, **options)
    assert "s3cr3t" not in str(caught.value) and "s3cr3t" not in repr(caught.value.__context__)
    return caught.value


async def test_https_requests_use_one_tunnel(server_side: ssl.SSLContext, ca: Path) -> None:
    async with answering(OK).serving(server_side) as upstream, HttpProxy().serving() as proxy, client_of(ca) as client:
        for _ in range(3):
            assert await (await ask(client, upstream, proxy)).read() == b"ok"
        assert proxy.requests == [f"CONNECT {NAME}:{upstream.port} HTTP/1.1"]
        assert "Bearer" not in proxy.heads[0]
        assert upstream.connections == 1
        request = upstream.requests[0].decode()
        assert request.startswith(f"POST /base/v1/chat?x=1 HTTP/1.1\r\nhost: {NAME}:{upstream.port}\r\n")
        assert "proxy-authorization" not in request


async def test_http_requests_are_forwarded_with_their_whole_address() -> None:
    proxy = HttpProxy(credentials=CREDENTIALS)
    async with answering(OK).serving() as upstream, proxy.serving(), client_of() as client:
        for _ in range(2):
            assert await (await ask(client, upstream, proxy, "http", credentials=CREDENTIALS)).read() == b"ok"
        assert proxy.requests == [f"POST http://{NAME}:{upstream.port}/base/v1/chat?x=1 HTTP/1.1"] * 2
        assert proxy.open == 1
        assert upstream.requests[0].startswith(b"POST /base/v1/chat?x=1 HTTP/1.1\r\nhost: " + NAME.encode())
        assert b"proxy-authorization" not in upstream.requests[0]


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_streams_pass_piece_by_piece(scheme: str, server_side: ssl.SSLContext, ca: Path) -> None:
    proceed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + b"5\r\nfirst\r\n")
        await proceed.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")
        await writer.drain()

    context = server_side if scheme == "https" else None
    async with Upstream(serve).serving(context) as upstream, HttpProxy().serving() as proxy, client_of(ca) as client:
        answer = await ask(client, upstream, proxy, scheme)
        assert await answer.read_piece() == b"first"
        proceed.set()
        assert await answer.read_piece() == b"last"
        assert await answer.read_piece() == b""
        answer.close()


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize(
    ("given", "problem"),
    [(None, "requires a user name and a password"), ("alice:s3cr3t-wrong", "refused the user name or password")],
)
async def test_wrong_credentials_are_a_permanent_error_that_names_the_setting(
    scheme: str, given: str | None, problem: str
) -> None:
    proxy = HttpProxy(credentials=CREDENTIALS)
    async with answering(OK).serving() as upstream, proxy.serving(), client_of() as client:
        error = await failure(client, upstream, proxy, scheme, credentials=given)
        assert str(error) == (
            f"the proxy of HTTPS_PROXY {problem} (status 407); write http://USER:PASSWORD@HOST:PORT in HTTPS_PROXY"
        )
        assert isinstance(error, UpstreamProxyFailed)
        assert (error.retryable, error.address) == (False, proxy.url)
        assert upstream.connections == 0


async def test_right_credentials_open_a_tunnel(server_side: ssl.SSLContext, ca: Path) -> None:
    proxy = HttpProxy(credentials=CREDENTIALS)
    async with answering(OK).serving(server_side) as upstream, proxy.serving(), client_of(ca) as client:
        assert await (await ask(client, upstream, proxy, credentials=CREDENTIALS)).read() == b"ok"


@pytest.mark.parametrize(
    ("answer", "problem", "is_retryable"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nblah", "refused the connection (status 403)", False),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "refused the connection (status 502)", True),
        (b"", "closed the connection without an answer", True),
        (b"HTTP/1.1 200 OK\r\n", "closed the connection without an answer", True),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "does not answer like an HTTP proxy; check its address", False),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "does not answer like an HTTP proxy; check its address", False),
    ],
)
async def test_refusals_of_a_proxy_name_it(answer: bytes, problem: str, is_retryable: bool) -> None:
    async with answering(OK).serving() as upstream, HttpProxy(refusal=answer).serving() as proxy, client_of() as client:
        error = await failure(client, upstream, proxy)
        assert (str(error), error.retryable) == (f"the proxy of HTTPS_PROXY {problem}", is_retryable)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_unreachable_proxy_is_named(scheme: str) -> None:
    async with answering(OK).serving() as upstream, client_of() as client:
        async with HttpProxy().serving() as proxy:
            pass
        error = await failure(client, upstream, proxy, scheme)
        assert str(error) == "the proxy of HTTPS_PROXY cannot be reached: Connection refused"
        assert error.retryable and upstream.connections == 0


async def test_silent_proxy_is_given_up() -> None:
    async with answering(OK).serving() as upstream, HttpProxy(silent=True).serving() as proxy, client_of() as client:
        error = await failure(client, upstream, proxy, timeouts=UpstreamTimeouts(connect=0.1))
        assert str(error) == "the proxy of HTTPS_PROXY opened no connection within 0.1 seconds"
        await until(lambda: proxy.open == 0)


async def test_certificates_are_verified_through_a_tunnel(server_side: ssl.SSLContext) -> None:
    async with answering(OK).serving(server_side) as upstream, HttpProxy().serving() as proxy, client_of() as client:
        error = await failure(client, upstream, proxy)
        assert isinstance(error, UpstreamTlsFailed)
        assert "not trusted" in str(error) and "outgoing.ca_bundle" in str(error)
        assert upstream.requests == []


async def test_extra_certificates_are_trusted_without_a_proxy_too(
    authority: trustme.CA, ca: Path, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    async with answering(OK).serving(context) as upstream, client_of(ca) as client:
        for of_provider in (None, other):
            address = UpstreamAddress.parse(f"https://localhost:{upstream.port}", ca=of_provider)
            assert await (await client.send(address, "GET", b"/", [], b"", QUICK)).read() == b"ok"


async def test_providers_choose_their_proxy_once() -> None:
    proxies = OutgoingProxies(https=parse_proxy("http://proxy.test:1", "HTTPS_PROXY"))

    def chosen(base_url: str | None, proxy: str | None = None) -> str | None:
        secret = None if proxy is None else SecretStr(proxy)
        settings = ProviderConfig(kind="openai", base_url=base_url, proxy=secret)
        provider: HttpProvider = new_http_provider("p", settings, HttpClient(), proxies)
        found = provider._address.proxy
        return None if found is None else str(found)

    assert chosen(None) == "http://proxy.test:1 (HTTPS_PROXY)"
    assert chosen("http://models.test") is None
    assert chosen("https://127.0.0.1:8000") is None
    assert chosen(None, "none") is None
    assert chosen("http://127.0.0.1:8000", "http://own.test:2") == "http://own.test:2 (llm.providers.p.proxy)"

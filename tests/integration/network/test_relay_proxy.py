"""Connections of sandboxes through a real HTTP proxy on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from paddock.config.outgoing import OutgoingConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.model.network import ConnectionRefusal
from paddock.network.sandbox_certificates import SandboxCertificates
from tests.support.http_proxy import HttpProxy

from .test_relay import Relay, echo, greet, open_relay, read_all, server

__all__ = ["open_relay"]
pytestmark = pytest.mark.anyio
PUBLIC = "93.184.216.34"
HOSTS = {"site.test": PUBLIC, "rebind.test": "10.1.1.1", "private.test": "127.0.0.1"}
CREDENTIALS = "alice:s3cr3t-p4ss"


def through(proxy: HttpProxy, no_proxy: str = "", credentials: str | None = None) -> OutgoingProxies:
    address = proxy.url.replace("//", f"//{credentials}@") if credentials else proxy.url
    return OutgoingConfig().proxies({"HTTPS_PROXY": address, "HTTP_PROXY": address, "NO_PROXY": no_proxy})


async def exchange(relay: Relay, name: str, port: int, message: bytes = b"hello") -> bytes:
    """Send a message, and return what comes back until the end."""
    program = await relay.open(name, port)
    with suppress(OSError):  # A refused connection may be reset before all is sent.
        await asyncio.get_running_loop().sock_sendall(program, message)
        program.shutdown(socket.SHUT_WR)
    return await read_all(program)


@pytest.mark.parametrize("port", [443, 80, 8443])
async def test_proxy_gets_the_checked_address(open_relay: Callable[..., Any], port: int) -> None:
    async with server(echo) as local, HttpProxy(credentials=CREDENTIALS).serving() as proxy:
        proxy.routes[f"{PUBLIC}:{port}"] = local
        proxies = through(proxy, credentials=CREDENTIALS)
        async with open_relay("allow site.test", hosts=HOSTS, proxies=proxies) as relay:
            assert await exchange(relay, "site.test", port) == b"hello"
            record = await relay.record()
    assert proxy.requests == [f"CONNECT {PUBLIC}:{port} HTTP/1.1"]
    assert (record.name, record.address, record.sent, record.received) == ("site.test", PUBLIC, 5, 5)
    assert record.allowed and record.refusal is None


async def test_server_may_speak_first_through_a_proxy(open_relay: Callable[..., Any]) -> None:
    async with (
        server(greet) as local,
        HttpProxy(routes={f"{PUBLIC}:25": local}).serving() as proxy,
        open_relay("allow site.test", hosts=HOSTS, proxies=through(proxy)) as relay,
    ):
        assert await exchange(relay, "site.test", 25) == b"220 ready\r\n"


async def test_refused_targets_never_reach_the_proxy(open_relay: Callable[..., Any]) -> None:
    async with HttpProxy().serving() as proxy:
        settings = {"hosts": HOSTS, "proxies": through(proxy), "private_targets": ()}
        async with open_relay("allow open", "allow rebind.test", **settings) as relay:
            await exchange(relay, "rebind.test", 443)
            assert (await relay.record()).refusal is ConnectionRefusal.PRIVATE_ADDRESS
            await exchange(relay, "169.254.169.254", 80)
            assert (await relay.record(2)).refusal is ConnectionRefusal.PRIVATE_ADDRESS
    assert proxy.requests == []


@pytest.mark.parametrize("no_proxy", ["", "private.test", "127.0.0.0/8"])
async def test_direct_targets_need_no_proxy(open_relay: Callable[..., Any], no_proxy: str) -> None:
    async with server(echo) as local, HttpProxy().serving() as proxy:
        settings = {"hosts": HOSTS, "private_targets": ("private.test",), "proxies": through(proxy, no_proxy)}
        async with open_relay("allow private.test", **settings) as relay:
            assert await exchange(relay, "private.test", local) == b"hello"
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        (HttpProxy(refusal=b"HTTP/1.1 403 Forbidden\r\n\r\n"), "refused the connection (status 403)"),
        (HttpProxy(credentials="bob:other"), "refused the user name or password (status 407)"),
        (HttpProxy(refusal=b""), "closed the connection without an answer"),
    ],
)
async def test_refusal_of_the_proxy_is_recorded(open_relay: Callable[..., Any], proxy: HttpProxy, reason: str) -> None:
    async with proxy.serving():
        proxies = through(proxy, credentials=CREDENTIALS)
        async with open_relay("allow site.test", hosts=HOSTS, proxies=proxies) as relay:
            answer = await exchange(relay, "site.test", 80, b"GET / HTTP/1.1\r\n\r\n")
            record = await relay.record()
    assert record.refusal is ConnectionRefusal.UNREACHABLE
    assert f"site.test:80 cannot be reached: the proxy of HTTP_PROXY {reason}" in (record.message or "")
    assert b"the proxy of HTTP_PROXY" in answer
    for text in (answer.decode(), str(record)):
        assert "s3cr3t" not in text and str(proxy.port) not in text


async def test_silent_proxy_is_given_up(open_relay: Callable[..., Any]) -> None:
    async with HttpProxy(silent=True).serving() as proxy:
        settings = {"hosts": HOSTS, "proxies": through(proxy), "connect_timeout": 0.2}
        async with open_relay("allow site.test", **settings) as relay:
            await exchange(relay, "site.test", 443)
            record = await relay.record()
    assert "did not answer within 0.2 s" in (record.message or "")


async def test_closing_proxy_ends_the_connection(open_relay: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    async with (
        server(echo) as local,
        HttpProxy(routes={f"{PUBLIC}:443": local}).serving() as proxy,
        open_relay("allow site.test", hosts=HOSTS, proxies=through(proxy)) as relay,
    ):
        program = await relay.open("site.test", 443)
        await loop.sock_sendall(program, b"hello")
        assert await loop.sock_recv(program, 100) == b"hello"
        proxy.close_connections()
        assert await read_all(program) in (b"", b"<reset>")
        program.close()
        assert (await relay.record()).received == 5


async def test_unknown_name_says_that_the_server_resolves(open_relay: Callable[..., Any]) -> None:
    async with HttpProxy().serving() as proxy, open_relay("allow nowhere.invalid", proxies=through(proxy)) as relay:
        await exchange(relay, "nowhere.invalid", 443)
        record = await relay.record()
    assert record.refusal is ConnectionRefusal.UNRESOLVED
    assert "The server resolves names itself" in (record.message or "")


def test_sandboxes_trust_the_extra_certificates(tmp_path: Path) -> None:
    system, extra = tmp_path / "system.pem", tmp_path / "extra.pem"
    system.write_text("system")
    trustme.CA().cert_pem.write_to_path(str(extra))
    SandboxCertificates(extra, system).write(tmp_path)
    assert (tmp_path / "certificates.pem").read_text() == f"system\n{extra.read_text()}"

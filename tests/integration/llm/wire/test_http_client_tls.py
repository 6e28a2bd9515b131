"""Certificates that the HTTP client trusts or rejects."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from paddock.llm.wire.base import UpstreamTimeouts, UpstreamTlsFailed, UpstreamUnreachable
from paddock.llm.wire.http_client import HttpClient, UpstreamAddress

from .raw_http_peers import Upstream, answering

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def server_side(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def fetch(client: HttpClient, upstream: Upstream, ca: Path | None, host: str = "localhost") -> bytes:
    origin = UpstreamAddress.parse(f"https://{host}:{upstream.port}", ca=ca)
    answer = await client.send(origin, "POST", b"/", [], b"{}", UpstreamTimeouts(connect=2.0))
    return await answer.read()


async def test_trusted_certificate_is_accepted(authority: trustme.CA, ca: Path) -> None:
    context = server_side(authority)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    client = HttpClient()
    async with answering(OK).serving(context) as upstream:
        for _ in range(3):
            assert await fetch(client, upstream, ca) == b"ok"
        assert (upstream.connections, names) == (1, ["localhost"])
        (connection,) = client._connections
        assert connection._transport is not None
        assert connection._transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        await client.close()


async def test_unknown_certificate_authority_is_refused(authority: trustme.CA) -> None:
    client = HttpClient()
    async with answering(OK).serving(server_side(authority)) as upstream:
        with pytest.raises(UpstreamTlsFailed, match="not trusted") as caught:
            await fetch(client, upstream, None)
        assert not caught.value.retryable
        assert upstream.requests == []
        await client.close()


async def test_certificate_for_another_name_is_refused(authority: trustme.CA, ca: Path) -> None:
    client = HttpClient()
    async with answering(OK).serving(server_side(authority, "other.example")) as upstream:
        with pytest.raises(UpstreamTlsFailed, match="another name"):
            await fetch(client, upstream, ca)
        await client.close()


async def test_certificate_authority_applies_to_one_upstream_only(authority: trustme.CA, ca: Path) -> None:
    client = HttpClient()
    async with answering(OK).serving(server_side(authority)) as upstream:
        assert await fetch(client, upstream, ca) == b"ok"
        with pytest.raises(UpstreamTlsFailed):
            await fetch(client, upstream, None)
        await client.close()


async def test_upstream_without_tls_is_an_error(ca: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    client = HttpClient()
    async with Upstream(serve).serving() as upstream:
        with pytest.raises(UpstreamTlsFailed, match="does not speak TLS"):
            await fetch(client, upstream, ca)
    await client.close()


async def test_disconnect_or_silence_in_tls_handshake_is_an_error(ca: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    client = HttpClient()
    async with Upstream(hang_up).serving() as upstream:
        with pytest.raises(UpstreamUnreachable):
            await fetch(client, upstream, ca)
    async with Upstream(silent).serving() as upstream:
        origin = UpstreamAddress.parse(f"https://localhost:{upstream.port}", ca=ca)
        with pytest.raises(UpstreamUnreachable, match="within"):
            await client.send(origin, "GET", b"/", [], b"", UpstreamTimeouts(connect=0.1))
    await client.close()


async def test_invalid_certificate_authority_file_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    client = HttpClient()
    for path in (tmp_path / "missing.pem", empty):
        with pytest.raises(UpstreamTlsFailed, match="`ca`"):
            await client.send(
                UpstreamAddress.parse("https://localhost:1", ca=path), "GET", b"/", [], b"", UpstreamTimeouts()
            )
    await client.close()

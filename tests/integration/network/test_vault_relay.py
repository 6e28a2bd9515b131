"""Requests to bound hosts get credentials on their way, and nothing else does."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path

import h11
import pytest
import trustme

from paddock.model.credential_vault import CredentialAuth, CredentialAuthType, HeaderCredential
from paddock.model.network import ConnectionRefusal
from paddock.network.vault.vault_changes import NewCredential, VaultPatch
from tests.integration.network.vault_support import (
    HOST,
    SECRET,
    RecordingServer,
    SeenRequest,
    VaultSandbox,
    open_vault_sandbox,
    recording_server,
    send_response,
)

pytestmark = pytest.mark.anyio
OTHER_SECRET = "another-secret-value"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[VaultSandbox]:
    async with open_vault_sandbox(tmp_path) as opened:
        yield opened


@pytest.fixture
async def server(sandbox: VaultSandbox) -> AsyncIterator[RecordingServer]:
    async with recording_server(sandbox.authority) as running:
        yield running


def echo_secret(*pieces: bytes, encoding: str | None = None, chunked: bool = False):  # type: ignore[no-untyped-def]
    """Return an answer with these pieces, and the request's credential in a header."""

    def answer(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Awaitable[None]:
        headers = [("X-Echo", " ".join(seen.values("Authorization")))]
        if encoding:
            headers.append(("Content-Encoding", encoding))
        return send_response(connection, writer, 200, headers, pieces, chunked=chunked)

    return answer


async def test_matching_request_gets_the_header_and_others_do_not(
    sandbox: VaultSandbox, server: RecordingServer
) -> None:
    await sandbox.bind(server.port, paths=("/v1/*",), methods=("get",))
    assert (await sandbox.get(server.port, "/v1/models?x=1")).endswith(b"\r\n\r\nok")
    await sandbox.get(server.port, "/v2/models")
    await sandbox.get(server.port, "/v1/models", method="DELETE")
    for path in ("/v1/../admin", "/v1/%2e%2e/admin", "/v1/x%2Fy", "/v1//x", "/v1/..;a/x", "/v1/..%3B/x"):
        await sandbox.get(server.port, path)
    first, *others = server.requests
    assert first.values("Authorization") == [f"Bearer {SECRET}"] and first.target == "/v1/models?x=1"
    assert len(others) == 8 and not any(each.values("Authorization") for each in others)
    record = await sandbox.record(9)
    assert (record.name, record.server_name, record.allowed, record.refusal) == (HOST, HOST, True, None)
    assert record.sent > 100 and record.received > 100 and SECRET not in str(sandbox.records)


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (CredentialAuth(type=CredentialAuthType.BEARER, credential="api"), {"Authorization": "Bearer {}"}),
        (CredentialAuth(type=CredentialAuthType.BASIC, credential="api"), {"Authorization": "Basic {}"}),
        (CredentialAuth(type=CredentialAuthType.API_KEY, credential="api", name="X-Key"), {"X-Key": "{}"}),
        (
            CredentialAuth(
                type=CredentialAuthType.CUSTOM_HEADERS,
                headers=(
                    HeaderCredential(name="X-One", credential="api"),
                    HeaderCredential(name="X-Two", credential="api"),
                ),
            ),
            {"X-One": "{}", "X-Two": "{}"},
        ),
    ],
)
async def test_headers_of_the_program_are_replaced(
    sandbox: VaultSandbox, server: RecordingServer, auth: CredentialAuth, expected: dict[str, str]
) -> None:
    value = base64.b64encode(b"user:password-of-user").decode()
    await sandbox.bind(server.port, value=value, auth=auth)
    own = [f"{name}: fake" for name in expected] + [f"{name.lower().replace('-', '_')}: fake" for name in expected]
    await sandbox.get(server.port, "/", *own, *own, "Connection: Authorization, X-Key, X-One")
    (seen,) = server.requests
    for name, form in expected.items():
        assert seen.values(name) == [form.format(value)]
    assert "fake" not in str(seen.headers)


async def test_changes_apply_to_the_next_request_of_an_open_connection(
    sandbox: VaultSandbox, server: RecordingServer
) -> None:
    await sandbox.bind(server.port)
    reader, writer = await sandbox.connect_tls(server.port)

    async def request() -> list[str]:
        writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
        assert (await asyncio.wait_for(reader.readuntil(b"ok"), 10)).startswith(b"HTTP/1.1 200")
        return server.requests[-1].values("Authorization")

    assert await request() == [f"Bearer {SECRET}"]
    await sandbox.vaults.patch(sandbox.sandbox, VaultPatch(1, replace_credentials=[NewCredential("api", OTHER_SECRET)]))
    assert await request() == [f"Bearer {OTHER_SECRET}"]
    await sandbox.vaults.delete(sandbox.sandbox)
    assert await request() == []
    assert server.connections == 1
    # Values of before stay masked.
    server.answers["/echo"] = echo_secret(f"{SECRET} {OTHER_SECRET}".encode())
    writer.write(f"GET /echo HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.endswith(f"{'*' * len(SECRET)} {'*' * len(OTHER_SECRET)}".encode())
    writer.close()


async def test_request_that_matches_two_bindings_is_refused(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port, "one", value=SECRET)
    await sandbox.bind(server.port, "two", value=OTHER_SECRET, paths=("/both*",))
    answer = await sandbox.get(server.port, "/both")
    assert answer.startswith(b"HTTP/1.1 403") and b"several credential bindings: one, two" in answer
    assert server.requests == []
    record = await sandbox.record()
    assert record.refusal is ConnectionRefusal.VAULT and "one, two" in (record.message or "")
    await sandbox.get(server.port, "/single")
    assert server.requests[0].values("Authorization") == [f"Bearer {SECRET}"]


async def test_other_hosts_are_relayed_untouched(sandbox: VaultSandbox, server: RecordingServer) -> None:
    """A redirect to another host carries no credential, and its TLS is end to end."""
    await sandbox.bind(server.port)

    async def redirect(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        location = f"https://other.test:{server.port}/?token={seen.values('Authorization')[0]}"
        await send_response(connection, writer, 302, [("Location", location)], [])

    server.answers["/redirect"] = redirect
    answer = await sandbox.get(server.port, "/redirect")
    assert b"302" in answer and SECRET.encode() not in answer and b"token=Bearer ****" in answer
    reader, writer = await sandbox.connect_tls(server.port, "other.test", sandbox.trust(upstream=True))
    certificate = writer.get_extra_info("peercert")
    assert "trustme" in str(certificate["issuer"])
    writer.write(b"GET /next HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")
    assert b"ok" in await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert server.requests[-1].target == "/next" and server.requests[-1].values("Authorization") == []
    with pytest.raises(ssl.SSLCertVerificationError):
        await sandbox.connect_tls(server.port, "other.test")


async def test_binding_closes_connections_that_were_untouched(sandbox: VaultSandbox, server: RecordingServer) -> None:
    reader, writer = await sandbox.connect_tls(server.port, context=sandbox.trust(upstream=True))
    other_reader, other_writer = await sandbox.connect_tls(server.port, "other.test", sandbox.trust(upstream=True))
    for name, each in ((HOST, writer), ("other.test", other_writer)):
        each.write(f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    assert b"ok" in await asyncio.wait_for(reader.readuntil(b"ok"), 10)
    assert b"ok" in await asyncio.wait_for(other_reader.readuntil(b"ok"), 10)
    await sandbox.bind(server.port)
    record = await sandbox.record()
    assert record.refusal is ConnectionRefusal.VAULT and record.name == HOST
    other_writer.write(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
    assert b"ok" in await asyncio.wait_for(other_reader.readuntil(b"ok"), 10)
    for each in (writer, other_writer):
        each.close()


async def test_wildcards_stand_for_one_label(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port, hosts=("*.wild.test",))
    reader, writer = await sandbox.connect_tls(server.port, "a.wild.test")
    writer.write(f"GET / HTTP/1.1\r\nHost: a.wild.test:{server.port}\r\nConnection: close\r\n\r\n".encode())
    assert b"ok" in await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert server.requests[0].values("Authorization") == [f"Bearer {SECRET}"]


async def test_plain_http_is_bound_only_by_its_scheme(sandbox: VaultSandbox) -> None:
    async with recording_server(None) as server:
        await sandbox.bind(server.port)  # https
        for _ in range(2):
            program = await sandbox.connect(server.port)
            reader, writer = await asyncio.open_connection(sock=program)
            writer.write(f"GET / HTTP/1.0\r\nHost: {HOST}:{server.port}\r\nAuthorization: own\r\n\r\n".encode())
            assert b"ok" in await asyncio.wait_for(reader.read(), 10)
            writer.close()
            await sandbox.bind(server.port, schemes=("http",))
        assert [each.values("Authorization") for each in server.requests] == [["own"], [f"Bearer {SECRET}"]]


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_echoed_values_are_masked(sandbox: VaultSandbox, server: RecordingServer, size: int) -> None:
    await sandbox.bind(server.port)
    body = b"a" * 5000 + f"Bearer {SECRET}|{SECRET}{SECRET[:5]}".encode() + b"b" * 5000
    masked = body.replace(SECRET.encode(), b"*" * len(SECRET))
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    server.answers["/chunked"] = echo_secret(*pieces, chunked=True)
    server.answers["/length"] = echo_secret(*pieces)
    compressed = gzip.compress(body)
    server.answers["/gzip"] = echo_secret(
        *(compressed[start : start + size] for start in range(0, len(compressed), size)), encoding="gzip"
    )
    for path in ("/chunked", "/length", "/gzip"):
        reader, writer = await sandbox.connect_tls(server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nAccept-Encoding: gzip, br\r\n\r\n".encode())
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        received, headers = b"", ""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                client.receive_data(await asyncio.wait_for(reader.read(65536), 10))
            elif isinstance(event, h11.Response):
                headers = str(event.headers.raw_items())
            elif isinstance(event, h11.Data):
                received += bytes(event.data)
        assert received == masked and SECRET not in headers and "Bearer ***" in headers
        writer.close()
    assert {each.values("Accept-Encoding")[0] for each in server.requests} == {"identity"}


async def test_compression_that_cannot_be_decoded_is_refused(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    server.answers["/"] = echo_secret(b"?", encoding="br")
    answer = await sandbox.get(server.port)
    assert answer.startswith(b"HTTP/1.1 502") and b"compressed its answer (br)" in answer


async def test_only_matching_requests_of_pipelined_ones_get_the_header(
    sandbox: VaultSandbox, server: RecordingServer
) -> None:
    await sandbox.bind(server.port, paths=("/secret",))
    host = f"Host: {HOST}:{server.port}\r\n"
    requests = (
        f"POST /secret HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        f"POST /plain HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nworld"
        f"HEAD /secret HTTP/1.1\r\n{host}\r\n"
        f"GET /plain HTTP/1.1\r\n{host}Connection: close\r\n\r\n"
    )
    answer = await sandbox.exchange(server.port, requests.encode())
    assert answer.count(b"HTTP/1.1 200") == 4
    seen = [(each.target, bool(each.values("Authorization")), each.body) for each in server.requests]
    assert seen == [
        ("/secret", True, b"hello"), ("/plain", False, b"world"), ("/secret", True, b""), ("/plain", False, b""),
    ]  # fmt: skip
    assert server.connections == 1


async def test_http_1_0_program_gets_a_body_until_the_end(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    server.answers["/"] = echo_secret(b"one", b"two", chunked=True)
    answer = await sandbox.exchange(server.port, b"GET / HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b"onetwo" and b"chunked" not in head.lower()
    assert server.requests[0].values("Host") == [f"{HOST}:{server.port}"]
    assert server.requests[0].values("Authorization") == [f"Bearer {SECRET}"]


async def test_program_waits_for_100_continue(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    for path, expected in (("/upload", b"HTTP/1.1 100"), ("/refuse", b"HTTP/1.1 200")):
        reader, writer = await sandbox.connect_tls(server.port)
        head = f"PUT {path} HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        writer.write(head.encode())
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(expected)
        if path == "/upload":
            writer.write(b"body")
            assert b"ok" in await asyncio.wait_for(reader.readuntil(b"ok"), 10)
        else:
            assert await asyncio.wait_for(reader.read(), 10) == b"ok"
        writer.close()
    assert server.requests[0].body == b"body"


async def test_websocket_gets_the_header_and_echoes_are_masked(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)

    async def switch(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        headers = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "x")]
        writer.write(connection.send(h11.InformationalResponse(status_code=101, headers=headers)) or b"")
        while data := await reader.read(100):
            writer.write(data[:4])
            await writer.drain()
            writer.write(data[4:])
        writer.write_eof() if writer.can_write_eof() else writer.close()

    server.answers["/socket"] = switch
    reader, writer = await sandbox.connect_tls(server.port)
    head = (
        f"GET /socket HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nConnection: keep-alive, Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert answer.startswith(b"HTTP/1.1 101") and b"Sec-WebSocket-Accept: x" in answer
    writer.write(f"say {SECRET} again".encode())
    assert await asyncio.wait_for(reader.readexactly(len(SECRET) + 10), 10) == f"say {'*' * len(SECRET)} again".encode()
    writer.close()
    (seen,) = server.requests
    assert seen.values("Authorization") == [f"Bearer {SECRET}"] and seen.values("Upgrade") == ["websocket"]
    assert seen.values("Sec-WebSocket-Extensions") == []


async def test_cleartext_http_2_is_not_negotiated(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    await sandbox.get(server.port, "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x")
    assert server.requests[0].values("Upgrade") == [] and server.requests[0].values("HTTP2-Settings") == []
    context = sandbox.trust()
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await sandbox.connect_tls(server.port, context=context)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    assert tls.selected_alpn_protocol() == "http/1.1"
    writer.close()
    assert b"HTTP/1.1 400" in await sandbox.exchange(server.port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


ZERO_CHUNK = "0\r\n\r\n"
SMUGGLED = "GET /admin HTTP/1.1\r\nHost: {host}\r\n\r\n"


@pytest.mark.parametrize(
    "request_text",
    [
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: +0\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0, 5\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n" + ZERO_CHUNK + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n" + ZERO_CHUNK + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n" + ZERO_CHUNK + SMUGGLED,
        "POST / HTTP/1.1\r\nHost: {host}\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n" + ZERO_CHUNK + SMUGGLED,
        "GET / HTTP/1.1\nHost: {host}\n\n" + SMUGGLED,
        "GET / HTTP/1.1\r\nHost: {host}\r\nHost: other.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n",
        "GET https://other.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "CONNECT other.test:443 HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\x01\x02\x03\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {host}\r\nX: " + "y" * 70_000,
    ],
)
async def test_ambiguous_requests_are_refused(
    sandbox: VaultSandbox, server: RecordingServer, request_text: str
) -> None:
    await sandbox.bind(server.port)
    answer = await sandbox.exchange(server.port, request_text.replace("{host}", f"{HOST}:{server.port}").encode())
    assert answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.1 501"), answer
    assert b"X-Paddock-Vault: refused" in answer and answer.count(b"HTTP/1.1 ") == 1
    assert server.requests == []
    assert (await sandbox.record()).refusal is ConnectionRefusal.VAULT


@pytest.mark.parametrize("host", ["other.test", f"{HOST}.evil.test", f"{HOST}:1", f"user@{HOST}", f"{HOST},other.test"])
async def test_request_for_another_host_than_the_connection_is_refused(
    sandbox: VaultSandbox, server: RecordingServer, host: str
) -> None:
    await sandbox.bind(server.port)
    answer = await sandbox.exchange(server.port, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400")) and server.requests == []


async def test_server_name_must_be_the_requested_one(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    program = await sandbox.connect(server.port)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(sock=program, ssl=sandbox.trust(), server_hostname="other.test")
    assert (await sandbox.record()).refusal is ConnectionRefusal.SERVER_NAME


async def test_body_with_invalid_chunks_is_refused(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    head = f"POST / HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await sandbox.exchange(server.port, head.encode() + b"5\r\nhelloXX0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400") and b"not valid" in answer


async def test_certificate_of_the_server_is_verified(sandbox: VaultSandbox) -> None:
    for authority, names in ((trustme.CA(), (HOST,)), (sandbox.authority, ("wrong.test",))):
        async with recording_server(authority, *names) as server:
            await sandbox.bind(server.port)
            answer = await sandbox.get(server.port)
            assert answer.startswith(b"HTTP/1.1 502") and b"cannot be verified" in answer
            assert server.requests == []
    async with recording_server(None) as plain:
        await sandbox.bind(plain.port)
        assert b"no TLS connection" in await sandbox.get(plain.port)


async def test_cut_off_answers_are_not_complete(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)

    async def cut(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        framing = ("Transfer-Encoding", "chunked") if seen.target == "/chunked" else ("Content-Length", "100")
        writer.write(connection.send(h11.Response(status_code=200, headers=[framing])) or b"")
        writer.write(connection.send(h11.Data(data=b"part")) or b"")
        await writer.drain()
        writer.transport.abort()

    for path in ("/chunked", "/length"):
        server.answers[path] = cut
        reader, writer = await sandbox.connect_tls(server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
        received = b""
        with suppress(ConnectionError, ssl.SSLError):
            while data := await asyncio.wait_for(reader.read(100), 10):
                received += data
            pytest.fail("the answer ended in order")
        assert b"\r\n0\r\n" not in received
        writer.close()


async def test_handshakes_that_never_end_are_bounded(
    sandbox: VaultSandbox, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.network.connection_relay.HANDSHAKE_TIMEOUT", 0.3)
    await sandbox.bind(server.port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = sandbox.trust().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    program = await sandbox.connect(server.port)
    await asyncio.get_running_loop().sock_sendall(program, outgoing.read())
    record = await sandbox.record()
    assert record.refusal is ConnectionRefusal.UNREACHABLE and "longer than 0.3 s" in (record.message or "")


async def test_head_that_never_ends_is_bounded(
    sandbox: VaultSandbox, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.network.vault.http_interception.HEAD_TIMEOUT", 0.3)
    await sandbox.bind(server.port)
    assert (await sandbox.exchange(server.port, b"GET / HT")).startswith(b"HTTP/1.1 408")


async def test_program_without_trust_ends_the_handshake(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    with pytest.raises(ssl.SSLCertVerificationError):
        await sandbox.connect_tls(server.port, context=sandbox.trust(upstream=True))
    assert "certificate authority" in ((await sandbox.record()).message or "")


async def test_streams_have_back_pressure_in_both_directions(sandbox: VaultSandbox, server: RecordingServer) -> None:
    """A stalled reader stalls the writer, and all bytes arrive once it goes on."""
    await sandbox.bind(server.port)
    size = 64 * 2**20
    sent = 0

    async def stream(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal sent
        headers = [("Content-Length", str(size))]
        writer.write(connection.send(h11.Response(status_code=200, headers=headers)) or b"")
        while sent < size:
            writer.write(connection.send(h11.Data(data=bytes(2**18))) or b"")
            await writer.drain()
            sent += 2**18
        writer.write(connection.send(h11.EndOfMessage()) or b"")

    server.answers["/stream"] = stream
    reader, writer = await sandbox.connect_tls(server.port)
    writer.write(f"GET /stream HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    stalled = -1
    while stalled != sent:
        stalled = sent
        await asyncio.sleep(0.3)
    assert sent < size / 2
    left = size
    while left:
        left -= len(await asyncio.wait_for(reader.read(2**20), 10))
    head = f"POST /upload HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nContent-Length: {2**24}\r\n\r\n"
    writer.write(head.encode() + bytes(2**24))
    await asyncio.wait_for(reader.readuntil(b"ok"), 30)
    assert len(server.requests[-1].body) == 2**24
    writer.close()


async def test_program_that_leaves_ends_the_request_at_the_server(
    sandbox: VaultSandbox, server: RecordingServer
) -> None:
    await sandbox.bind(server.port)
    left, began = asyncio.Event(), asyncio.Event()

    async def wait(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        began.set()
        try:
            await reader.read()
        finally:
            left.set()

    server.answers["/wait"] = wait
    _, writer = await sandbox.connect_tls(server.port)
    writer.write(f"GET /wait HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
    await asyncio.wait_for(began.wait(), 10)
    writer.close()
    await asyncio.wait_for(left.wait(), 10)


async def test_policy_closes_intercepted_connections(sandbox: VaultSandbox, server: RecordingServer) -> None:
    await sandbox.bind(server.port)
    reader, writer = await sandbox.connect_tls(server.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"ok"), 10)
    assert await sandbox.networks.apply_policy(sandbox.sandbox.model_copy(update={"network": ()})) == 1
    with suppress(ConnectionError, ssl.SSLError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    assert (await sandbox.record()).refusal is ConnectionRefusal.POLICY_CHANGED
    writer.close()


async def test_stream_of_events_is_not_held_back(sandbox: VaultSandbox, server: RecordingServer) -> None:
    """Each event arrives while the server waits, and a value that was split by a pause is masked where it goes on."""
    await sandbox.bind(server.port)
    read = asyncio.Event()

    async def stream(
        seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(connection.send(h11.Response(status_code=200, headers=[("Transfer-Encoding", "chunked")])) or b"")
        for event in (b"data: 1\n\n", f"data: {SECRET[:8]}".encode(), f"{SECRET[8:]}\n\n".encode()):
            writer.write(connection.send(h11.Data(data=event)) or b"")
            await asyncio.wait_for(read.wait(), 10)
            read.clear()
        writer.write(connection.send(h11.EndOfMessage()) or b"")

    server.answers["/events"] = stream
    reader, writer = await sandbox.connect_tls(server.port)
    writer.write(f"GET /events HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
    received = b""
    for expected in (b"data: 1", SECRET[:8].encode(), b"*" * (len(SECRET) - 8) + b"\n\n"):
        while expected not in received.replace(b"\r\n", b""):
            received += await asyncio.wait_for(reader.read(1000), 10)
        read.set()
    assert SECRET[8:].encode() not in received
    writer.close()

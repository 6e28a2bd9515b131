"""Requests with endless, oversized or ambiguous headers are refused early and delay no other request."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.server import Server, eventually
from tests.support.server_load import resident_memory, watch_health


@contextmanager
def open_connection(server: Server) -> Iterator[socket.socket]:
    host, port = server.domain.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        yield raw


def send_pieces(server: Server, *pieces: bytes) -> tuple[bytes, int]:
    """Send pieces until the server disconnects; return its response and the number of sent bytes."""
    sent = 0
    with open_connection(server) as raw:
        try:
            for piece in pieces:
                raw.sendall(piece)
                sent += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        received = b""
        try:
            while piece := raw.recv(65536):
                received += piece
        except ConnectionResetError:
            pass
        return received, sent


def request_head(*lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET /v1/health HTTP/{version}", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", *[b"a" * 2**20] * 48],
        [b"GET /v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\n", *[b"a:b\r\n" * 200_000] * 16],
        [b"GET /", *[b"a" * 2**20] * 48],
        [b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", *[b"x" * 2**20] * 48],
        [
            b"POST /v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
            *[b"x" * 2**20] * 48,
        ],
    ],
    ids=["one header", "many headers", "address", "chunk extension", "trailer"],
)
def test_endless_heads_are_refused_without_delaying_others(server: Server, pieces: list[bytes]) -> None:
    before = resident_memory(server)
    with watch_health(server) as waits:
        received, _ = send_pieces(server, *pieces)
    assert received.startswith(b"HTTP/1.1 431 "), received
    assert waits.longest < 1.0, f"another client waited {waits.longest:.2f} s"
    assert resident_memory(server) - before < 32 * 2**20


def test_too_large_head_error_names_the_limit(server: Server) -> None:
    for request, status, words in (
        (request_head("Host: localhost", f"X: {'a' * 70_000}"), 431, "65536 bytes"),
        (request_head("Host: localhost", *[f"X-{number}: 1" for number in range(120)]), 431, "100 headers"),
        (request_head("Host: localhost", "Host: localhost"), 400, "host may be given once"),
        (request_head("Host: localhost", "Host: evil.example"), 400, "host may be given once"),
        (request_head("Host: localhost", "Transfer-Encoding: chunked", version="1.0") + b"0\r\n\r\n", 400, "HTTP/1.0"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed HTTP"),
    ):
        received, _ = send_pieces(server, request)
        first, _, rest = received.partition(b"\r\n")
        assert int(first.split()[1]) == status, received
        assert words in json.loads(rest.partition(b"\r\n\r\n")[2])["message"], received


def test_large_heads_within_limits_are_accepted(server: Server) -> None:
    request = request_head("Host: localhost", "Connection: close", *[f"X-{n}: {'a' * 600}" for n in range(95)])
    received, _ = send_pieces(server, request)
    assert received.startswith(b"HTTP/1.1 200 "), received


def test_websocket_heads_have_the_same_limits(server: Server) -> None:
    upgrade = (
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    for more, status in ((f"X: {'a' * 70_000}", 431), (f"X: {'a' * 20_000}", 431), ("Host: b", 400)):
        received, _ = send_pieces(server, request_head(*upgrade, more))
        assert int(received.split(b" ", 2)[1]) == status, received
    assert "Traceback" not in server.log()


def test_refused_websockets_get_a_status_and_leave_no_errors_in_the_log(server: Server) -> None:
    url = server.url.replace("http", "ws")
    for path, status in (("/v1/sandboxes/sb-0000000000000000/terminal", 401), ("/v1/nowhere", 401)):
        with pytest.raises(InvalidStatus) as refused, connect(f"{url}{path}"):
            pass
        assert refused.value.response.status_code == status
        assert "code" in json.loads(refused.value.response.body or b"{}")
    assert "handshake" not in server.log()


def test_head_limit_applies_to_each_request(server: Server) -> None:
    """Forty heads of 30 KiB on one connection exceed the limit of a single head."""
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        started = time.monotonic()
        for _ in range(40):
            assert client.get("/v1/health", headers={"X": "a" * 30_000}).status_code == 200
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("path", ["/", "/health"])
def test_pipelined_requests_of_nonreading_client_use_bounded_memory(server: Server, path: str) -> None:
    before = resident_memory(server)
    with watch_health(server) as waits, open_connection(server) as raw:
        raw.settimeout(1)
        with suppress(TimeoutError):  # The server stops reading as well.
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 100_000)
        eventually(lambda: len(waits.seconds) > 80)
        assert resident_memory(server) - before < 32 * 2**20
    assert waits.longest < 0.3, f"another client waited {waits.longest:.2f} s"

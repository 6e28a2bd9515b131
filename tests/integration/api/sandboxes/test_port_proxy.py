"""Proxied requests and responses between clients and programs in a sandbox."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.integration.api.conftest import create_sandbox
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox

ECHO_PORT = 9000
ECHO_PROGRAM = r"""
import hashlib, json, socket, sys, threading, base64

def serve(connection):
    stream = connection.makefile("rb")
    line = stream.readline().decode("latin-1")
    headers = []
    while (header := stream.readline().strip()):
        name, _, value = header.decode("latin-1").partition(":")
        headers.append([name.lower(), value.strip()])
    seen = dict(headers)
    target = line.split()[1]
    if target.startswith("/ws"):
        key = seen["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        chosen = "Sec-WebSocket-Protocol: two\r\n" if "two" in seen.get("sec-websocket-protocol", "") else ""
        head = f"HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{chosen}"
        head += f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
        connection.sendall(head.encode())
        text = json.dumps({"target": target, "headers": headers}).encode()
        connection.sendall(b"\x81\x7e" + len(text).to_bytes(2, "big") + text)
        stream.read(1)
        connection.sendall(b"\x88\x02" + (4001).to_bytes(2, "big"))
        connection.close()
        return
    length = int(seen.get("content-length", "0"))
    digest, size = hashlib.sha256(), 0
    if seen.get("transfer-encoding") == "chunked":
        while (n := int(stream.readline(), 16)):
            digest.update(stream.read(n)); size += n; stream.readline()
    while size < length:
        piece = stream.read(min(65536, length - size))
        if not piece:
            open("/tmp/broken", "w").close(); return
        digest.update(piece); size += len(piece)
    if target.startswith("/endless"):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            open("/tmp/gone", "w").close()
        return
    if target.startswith("/half"):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf"); connection.close(); return
    if target.startswith("/nonsense"):
        connection.sendall(b"this is no HTTP\r\n\r\n"); connection.close(); return
    body = json.dumps({"line": line, "headers": headers, "size": size, "sha256": digest.hexdigest()}).encode()
    extra = (
        "Set-Cookie: id=1; Path=/app; Domain=localhost; HttpOnly\r\nStrict-Transport-Security: max-age=1\r\n"
        "Clear-Site-Data: *\r\nAlt-Svc: h3\r\nService-Worker-Allowed: /\r\nAccess-Control-Allow-Origin: *\r\n"
        "Location: /elsewhere\r\nX-Custom: kept\r\nConnection: close, X-Hop\r\nX-Hop: dropped\r\n"
    )
    head = f"HTTP/1.1 203 Fine\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode()
    connection.sendall(head if line.startswith("HEAD") else head + body)
    connection.close()

listener = socket.create_server(("127.0.0.1", 9000))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def upload_file(client: httpx.Client, sandbox: str, path: str, content: bytes) -> None:
    metadata = json.dumps({"path": path})
    form: dict[str, tuple[str, str | bytes]] = {"metadata": ("m", metadata), "file": ("f", content)}
    assert client.post(f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/files/upload", files=form).status_code == 200


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[str]:
    sandbox_id = create_sandbox(client)
    daemon = f"/v1/sandboxes/{sandbox_id}/proxy/{DAEMON_PORT}"
    form: dict[str, tuple[str, str | bytes]] = {
        "metadata": ("m", json.dumps({"path": "/tmp/echo.py"})),
        "file": ("f", ECHO_PROGRAM.encode()),
    }
    assert client.post(f"{daemon}/files/upload", files=form).status_code == 200
    run_in_sandbox(client, sandbox_id, "python3 /tmp/echo.py > /tmp/echo.log 2>&1", background=True)
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox_id}/proxy/{ECHO_PORT}/").status_code == 203)
    yield sandbox_id
    client.delete(f"/v1/sandboxes/{sandbox_id}")


@pytest.fixture(scope="module")
def prefix(sandbox: str) -> str:
    return f"/v1/sandboxes/{sandbox}/proxy/{ECHO_PORT}"


def raw_request(server: Server, target: str, *headers: str) -> tuple[int, dict[str, Any]]:
    """Send a request with an unnormalised target."""
    address, port = server.domain.split(":")
    lines = [f"GET {target} HTTP/1.1", "Host: localhost", f"OPEN-SANDBOX-API-KEY: {server.key}", "Connection: close"]
    with socket.create_connection((address, int(port)), timeout=20) as raw:
        raw.sendall("\r\n".join([*lines, *headers, "", ""]).encode("latin-1"))
        answer = raw.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else {}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/v1/keys",
        "//double//slashes",
        "/a%2Fb%20c%C3%A4;v=1,2",
        "/q?a=1&a=2&&b=%20+&c",
        "/q?token=theirs&x=/../",
        "/proxy/44772/ping",
    ],
)
def test_proxied_paths_arrive_unchanged(server: Server, prefix: str, path: str) -> None:
    status, seen = raw_request(server, prefix + path)
    assert status == 203 and seen["line"] == f"GET {path} HTTP/1.1\r\n"


def test_proxied_paths_cannot_leave_the_sandbox(server: Server, prefix: str, sandbox: str) -> None:
    status, seen = raw_request(server, f"http://localhost{prefix}/absolute")
    assert status == 203 and seen["line"].startswith("GET /absolute ")
    status, _ = raw_request(server, f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/../../../../v1/keys")
    assert status == 404
    status, _ = raw_request(server, f"/v1/sandboxes/%2e%2e/proxy/{ECHO_PORT}/")
    assert status == 404
    status, _ = raw_request(server, f"/v1/sandboxes/{sandbox}%2fproxy%2f{ECHO_PORT}/")
    assert status == 404
    status, seen = raw_request(server, prefix)
    assert seen["line"].startswith("GET / ")


def test_request_headers_are_filtered(server: Server, prefix: str) -> None:
    _, seen = raw_request(
        server,
        f"{prefix}/",
        "Authorization: Basic dGhlaXJz",
        "X-Forwarded-For: 6.6.6.6",
        "X-EXECD-ACCESS-TOKEN: guess",
        "X-Hop: dropped",
        "Connection: X-Hop",
        "Cookie: a=b",
        "Transfer-Encoding-X: y",
    )
    headers = dict(seen["headers"])
    assert headers["authorization"] == "Basic dGhlaXJz" and headers["cookie"] == "a=b"
    assert headers["host"] == f"127.0.0.1:{ECHO_PORT}"
    assert headers["x-forwarded-for"] == "127.0.0.1" and headers["x-forwarded-host"] == "localhost"
    assert headers["x-forwarded-prefix"] == prefix
    assert not {"open-sandbox-api-key", "x-execd-access-token", "x-hop"} & set(headers)
    assert server.key not in json.dumps(seen)


def test_api_key_never_reaches_the_program(client: httpx.Client, server: Server, prefix: str) -> None:
    seen = client.get(f"{prefix}/").json()
    assert "authorization" not in dict(seen["headers"]) and server.key not in json.dumps(seen)


def test_response_headers_are_filtered(client: httpx.Client, prefix: str) -> None:
    response = client.get(f"{prefix}/")
    assert response.headers["X-Custom"] == "kept"
    assert response.headers["Set-Cookie"] == f"id=1; HttpOnly; Path={prefix}/app"
    assert response.headers["Location"] == f"{prefix}/elsewhere"
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert "allow-same-origin" not in response.headers["Content-Security-Policy"]
    for name in (
        "Strict-Transport-Security Clear-Site-Data Alt-Svc Service-Worker-Allowed Access-Control-Allow-Origin X-Hop"
    ).split():
        assert name not in response.headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_all_methods_are_proxied(client: httpx.Client, prefix: str, method: str) -> None:
    response = client.request(method, f"{prefix}/m", content=b"body" if method in ("POST", "PUT", "PATCH") else None)
    assert response.status_code == 203
    if method != "HEAD":
        assert response.json()["line"].startswith(f"{method} /m ")


def test_proxied_bodies_arrive_complete(client: httpx.Client, prefix: str) -> None:
    content = bytes(range(256)) * 40_000

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(content), 100_000):
            yield content[start : start + 100_000]

    for body in (content, pieces()):
        seen = client.post(f"{prefix}/upload", content=body).json()
        assert (seen["size"], seen["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert dict(client.post(f"{prefix}/", content=b"xyz").json()["headers"])["content-length"] == "3"


def test_files_pass_through_the_daemon(client: httpx.Client, sandbox: str) -> None:
    content = b"0123456789" * 1_000_000
    daemon = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}"
    form: dict[str, tuple[str, str | bytes]] = {
        "metadata": ("m", json.dumps({"path": "/tmp/large"})),
        "file": ("f", content),
    }
    assert client.post(f"{daemon}/files/upload", files=form).status_code == 200
    response = client.get(f"{daemon}/files/download", params={"path": "/tmp/large"})
    assert response.headers["Content-Length"] == str(len(content)) and response.content == content
    part = client.get(f"{daemon}/files/download", params={"path": "/tmp/large"}, headers={"Range": "bytes=10-14"})
    assert (part.status_code, part.content) == (206, b"01234")


def test_client_disconnect_cancels_the_proxied_request(client: httpx.Client, sandbox: str, prefix: str) -> None:
    with client.stream("GET", f"{prefix}/endless") as response:
        assert next(response.iter_raw()).startswith(b"x")
    eventually(lambda: run_in_sandbox(client, sandbox, "test -e /tmp/gone")[1] == 0)


def test_partial_upload_is_not_treated_as_complete(
    server: Server, client: httpx.Client, prefix: str, sandbox: str
) -> None:
    address, port = server.domain.split(":")
    with socket.create_connection((address, int(port))) as raw:
        head = f"POST {prefix}/ HTTP/1.1\r\nHost: localhost\r\nOPEN-SANDBOX-API-KEY: {server.key}\r\n"
        raw.sendall(f"{head}Content-Length: 1000\r\n\r\nhalf".encode())
        eventually(lambda: run_in_sandbox(client, sandbox, "true")[1] == 0)
    eventually(lambda: run_in_sandbox(client, sandbox, "test -e /tmp/broken")[1] == 0)


def test_broken_programs_cause_gateway_errors(client: httpx.Client, sandbox: str, prefix: str) -> None:
    response = client.get(f"/v1/sandboxes/{sandbox}/proxy/9/")
    assert response.status_code == 502 and "port 9" in response.json()["message"]
    assert client.get(f"{prefix}/nonsense").status_code == 502
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(f"{prefix}/half")


def test_port_of_paused_or_deleted_sandbox_is_refused(client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    client.post(f"/v1/sandboxes/{sandbox}/pause")
    response = client.get(f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/ping")
    assert (response.status_code, response.json()["code"]) == (409, "CONFLICT")
    client.delete(f"/v1/sandboxes/{sandbox}")
    assert client.get(f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/ping").status_code == 404


def connect_websocket(server: Server, path: str, **arguments: Any) -> ClientConnection:
    opened: ClientConnection = connect(f"{server.url.replace('http', 'ws')}{path}", **arguments)
    return opened


def test_websockets_are_proxied(server: Server, prefix: str) -> None:
    with connect_websocket(server, f"{prefix}/ws?a=%20b&token={server.key}&c", subprotocols=["one", "two"]) as ws:
        seen = json.loads(ws.recv(10))
        assert seen["target"] == "/ws?a=%20b&c" and server.key not in json.dumps(seen)
        assert ws.subprotocol == "two"
        ws.send("go on")
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(10)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4001


def test_daemon_terminals_are_proxied(server: Server, client: httpx.Client, sandbox: str) -> None:
    daemon = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}"
    response = client.post(f"{daemon}/pty", json={"command": "/bin/sh"})
    assert response.status_code in (200, 201), response.text
    session = response.json().get("session_id") or response.json()["id"]
    headers = {"OPEN-SANDBOX-API-KEY": server.key}
    with connect_websocket(server, f"{daemon}/pty/{session}/ws?pty=1", additional_headers=headers) as ws:
        ws.send(b"\x00echo $((6 * 7))\n")
        output = b""
        while b"42" not in output:
            message = ws.recv(20)
            output += message[1:] if isinstance(message, bytes) else b""
    assert client.delete(f"{daemon}/pty/{session}").status_code < 300

"""A sandbox with a hostile first process harms neither the server nor other tenants.

No special image is needed for that: a volume may be mounted over the image's Python.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from paddock.api.http.error_responses import send_error_response
from paddock.api.sandboxes import port_proxy
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.daemon.client import DaemonClient
from tests.integration.api.conftest import create_sandbox
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox

HOSTILE_DAEMON = r"""
import socket, threading

def answer(connection, body):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

def serve(connection):
    stream = connection.makefile("rb")
    try:
        while line := stream.readline():
            while stream.readline().strip():
                pass
            method, path = line.split()[:2]
            if path.startswith(b"/command/entrypoint/logs") and method == b"GET":
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b"x" * 2**20)
            elif path.startswith(b"/paddock/state"):
                answer(connection, b'{"idle_seconds": 1' + b"0" * 400 + b"}")
            elif path.startswith(b"/silence"):
                threading.Event().wait()
            elif path.startswith(b"/interim"):
                while True:
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)
            elif method == b"CONNECT":
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20)
                threading.Event().wait()
            else:
                answer(connection, b"")
    except OSError:
        pass

listener = socket.socket(fileno=3)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def create_hostile_sandbox(client: httpx.Client, **more: Any) -> str:
    """Create a sandbox in which the hostile program replaces the daemon."""

    def volume(name: str, path: str, **part: str) -> dict[str, Any]:
        return {"name": name, "pvc": {"claimName": "hostile"}, "mountPath": path, **part}

    maker = create_sandbox(client, volumes=[volume("made", "/made")])
    program = base64.b64encode(HOSTILE_DAEMON.encode()).decode()
    python, _ = run_in_sandbox(
        client,
        maker,
        "cp $(readlink -f /usr/bin/python3) /made/python; "
        f"echo {program} | base64 -d > /made/hostile.py; "
        "printf '#!/bin/sh\\nexec /made/python -I -S /made/hostile.py\\n' > /made/start; chmod 755 /made/*; "
        "readlink -f /usr/bin/python3",
    )
    client.delete(f"/v1/sandboxes/{maker}")
    return create_sandbox(client, volumes=[volume("made", "/made"), volume("python", python, subPath="start")], **more)


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"quotas": {"snapshots": 5}}


@pytest.fixture(scope="module")
def hostile_sandbox(client: httpx.Client) -> Iterator[str]:
    sandbox_id = create_hostile_sandbox(client, entrypoint=["true"])
    yield sandbox_id
    client.delete(f"/v1/sandboxes/{sandbox_id}")


def open_descriptors(server: Server) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def resident_memory(server: Server) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def open_connection(server: Server) -> socket.socket:
    host, _, port = server.domain.partition(":")
    return socket.create_connection((host, int(port)))


def test_endless_log_is_truncated(server: Server, client: httpx.Client, hostile_sandbox: str) -> None:
    before = resident_memory(server)
    for page in ("logs", "summary"):
        response = client.get(f"/v1/sandboxes/{hostile_sandbox}/diagnostics/{page}", timeout=20)
        assert response.status_code == 200
        assert len(response.content) < 2 * 2**20
    assert resident_memory(server) - before < 200 * 2**20


def test_endless_interim_responses_do_not_block_clients(
    server: Server, client: httpx.Client, hostile_sandbox: str
) -> None:
    def ask() -> None:
        with server.client() as other:
            assert other.get(f"/v1/sandboxes/{hostile_sandbox}/proxy/{DAEMON_PORT}/interim").status_code == 502

    request_thread = threading.Thread(target=ask)
    request_thread.start()
    begin = time.monotonic()
    request_thread.join(10)
    assert not request_thread.is_alive()
    assert client.get("/healthz").status_code == 200
    assert time.monotonic() - begin < 5


def test_client_disconnect_during_a_handshake_leaks_nothing(server: Server, hostile_sandbox: str) -> None:
    before = open_descriptors(server)
    handshake = (
        f"GET /v1/sandboxes/{hostile_sandbox}/proxy/{DAEMON_PORT}/silence HTTP/1.1\r\nHost: {server.domain}\r\n"
        f"Authorization: Bearer {server.key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    clients = [open_connection(server) for _ in range(20)]
    for connection in clients:
        connection.sendall(handshake.encode())
    eventually(lambda: open_descriptors(server) >= before + 40)
    for connection in clients:
        connection.close()
    eventually(lambda: open_descriptors(server) < before + 10)


def test_body_unread_by_the_sandbox_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[asyncio.StreamWriter] = []

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        held.append(writer)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 2**20, "more_body": True}

    async def exchange() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        filtered = port_proxy.PortHeaders(DAEMON_PORT, b"/prefix")
        headers = [(b"content-length", b"1000000000")]
        scope = {"type": "http", "method": "POST", "scheme": "http", "headers": headers}
        server = await asyncio.start_unix_server(never_read, tmp_path / "box.sock")
        async with server, DaemonClient(DaemonAddress(token="x", socket=tmp_path / "box.sock")) as inside:
            work = port_proxy.forward_to_sandbox(inside, "/", filtered, scope, receive, send, send_error_response)
            await asyncio.wait_for(work, 10)
            for writer in held:
                writer.transport.abort()
            await asyncio.sleep(0)
        return sent

    monkeypatch.setattr(port_proxy, "STALL_TIMEOUT", 0.3)
    assert asyncio.run(exchange())[0]["status"] == 504


def test_tunnel_with_endless_header_is_closed(server: Server, client: httpx.Client, hostile_sandbox: str) -> None:
    endpoint = client.get(f"/v1/sandboxes/{hostile_sandbox}/endpoints/1234").json()["endpoint"]
    host, _, port = endpoint.partition(":")
    before = open_descriptors(server)
    for _ in range(10):
        with socket.create_connection((host, int(port)), 10) as connection:
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                pass
    eventually(lambda: open_descriptors(server) < before + 5)


def test_internal_extensions_cannot_be_set_by_clients(client: httpx.Client) -> None:
    volume = {"name": "v", "pvc": {"claimName": "precious"}, "mountPath": "/v"}
    owner = create_sandbox(client, volumes=[volume])
    response = client.post("/v1/sandboxes", json={"extensions": {"paddock.volumes": "precious"}})
    assert response.status_code == 400
    assert "reserved" in response.json()["message"]
    client.delete(f"/v1/sandboxes/{owner}")


@pytest.mark.parametrize("name", ["x" * 600, "/etc/passwd", "../../etc/passwd", "-h"])
def test_image_name_cannot_be_a_path(client: httpx.Client, tmp_path: Path, name: str) -> None:
    response = client.post("/v1/sandboxes", json={"image": {"uri": name}})
    assert (response.status_code, response.json()["code"]) == (404, "IMAGE_NOT_FOUND")


def test_errors_do_not_reveal_host_files(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "there.yaml").write_text("a: b")
    answers = [client.post("/v1/sandboxes", json={"image": {"uri": f"{tmp_path}/{name}"}}) for name in ("there", "not")]
    assert {(response.status_code, response.json()["code"]) for response in answers} == {(404, "IMAGE_NOT_FOUND")}


def test_slow_starts_of_a_tenant_do_not_block_others(client: httpx.Client, stranger: httpx.Client) -> None:
    def ask() -> None:
        with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=120, trust_env=False) as own:
            own.delete(f"/v1/sandboxes/{create_sandbox(own, resourceLimits={'cpu': '10m'})}")

    slow = [threading.Thread(target=ask) for _ in range(3 * max(4, 2 * (os.cpu_count() or 1)))]
    for thread in slow:
        thread.start()
    client.get("/healthz")
    begin = time.monotonic()
    sandbox = create_sandbox(stranger)
    waited = time.monotonic() - begin
    others_done = all(not thread.is_alive() for thread in slow)
    for thread in slow:
        thread.join()
    stranger.delete(f"/v1/sandboxes/{sandbox}")
    assert not others_done
    assert waited < 5

"""Floods of small messages and requests of any content to any route block the event loop only briefly."""

from __future__ import annotations

import json
import re
import shlex
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually, free_port, run_in_sandbox
from tests.support.server_load import assert_event_loop_responsive, resident_memory, watch_health

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script: Path = tmp_path_factory.mktemp("script") / "s.yaml"
    script.write_text(json.dumps({"turns": [{"say": "Hello."}], "otherwise": {"say": "Again."}}))
    providers = {"s": {"kind": "script", "file": str(script)}}
    return {"llm": {"listen": f"127.0.0.1:{free_port()}", "providers": providers, "models": {"scripted": "s"}}}


def create_session(client: httpx.Client) -> str:
    return str(client.post("/v1/sessions", json={"model": "scripted"}).json()["id"])


def list_body_routes(client: httpx.Client, ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """List the routes that take JSON, with these ids in their paths."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, described in methods.items():
            if any("json" in kind for kind in described.get("requestBody", {}).get("content", {})):
                yield method.upper(), re.sub(r"\{([^}]+)\}", lambda name: ids.get(name[1], "x-0123456789abcdef"), path)


@pytest.mark.parametrize("real", [True, False], ids=["of real objects", "of unknown objects"])
def test_json_routes_keep_event_loop_responsive(server: Server, client: httpx.Client, real: bool) -> None:
    many = 49_000
    fields = b"{" + b",".join(b'"%d":1' % number for number in range(many)) + b"}"
    known = b",".join(b'"%s":' % name + b"[" + b"{}," * 9_000 + b"{}]" for name in (b"content", b"messages", b"egress"))
    bodies = (
        b"{" + b",".join(b'"%d":1' % number for number in range(500_000)) + b"}",
        b'{"a":[' + b"1," * 2_000_000 + b"1]}",
        fields,
        fields[: fields.index(b'"9000"') - 1] + b"}",
        b"[" + b"{}," * (many // 2) + b"{}]",
        b"[" * 9_000 + b"]" * 9_000,
        b"{" + known + b"}",
        b'{"text":"' + b"\\n" * 2**20 + b'"}',
        b'{"text":"' + b"\\n" * (30 * 2**20) + b'"}',
        b'{"file":{"a":"' + b"x" * 2**24 + b'"}, "threadId": "t", "runId": "r"}',
        b'{"task":{"goal":"a","matrix":{"a":[' + b"1," * 20_000 + b"1]}}}",
    )
    ids = {"sandbox_id": create_sandbox(client), "session_id": create_session(client)} if real else {}
    routes = list(list_body_routes(client, ids))
    assert len(routes) > 25
    routes = [(method, path) for method, path in routes if not real or any(each in path for each in ids.values())]
    with assert_event_loop_responsive(server, client):
        for method, path in routes:
            for body in bodies:
                response = client.request(method, path, content=body, headers=JSON)
                assert 400 <= response.status_code < 500 or response.status_code in (200, 201, 202), (
                    path,
                    response.text,
                )


@contextmanager
def connect_websocket(server: Server, path: str) -> Iterator[ClientConnection]:
    headers = {"Authorization": f"Bearer {server.key}"}
    with connect(f"ws://{server.domain}{path}", additional_headers=headers, compression=None, proxy=None) as opened:
        yield opened


def send_frame(socket: ClientConnection, frame: str) -> dict[str, Any]:
    """Send a frame and return the first acknowledgement or error."""
    socket.send(frame)
    while True:
        received = socket.recv(60)
        if isinstance(received, str) and (answer := json.loads(received))["type"] in ("ack", "error", "pong"):
            return answer  # type: ignore[no-any-return]


FRAMES = (
    '{"type":"ping","z":[' + "{}," * (5 * 2**20) + "{}]}",
    "[" + "[]," * 20_000 + "[]]",
    '{"z":"' + "\\n" * (7 * 2**20) + '"}',
    '"' * (15 * 2**20),
    "[" * 2**20,
)


def test_websocket_frames_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    session = create_session(client)
    for path in (f"/v1/sandboxes/{sandbox}/terminal", "/v1/screens", f"/v1/sessions/{session}/ws"):
        with connect_websocket(server, path) as socket, assert_event_loop_responsive(server, client):
            for frame in FRAMES:
                assert send_frame(socket, frame)["code"] == "INVALID_FRAME"
            assert send_frame(socket, '{"type": "ping"}')["type"] == "pong"


def masked_frame(kind: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    return bytes([(0x80 if final else 0) | kind, 0x80 | len(payload)]) + bytes(4) + payload


TEXT, PING, CONTINUED = 1, 9, 0
FLOODS = {
    "empty": masked_frame(TEXT) * 200_000,
    "short": masked_frame(TEXT, b"{}") * 150_000,
    "pings": masked_frame(PING) * 200_000,
    "fragments": masked_frame(TEXT, b"a", final=False) + masked_frame(CONTINUED, b"a", final=False) * 150_000,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_frame_floods_keep_event_loop_responsive(server: Server, client: httpx.Client, flood: str) -> None:
    """The server reads for some seconds; the rest stays in the client's buffer."""
    sandbox, session = create_sandbox(client), create_session(client)
    before = resident_memory(server)
    for path in ("/v1/screens", f"/v1/sandboxes/{sandbox}/terminal", f"/v1/sessions/{session}/ws"):
        head = (
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"Authorization: Bearer {server.key}\r\n\r\n"
        )
        with open_connection(server) as raw, assert_event_loop_responsive(server, client):
            raw.sendall(head.encode())
            assert raw.recv(65536).startswith(b"HTTP/1.1 101 ")
            raw.settimeout(0.5)
            with suppress(TimeoutError):
                raw.sendall(FLOODS[flood])
            with watch_health(server) as waits:
                eventually(lambda: len(waits.seconds) > 50)
    assert resident_memory(server) - before < 32 * 2**20


@contextmanager
def open_connection(server: Server, port: int | None = None) -> Iterator[socket.socket]:
    host, main = server.domain.rsplit(":", 1)
    with socket.create_connection((host, port or int(main)), timeout=30) as raw:
        yield raw


def send_and_receive(server: Server, port: int | None, content: bytes) -> bytes:
    """Send as much as the server reads, and return the beginning of its response."""
    with open_connection(server, port) as raw:
        sender = threading.Thread(target=_send_ignoring_reset, args=(raw, content))
        sender.start()
        try:
            return raw.recv(4096)
        finally:
            with suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)
            sender.join()


def _send_ignoring_reset(raw: socket.socket, content: bytes) -> None:
    with suppress(OSError):
        raw.sendall(content)


def test_request_and_chunk_floods_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    models = int(server.settings["llm"]["listen"].rpartition(":")[2])
    head = (
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        f"Authorization: Bearer {server.key}\r\n\r\n"
    )
    chunks = b"1\r\na\r\n" * 400_000 + b"0\r\n\r\n"
    gets = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60_000
    with assert_event_loop_responsive(server, client):
        for port in (None, models):
            assert send_and_receive(server, port, gets).startswith(b"HTTP/1.1 ")
            assert send_and_receive(server, port, head.format("/v1/chat/completions").encode() + chunks).startswith(
                b"HTTP/1.1 4"
            )
        for path in ("/v1/tasks/validate", "/v1/inputs"):
            assert send_and_receive(server, None, head.format(path).encode() + chunks).startswith(b"HTTP/1.1 4")


TOOL_FLOOD = r"""
import os, urllib.error, urllib.request
M = 2**20
call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s"name":"%s","arguments":{"path":"/tmp/x",'
contents = [
    b"[" + b"[]," * 82_000 + b"[]]",
    b"{" + b",".join(b'"%d":1' % number for number in range(120_000)) + b"}",
    b"[" + (b"1" * 4000 + b",") * 4000 + b"1]",
    b"[" * 240_000,
    b'"' + b"x" * (15 * M) + b'"',
    b'"' + b"\n" * (7 * M) + b'"',
    b'"' + "\u00e9".encode() * (7 * M) + b'"',
    b'"' + b"x" * (15 * M) + "\U0001f600".encode() + b'"',
    b'"' + b"x" * (7 * M) + "\U0001f600".encode() + b'"',
    b'"a' + b"," * (15 * M) + b'"',
    b'""' * (7 * M),
    b"1" + b" " * (15 * M),
    b"," * (15 * M),
]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for content in contents:
    for meta, tool in ((b"", b"write_file"), (b"", b"nothing"), (b'"_meta":{"progressToken":1},', b"write_file")):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        body = call % (meta, tool) + b'"content":' + content + b"}}}"
        request = urllib.request.Request(os.environ["PADDOCK_TOOLS_URL"], body, headers)
        try:
            print(opener.open(request, timeout=60).status)
        except urllib.error.HTTPError as error:
            print(error.code)
        except OSError as error:
            print(error)
"""


def test_tool_messages_from_a_sandbox_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    with assert_event_loop_responsive(server, client):
        output, code = run_in_sandbox(client, sandbox, f"python3 -c {shlex.quote(TOOL_FLOOD)}")
    assert code == 0, output
    statuses = output.split()
    assert len(statuses) == 39 and set(statuses) <= {"200", "400", "404", "413"}, output
    assert "200" in statuses and "413" in statuses

"""JSON bodies are limited before they are read, and read only for keys with the route's scope."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually, free_port
from tests.support.server_load import resident_memory, server_cpu_seconds, watch_health


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script: Path = tmp_path_factory.mktemp("script") / "s.yaml"
    script.write_text(json.dumps({"turns": [{"say": "Hello."}], "otherwise": {"say": "Again."}}))
    llm = {
        "archive": {"enabled": False},
        "listen": f"127.0.0.1:{free_port()}",
        "providers": {"s": {"kind": "script", "file": str(script)}},
        "models": {"scripted": "s"},
    }
    return {"llm": llm}


def unknown_fields(count: int) -> bytes:
    return b"{" + b",".join(b'"%d":1' % number for number in range(count)) + b"}"


def chunked_body(body: bytes) -> Any:
    """Return the body in chunks, so that the request has no length."""
    return (body[start : start + 65536] for start in range(0, len(body), 65536))


JSON = {"Content-Type": "application/json"}


def main_port(server: Server) -> int:
    return int(server.domain.rpartition(":")[2])


def model_port(server: Server) -> int:
    return int(server.settings["llm"]["listen"].rpartition(":")[2])


def chat_head(length: int, key: str = "") -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
    return (head + (f"Authorization: Bearer {key}\r\n\r\n" if key else "\r\n")).encode()


def create_tenant_key(client: httpx.Client, tenant: str, *scopes: str) -> str:
    body = {"name": tenant, "tenant": tenant, "scopes": scopes}
    return str(client.post("/v1/keys", json=body).json()["secret"])


def ask_scripted_model(server: Server, key: str, size: int) -> httpx.Response:
    with server.client(key) as client:
        message = {"role": "user", "content": "a" * size}
        return client.post("/v1/chat/completions", json={"model": "scripted", "messages": [message]})


def hold_incomplete_bodies(sockets: Iterable[socket.socket], head: bytes, size: int) -> list[bytes]:
    """Send a head and part of its body by each socket, and return the responses that are not delayed."""
    answers = []
    for raw in sockets:
        with suppress(ConnectionError):
            raw.sendall(head + b'{"messages": ["')
            raw.sendall(b"a" * size)
        raw.settimeout(1)
        with suppress(TimeoutError):
            answers.append(raw.recv(4096)[:13])
    return answers


def connect_sandbox_socket(server: Server, sandbox: str, name: str) -> socket.socket:
    """Connect to an uplink service as the programs in a sandbox do."""
    path = next(server.data.rglob(f"*{sandbox}*/**/{name}.sock"))
    directory = os.open(path.parent, os.O_PATH)
    try:
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(30)
        raw.connect(f"/proc/self/fd/{directory}/{path.name}")  # The path itself may be too long for an address.
        return raw
    finally:
        os.close(directory)


def send_raw_request(server: Server, head: str, body: bytes, port: int | None = None) -> int:
    """Send a request by socket and return the status, which may arrive before the whole body is sent."""
    with socket.create_connection(("127.0.0.1", port or main_port(server)), timeout=30) as raw:
        raw.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        try:
            raw.sendall(body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return int(raw.recv(65536).split(b" ", 2)[1])


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
@pytest.mark.parametrize(
    "body",
    [unknown_fields(1_000_000), b'{"key":[' + b"1," * 5_000_000 + b"1]}", b'{"key":' + b"[" * 1_000_000],
    ids=["fields", "numbers", "nesting"],
)
def test_large_login_body_costs_little_memory_and_time(server: Server, body: bytes, chunked: bool) -> None:
    before, used = resident_memory(server), server_cpu_seconds(server)
    content: Any = chunked_body(body) if chunked else body
    with watch_health(server) as waits, server.client("") as client:
        try:
            response = client.post("/v1/login", content=content, headers=JSON)
        except httpx.HTTPError:
            pass  # The server closed the connection while the rest was being sent.
        else:
            assert response.status_code == 413, response.text
    assert waits.longest < 1.0
    assert server_cpu_seconds(server) - used < 1.5
    assert resident_memory(server) - before < 32 * 2**20


def test_login_accepts_only_bodies_of_a_few_kilobytes(server: Server) -> None:
    with server.client("") as client:
        body = json.dumps({"key": "k" * 5000}).encode()
        for content in (body, chunked_body(body)):
            response = client.post("/v1/login", content=content, headers=JSON)
            assert response.status_code == 413 and "4096 bytes" in response.json()["message"], response.text
        response = client.post("/v1/login", content=json.dumps({"key": [0] * 101}), headers=JSON)
        assert response.status_code == 413 and "100 values" in response.json()["message"], response.text


def test_key_without_scope_is_refused_before_body_is_read(server: Server, client: httpx.Client) -> None:
    secret = client.post("/v1/keys", json={"name": "reader", "scopes": ["sandboxes:read"]}).json()["secret"]
    head = f"POST /v1/runs HTTP/1.1\nHost: localhost\nAuthorization: Bearer {secret}\nContent-Length: 40000000"
    assert send_raw_request(server, head, b'{"task": [') == 403
    head = head.replace("/v1/runs", "/v1/sandboxes/sb-0123456789abcdef/mcp")
    assert send_raw_request(server, head, b'{"jsonrpc": [') == 403


def test_values_of_every_kind_are_counted(server: Server, client: httpx.Client) -> None:
    secret = client.post("/v1/keys", json={"name": "meter", "scopes": ["sandboxes:read"]}).json()["secret"]
    with server.client(secret, **JSON) as meter:
        for body in (unknown_fields(20_000), b"[" * 20_000, b"[" + b"1," * 20_000 + b"1]"):
            response = meter.post("/v1/metrics/events", content=body)
            assert response.status_code == 413 and "values" in response.json()["message"], response.text
        response = meter.post("/v1/metrics/events", content=unknown_fields(9_000))
        assert response.status_code == 400 and "100 fields" in response.json()["message"]
        response = meter.post("/v1/metrics/events", content=b'{"eventType": "' + b"x" * 2**20 + b'"}')
        assert response.status_code == 413 and "1048576 bytes" in response.json()["message"]
    body = b'{"task":{"goal":"a","x":[' + (b"1" * 4000 + b",") * 300 + b"1]}}"
    response = client.post("/v1/tasks/validate", content=body, headers=JSON)
    assert response.status_code == 413 and "digits" in response.json()["message"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be"])
def test_values_cannot_be_hidden_by_another_encoding(server: Server, client: httpx.Client, encoding: str) -> None:
    body = ("{" + '"eventType":[' + "[]," * 20_000 + "[]]}").encode(encoding)
    for content in (body, chunked_body(body), (body[at : at + 1] for at in range(8))):
        response = client.post("/v1/metrics/events", content=content, headers=JSON)
        assert response.status_code == 400 and "UTF-8" in response.json()["message"], response.text


def test_bodies_of_a_tenant_share_a_memory_budget(server: Server, client: httpx.Client) -> None:
    """Three incomplete bodies of 60 MiB exceed the memory budget of a tenant."""
    secret = client.post("/v1/keys", json={"name": "r", "tenant": "greedy", "scopes": ["runs:read"]}).json()["secret"]
    head = (
        "POST /v1/tasks/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {secret}\r\nContent-Length: {62 * 2**20}\r\n\r\n"
    )
    host, port = server.domain.rsplit(":", 1)
    before = resident_memory(server)
    with ExitStack() as held:
        answers = []
        for _ in range(3):
            raw = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            with suppress(ConnectionError):
                raw.sendall(head.encode() + b'{"task": {"goal": "')
                raw.sendall(b"a" * (60 * 2**20))
            raw.settimeout(1)
            with suppress(TimeoutError):
                answers.append(raw.recv(4096))
        assert [each[:13] for each in answers] == [b"HTTP/1.1 503 "]
        assert client.get("/v1/tasks").status_code == 200
    with server.client(secret) as greedy:
        response = eventually(lambda: greedy.post("/v1/tasks/validate", json={"task": {"goal": "a" * 2**20}}))
        assert response.status_code == 200
    assert resident_memory(server) - before < 80 * 2**20


def test_long_messages_with_files_still_pass(server: Server, client: httpx.Client) -> None:
    """A string of eight megabytes and a table with many commas count as few values."""
    content = [
        {"type": "text", "text": "1,2,3\n" * 50_000},
        {"type": "file", "name": "data.csv", "mime": "text/csv", "data": "MSwy" * 2**21},
    ]
    path = "/v1/sessions/session-0123456789abcdef/messages"
    response = client.post(path, json={"content": content})
    assert response.status_code == 404, response.text
    response = client.post(path, content=json.dumps({"content": content}).encode()[:-1], headers=JSON)
    assert response.status_code == 400 and "JSON" in response.json()["message"], response.text


def test_ten_wrong_keys_block_further_attempts(server: Server) -> None:
    with server.client("", **JSON) as client:
        for _ in range(10):
            assert client.post("/v1/login", json={"key": "wrong"}).status_code == 401
        for body in (b"{", unknown_fields(100), b"x" * 10_000):
            assert client.post("/v1/login", content=body).status_code == 429


def test_sandboxes_of_a_tenant_share_its_memory_budget(server: Server, client: httpx.Client) -> None:
    """Nine sandboxes could hold more than the budget of all tenants, without a key."""
    other = create_tenant_key(client, "modest", "llm:use")
    with server.client(create_tenant_key(client, "crowd", "sandboxes:write", "sandboxes:read")) as crowd:
        sandboxes = [create_sandbox(crowd) for _ in range(9)]
        before = resident_memory(server)
        with ExitStack() as held:
            sockets = [
                held.enter_context(connect_sandbox_socket(server, sandbox, "llm"))
                for sandbox in sandboxes
                for _ in range(2)
            ]
            answers = hold_incomplete_bodies(sockets, chat_head(62 * 2**20), 60 * 2**20)
            assert ask_scripted_model(server, other, 20 * 2**20).status_code == 200
            assert answers == [b"HTTP/1.1 503 "] * 16
            assert resident_memory(server) - before < 300 * 2**20
        for sandbox in sandboxes:
            crowd.delete(f"/v1/sandboxes/{sandbox}")


def test_model_port_identifies_callers_before_it_reads_large_bodies(server: Server, client: httpx.Client) -> None:
    key, other = create_tenant_key(client, "greedy", "llm:use"), create_tenant_key(client, "modest", "llm:use")
    port = model_port(server)
    start = "POST /v1/chat/completions HTTP/1.1\nHost: localhost\n"
    for framing in (f"Content-Length: {60 * 2**20}", "Authorization: Bearer x\nTransfer-Encoding: chunked"):
        assert send_raw_request(server, start + framing, b"400\r\n", port) == 401
    assert send_raw_request(server, f"{start}Content-Length: {60 * 2**20}", bytes(60 * 2**20), port) == 401
    with ExitStack() as held:

        def connect(port: int) -> socket.socket:
            return held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))

        # Without a key, many bodies hold no memory.
        hold_incomplete_bodies([connect(port) for _ in range(4)], chat_head(62 * 2**20), 2**20)
        own = [connect(port), connect(port), connect(port), connect(main_port(server))]
        assert hold_incomplete_bodies(own, chat_head(62 * 2**20, key), 60 * 2**20) == [b"HTTP/1.1 503 "] * 2
        assert ask_scripted_model(server, other, 20 * 2**20).status_code == 200
    response = eventually(lambda: ask_scripted_model(server, key, 20 * 2**20))
    assert response.status_code == 200


def test_dripping_model_requests_time_out(server: Server, client: httpx.Client) -> None:
    """One byte per second is less than 1 KiB in 30 seconds."""
    key, sandbox = create_tenant_key(client, "slow", "llm:use"), create_sandbox(client)
    with ExitStack() as held:
        sockets = [
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for port in (main_port(server), model_port(server))
        ]
        sockets.append(held.enter_context(connect_sandbox_socket(server, sandbox, "llm")))
        for raw in sockets:
            raw.sendall(chat_head(2**20, key) + b"{")
        answers: dict[socket.socket, bytes] = {}
        deadline = time.monotonic() + 50
        while len(answers) < len(sockets):
            assert time.monotonic() < deadline, answers
            waiting = [raw for raw in sockets if raw not in answers]
            readable = select.select(waiting, [], [], 1)[0]
            answers |= {raw: raw.recv(4096)[:13] for raw in readable}
            for raw in waiting:
                if raw not in readable:
                    raw.sendall(b" ")
        assert set(answers.values()) == {b"HTTP/1.1 408 "}
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_tool_messages_of_sandboxes_share_the_memory_budget_of_their_tenant(
    server: Server, client: httpx.Client
) -> None:
    """Each sandbox may have 64 MiB in flight, and three of them together 128 MiB."""
    key = create_tenant_key(client, "handy", "sandboxes:write", "sandboxes:read", "llm:use")
    with server.client(key) as handy:
        sandboxes = [create_sandbox(handy) for _ in range(3)]
        with ExitStack() as held:
            sockets = [
                held.enter_context(connect_sandbox_socket(server, sandbox, "tools"))
                for sandbox in sandboxes
                for _ in range(4)
            ]
            head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
            answers = hold_incomplete_bodies(sockets, head, 15_000_000)
            assert answers == [b"HTTP/1.1 503 "] * 4
            assert ask_scripted_model(server, key, 20 * 2**20).status_code == 503
        assert eventually(lambda: ask_scripted_model(server, key, 20 * 2**20)).status_code == 200
        for sandbox in sandboxes:
            handy.delete(f"/v1/sandboxes/{sandbox}")

"""JSON bodies are limited before they are read, and read only for keys with the route's scope."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest

from tests.support.server import Server, eventually
from tests.support.server_load import resident_memory, server_cpu_seconds, watch_health


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"llm": {"archive": {"enabled": False}}}


def unknown_fields(count: int) -> bytes:
    return b"{" + b",".join(b'"%d":1' % number for number in range(count)) + b"}"


def chunked_body(body: bytes) -> Any:
    """Return the body in chunks, so that the request has no length."""
    return (body[start : start + 65536] for start in range(0, len(body), 65536))


JSON = {"Content-Type": "application/json"}


def send_raw_request(server: Server, head: str, body: bytes) -> int:
    """Send a request by socket and return the status, which may arrive before the whole body is sent."""
    host, port = server.domain.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as raw:
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

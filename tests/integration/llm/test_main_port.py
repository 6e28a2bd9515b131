"""Model requests on the main port: small ones take a fast path with identical results."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.support.server import Server, eventually, run_server

BODY = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hello."}]}).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    (directory / "demo.yaml").write_text(json.dumps({"turns": [{"say": "Hello you."}], "otherwise": {"say": "Again."}}))
    provider = {"kind": "script", "file": str(directory / "demo.yaml")}
    with run_server(directory, {"llm": {"providers": {"demo": provider}, "models": {"demo": "demo"}}}) as running:
        yield running


def head(server: Server, path: str = "/v1/chat/completions", method: str = "POST", **more: str) -> bytes:
    headers = {"Host": server.domain, "Authorization": f"Bearer {server.key}", **more}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def model_request(server: Server, **more: str) -> bytes:
    return head(server, Content_Length=str(len(BODY)), **more) + BODY


class RawConnection:
    """One connection, by hand."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.domain.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 20)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while (raw_connection := self._file.readline().strip()) != b"":
            name, _, value = raw_connection.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, self._file.read(int(headers["content-length"]))

    def disconnect_after(self, mark: bytes) -> None:
        seen = b""
        while mark not in seen:
            seen += self._socket.recv(65536)
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def raw_connection(server: Server) -> Iterator[RawConnection]:
    made = RawConnection(server)
    yield made
    made.close()


def test_one_connection_serves_models_and_everything_else_in_turn(
    server: Server, raw_connection: RawConnection
) -> None:
    for _ in range(3):
        raw_connection.send(model_request(server))
        status, headers, body = raw_connection.read()
        assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "Hello you."
        assert headers["x-request-id"] and headers["x-paddock-exchange"]
        raw_connection.send(head(server, "/v1/sandboxes", "GET"))
        status, headers, body = raw_connection.read()
        assert status == 200 and "items" in json.loads(body) and headers["x-content-type-options"] == "nosniff"


def test_requests_may_arrive_in_any_pieces(server: Server, raw_connection: RawConnection) -> None:
    whole = model_request(server)
    for split in (1, 10, 60, len(whole) - len(BODY), len(whole) - 1):
        raw_connection.send(model_request(server))
        assert raw_connection.read()[0] == 200
        raw_connection.send(whole[:split])
        raw_connection.send(whole[split:])
        assert raw_connection.read()[0] == 200, split


def test_two_requests_in_one_piece_are_both_answered(server: Server, raw_connection: RawConnection) -> None:
    raw_connection.send(model_request(server))
    assert raw_connection.read()[0] == 200
    raw_connection.send(model_request(server) + head(server, "/v1/sandboxes", "GET"))
    assert raw_connection.read()[0] == 200
    status, _, body = raw_connection.read()
    assert status == 200 and "items" in json.loads(body)


def test_request_during_an_answer_is_answered_next(server: Server, raw_connection: RawConnection) -> None:
    raw_connection.send(model_request(server))
    raw_connection.send(head(server, "/v1/sandboxes", "GET"))
    assert raw_connection.read()[0] == 200
    status, _, body = raw_connection.read()
    assert status == 200 and "items" in json.loads(body)


def test_valid_request_ids_are_kept(server: Server, raw_connection: RawConnection) -> None:
    raw_connection.send(model_request(server, X_Request_ID="mine-1"))
    assert raw_connection.read()[1]["x-request-id"] == "mine-1"
    raw_connection.send(model_request(server, X_Request_ID="not allowed!"))
    assert raw_connection.read()[1]["x-request-id"] != "not allowed!"


def test_unknown_host_names_are_refused(server: Server, raw_connection: RawConnection) -> None:
    raw_connection.send(model_request(server).replace(f"Host: {server.domain}".encode(), b"Host: evil.example"))
    status, _, body = raw_connection.read()
    assert status == 421 and b"evil.example" in body


@pytest.mark.parametrize("key", ["", "pk-wrong"])
def test_key_is_required(server: Server, raw_connection: RawConnection, key: str) -> None:
    raw_connection.send(model_request(server).replace(server.key.encode(), key.encode()))
    status, headers, body = raw_connection.read()
    assert status == 401 and "error" in json.loads(body) and headers["x-request-id"]


def test_ordinary_client_works_on_the_main_port(server: Server) -> None:
    with server.client() as client:
        for _ in range(2):
            answer = client.post("/v1/chat/completions", content=BODY)
            assert answer.status_code == 200
            address = f"/v1/exchanges/{answer.headers['x-paddock-exchange']}"
            eventually(lambda address=address: client.get(address).status_code == 200)  # type: ignore[misc]
        large = {"model": "demo", "messages": [{"role": "user", "content": "x" * 300_000}]}
        assert client.post("/v1/chat/completions", json=large).status_code == 200
        with client.stream("POST", "/v1/chat/completions", json={**json.loads(BODY), "stream": True}) as answer:
            assert answer.headers["x-request-id"]
            assert "data: [DONE]" in answer.read().decode()


def test_disconnect_after_last_event_counts_as_complete_answer(server: Server) -> None:
    """Some clients end the connection as soon as they have read that the answer is over."""
    body = json.dumps({**json.loads(BODY), "stream": True}).encode()
    with server.client() as client:
        for _ in range(20):
            raw_connection = RawConnection(server)
            raw_connection.send(head(server, Content_Length=str(len(body))) + body)
            raw_connection.disconnect_after(b"data: [DONE]")
            raw_connection.close()
        eventually(lambda: len(client.get("/v1/exchanges", params={"limit": 20}).json()["items"]) == 20)
        items = client.get("/v1/exchanges", params={"limit": 20}).json()["items"]
        assert [item["outcome"] for item in items] == ["ok"] * 20


def test_foreign_origins_are_still_refused(server: Server) -> None:
    with server.client(Origin="https://evil.example") as client:
        answer = client.post("/v1/chat/completions", content=BODY)
    assert "access-control-allow-origin" not in answer.headers


def test_stopping_server_closes_idle_connections(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("stopping")
    (directory / "demo.yaml").write_text(json.dumps([{"say": "Hello."}]))
    provider = {"kind": "script", "file": str(directory / "demo.yaml")}
    settings = {"llm": {"providers": {"demo": provider}, "models": {"demo": "demo"}}}
    with run_server(directory, settings) as server, httpx.Client() as client:
        headers = {"Authorization": f"Bearer {server.key}"}
        assert client.post(f"{server.url}/v1/chat/completions", content=BODY, headers=headers).status_code == 200
        assert server.stop(timeout=10) == 0


def test_model_requests_on_the_fast_path_are_counted(server: Server, raw_connection: RawConnection) -> None:
    def counted() -> tuple[int, int]:
        with server.client() as client:
            text = client.get("/v1/metrics").text
        posts = re.search(r'paddock_http_requests_total\{method="POST",status="200"\} (\d+)', text)
        timed = re.search(r"paddock_http_request_seconds_count (\d+)", text)
        return int(posts[1]) if posts else 0, int(timed[1]) if timed else 0

    posts, timed = counted()
    for _ in range(3):
        raw_connection.send(model_request(server))
        assert raw_connection.read()[0] == 200
    # The first reading of the metrics is counted too.
    assert counted() == (posts + 3, timed + 4)

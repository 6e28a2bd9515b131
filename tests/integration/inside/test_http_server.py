"""Authorization, and malformed HTTP requests."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .daemon import PYTHON, TOKEN, Daemon, ask


def exchange(daemon: Daemon, request: bytes) -> bytes:
    """Send raw bytes and return everything the daemon sends before it disconnects."""
    with daemon.dial() as raw:
        answer = b""
        with contextlib.suppress(OSError):
            raw.sendall(request)
            raw.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while data := raw.recv(65536):
                answer += data
        return answer


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: sandbox", f"X-EXECD-ACCESS-TOKEN: {TOKEN}", *headers, "", ""]).encode("latin-1")


def test_ping_needs_the_token(daemon: Daemon) -> None:
    assert daemon.call("GET", "/ping").status == 200
    for token in ("", "wrong", TOKEN + "x", TOKEN[:-1]):
        answer = daemon.call("GET", "/ping", X_EXECD_ACCESS_TOKEN=token)
        assert (answer.status, answer.error()) == (401, "UNAUTHORIZED")


def test_token_in_the_query_is_for_websockets_only(daemon: Daemon) -> None:
    assert daemon.call("GET", f"/ping?token={TOKEN.replace(' ', '+')}", X_EXECD_ACCESS_TOKEN="").status == 401


def test_an_empty_token_is_refused_at_start(zipapp: Path, directory: Path) -> None:
    config = directory / "config.json"
    config.write_text('{"listen": {"unix": "/nowhere"}, "token": ""}')
    done = subprocess.run([PYTHON, "-I", "-S", str(zipapp), "--config", str(config)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "'token' must not be empty" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_routes_and_methods_are_refused(daemon: Daemon) -> None:
    assert daemon.call("GET", "/nowhere").status == 404
    answer = daemon.call("PUT", "/command")
    assert (answer.status, "DELETE, POST" in answer.json()["message"]) == (405, True)


def test_one_connection_carries_many_requests(daemon: Daemon) -> None:
    connection = daemon.connect()
    for _ in range(5):
        assert ask(connection, "GET", "/ping").status == 200
        assert ask(connection, "POST", "/command", b"not json").status == 400
        assert ask(connection, "POST", "/command", {"command": "true"}).exit_code() == 0
    connection.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET /ping\r\n\r\n", 400),
        (b"GET  /ping HTTP/1.1\r\n\r\n", 400),
        (b"GET /ping HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET /ping HTTP/1.1\r\n\r\n", 400),
        (b"GET ping HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"G\x00T /ping HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nNo colon\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nName : y\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (head("POST /command HTTP/1.1", "Content-Length: 2", "Content-Length: 2") + b"{}", 400),
        (head("POST /command HTTP/1.1", "Content-Length: 2, 2") + b"{}", 400),
        (head("POST /command HTTP/1.1", "Content-Length: -1"), 400),
        (head("POST /command HTTP/1.1", "Content-Length: +2") + b"{}", 400),
        (head("POST /command HTTP/1.1", "Content-Length: 2", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (head("POST /command HTTP/1.1", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 400),
        (head("POST /command HTTP/1.0", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (head("POST /command HTTP/1.1", "Transfer-Encoding: chunked") + b"zz\r\n\r\n", 400),
        (head("POST /command HTTP/1.1", "Transfer-Encoding: chunked") + b"-2\r\n{}\r\n0\r\n\r\n", 400),
        (head("POST /command HTTP/1.1", "Transfer-Encoding: chunked") + b"0x2\r\n{}\r\n0\r\n\r\n", 400),
        (head("POST /command HTTP/1.1", "Transfer-Encoding: chunked") + b"2\r\n{}XX0\r\n\r\n", 400),
        (head("POST /command HTTP/1.1", "Transfer-Encoding: chunked") + b"2" * 4000, 400),
    ],
)
def test_malformed_requests_are_refused_and_end_the_connection(
    daemon: Daemon, request_bytes: bytes, status: int
) -> None:
    answer = exchange(daemon, request_bytes + head("GET /ping HTTP/1.1"))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert answer.count(b"Content-Length: ") == 1
    assert daemon.call("GET", "/ping").status == 200


def test_oversized_json_body_is_refused(daemon: Daemon) -> None:
    answer = exchange(daemon, head("POST /command HTTP/1.1", f"Content-Length: {9 << 20}") + b" " * (9 << 20))
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_client_waiting_for_100_continue_gets_it(daemon: Daemon) -> None:
    with daemon.dial() as raw:
        raw.sendall(head("POST /session HTTP/1.1", "Content-Length: 2", "Expect: 100-continue", "Connection: close"))
        assert raw.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(b"{}")
        assert raw.recv(1024).startswith(b"HTTP/1.1 200 OK")


def test_chunked_bodies_may_have_extensions_and_trailers(daemon: Daemon) -> None:
    body = b'5;a=b\r\n{"com\r\n10\r\nmand":"echo yes"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n'
    request = head("POST /command HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close") + body
    assert b'"text":"yes"' in exchange(daemon, request)


def test_idle_connections_do_not_block_others(daemon: Daemon) -> None:
    silent = [daemon.dial() for _ in range(50)]
    for raw in silent[:25]:
        raw.sendall(b"GET /ping HTT")
    assert daemon.call("GET", "/ping").status == 200
    for raw in silent:
        raw.close()


def test_fifty_commands_run_at_once(daemon: Daemon) -> None:
    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = daemon.run(f"sleep 0.1; echo {number}").text()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {number: [str(number)] for number in range(50)}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"GET /ping HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n",
                 b"Content-Length: 5\r\n", b"5\r\nhello\r\n", f"X-EXECD-ACCESS-TOKEN: {TOKEN}\r\n".encode()]
            ),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_daemon_survives_arbitrary_bytes(daemon: Daemon, pieces: list[bytes]) -> None:
    answer = exchange(daemon, b"".join(pieces))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert daemon.process.poll() is None

"""The proxy to ports in the sandbox, and uplink ports to the host."""

from __future__ import annotations

import contextlib
import http.server
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .daemon import TOKEN, Daemon, ask, running_daemon
from .websocket import WebSocketClient


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade") == "websocket":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            self.close_connection = True
            while data := self.connection.recv(4096):
                self.connection.sendall(data)
            return
        self._answer(f"{self.path} {'X-EXECD-ACCESS-TOKEN' in self.headers}".encode())

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(body[::-1])

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class ThreadingServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def web() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    with serving(server):
        yield server.server_address[1]


@pytest.fixture
def echo() -> Iterator[int]:
    server = ThreadingServer(("127.0.0.1", 0), Echo)
    with serving(server):
        yield server.server_address[1]


def test_proxy_forwards_requests(daemon: Daemon, web: int) -> None:
    assert daemon.call("GET", f"/proxy/{web}/a/b%20c?d=e%2F").body == b"/a/b%20c?d=e%2F False"
    assert daemon.call("GET", f"/proxy/{web}").body == b"/ False"
    assert daemon.call("POST", f"/proxy/{web}/", b"abc" * 100_000).body == b"cba" * 100_000
    connection = daemon.connect()
    answer = ask(connection, "POST", f"/proxy/{web}/", b"3\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked")
    assert answer.body == b"cba"
    connection.close()


def test_proxy_reports_a_closed_port(daemon: Daemon) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert daemon.call("GET", f"/proxy/{unused.getsockname()[1]}/").error() == "BAD_GATEWAY"
    assert daemon.call("GET", "/proxy/70000/").status == 400
    assert daemon.call("GET", "/proxy/web/").status == 400


def test_websockets_pass_through_the_proxy(daemon: Daemon, web: int) -> None:
    with WebSocketClient(daemon.dial(), f"/proxy/{web}/socket") as client:
        assert client.status == 101
        client.send_raw(b"\x82\x05hello")
        assert client.receive() == (2, b"hello")


@pytest.mark.parametrize("request_line", ["CONNECT 127.0.0.1:{port} HTTP/1.1", "GET /connect/{port} HTTP/1.1"])
def test_tunnels_pass_bytes_both_ways(daemon: Daemon, echo: int, request_line: str) -> None:
    with daemon.dial() as raw:
        head = f"{request_line.format(port=echo)}\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\n"
        raw.sendall(f"{head}Upgrade: tcp\r\nConnection: Upgrade\r\n\r\nearly ".encode())
        stream = raw.makefile("rb")
        assert stream.readline().split()[1] in (b"200", b"101")
        while stream.readline().strip():
            pass
        raw.sendall(b"late")
        raw.shutdown(socket.SHUT_WR)
        assert stream.read() == b"early late"
        stream.close()


def test_tunnels_reach_only_the_sandbox(daemon: Daemon) -> None:
    for target, status in (("10.0.0.1:80", b"403"), ("127.0.0.1:0", b"400"), ("example.org:443", b"403")):
        with daemon.dial() as raw:
            raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\n\r\n".encode())
            assert raw.recv(64).split()[1] == status
    assert daemon.call("GET", "/connect/80").status == 426


class UnixEcho(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def test_uplink_waits_for_a_late_host(zipapp: Path, directory: Path) -> None:
    uplink_socket = directory / "uplink.sock"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running_daemon(zipapp, directory, bridges=[{"port": port, "socket": str(uplink_socket)}]) as daemon:
        assert daemon.call("GET", "/ping").status == 200
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"early")
            client.shutdown(socket.SHUT_WR)
            with serving(UnixEcho(str(uplink_socket), Echo)):
                assert client.makefile("rb").read() == b"early"


def test_uplink_reconnects_for_each_connection(zipapp: Path, directory: Path) -> None:
    uplink_socket = directory / "uplink.sock"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running_daemon(zipapp, directory, bridges=[{"port": port, "socket": str(uplink_socket)}]) as daemon:
        assert daemon.call("GET", "/ping").status == 200
        for word in (b"first", b"second"):
            with (
                serving(UnixEcho(str(uplink_socket), Echo)),
                socket.create_connection(("127.0.0.1", port), 5) as client,
            ):
                client.sendall(word)
                client.shutdown(socket.SHUT_WR)
                assert client.makefile("rb").read() == word
            uplink_socket.unlink()
        with socket.create_connection(("127.0.0.1", port), 5) as client, contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""

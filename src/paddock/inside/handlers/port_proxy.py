"""Handlers that forward requests and tunnels to ports of programs in the sandbox."""

from __future__ import annotations

import errno
import socket

from ..daemon import Daemon
from ..errors import ApiError, forbidden_error
from ..http.buffered_socket import PeerDisconnected
from ..http.http11 import BufferedSocket, HttpReply, IncomingRequest, RawConnectionReply, json_reply
from ..http.socket_tunnel import copy_between_sockets
from ..listening_ports import read_listening_ports

CONNECT_TIMEOUT = 10.0

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "content-length", "expect",
     "x-execd-access-token", "x-paddock-root"}
)  # fmt: skip


def proxy_request_to_port(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Forward an HTTP request or a WebSocket to `127.0.0.1:{port}`."""
    server = _connect_to_port(_parse_port(request.params["port"]))
    return RawConnectionReply(lambda client: _forward(request, client, server))


def open_port_tunnel_by_upgrade(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Open a raw tunnel: `GET /connect/{port}` with `Upgrade: tcp`."""
    if request.header("upgrade").lower() != "tcp":
        raise ApiError(426, "UPGRADE_REQUIRED", "send Upgrade: tcp and Connection: Upgrade")
    server = _connect_to_port(_parse_port(request.params["port"]))
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n"
    return RawConnectionReply(lambda client: _tunnel(client, server, head))


def open_port_tunnel_by_connect(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Open a raw tunnel: `CONNECT 127.0.0.1:{port}`."""
    host, _, port = request.target.rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        raise forbidden_error("only ports of the sandbox itself can be reached: CONNECT 127.0.0.1:PORT")
    server = _connect_to_port(_parse_port(port))
    return RawConnectionReply(lambda client: _tunnel(client, server, b"HTTP/1.1 200 OK\r\n\r\n"))


def list_listening_ports(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """List ports on which programs listen for TCP connections, without the daemon's own and the browser's tools."""
    tools = daemon.environment.variables({}).get("PADDOCK_CDP", "").rpartition(":")[2]
    return json_reply({"ports": [port for port in read_listening_ports() if str(port) != tools.rstrip("/")]})


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ApiError(400, "INVALID_REQUEST_BODY", f"{text!r} is not a port number")
    return int(text)


def _connect_to_port(port: int) -> socket.socket:
    try:
        server = _connect_to_loopback(port)
    except OSError as error:
        raise ApiError(502, "BAD_GATEWAY", f"nothing answers on port {port} of the sandbox: {error.strerror}") from None
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


def _connect_to_loopback(port: int) -> socket.socket:
    try:
        return socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT)
    except ConnectionRefusedError:
        try:
            # To some programs, `localhost` is an address of IPv6 only.
            return socket.create_connection(("::1", port), CONNECT_TIMEOUT)
        except OSError as error:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused") from error


def _tunnel(client: BufferedSocket, server: socket.socket, head: bytes) -> None:
    with server:
        client.send(head)
        early = client.take_buffered()
        if early:
            server.sendall(early)
        copy_between_sockets(client.socket, server)


def _forward(request: IncomingRequest, client: BufferedSocket, server: socket.socket) -> None:
    """Send the request over a new connection, then copy the reply until it ends."""
    upgrade = request.header("upgrade")
    with server:
        try:
            server.settimeout(client.timeout)
            server.sendall(_request_head(request, upgrade))
            if upgrade:
                server.sendall(client.take_buffered())
                return copy_between_sockets(client.socket, server)
            _send_body(request, server)
            server.settimeout(None)
            while data := server.recv(64 * 1024):
                client.send(data)
        except OSError as error:
            raise PeerDisconnected from error


def _request_head(request: IncomingRequest, upgrade: str) -> bytes:
    path = "/" + request.raw_path.split("/", 3)[3] if request.raw_path.count("/") > 2 else "/"
    target = f"{path}?{request.raw_query}" if request.raw_query else path
    lines = [f"{request.method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _HOP_BY_HOP]
    lines.append("connection: Upgrade" if upgrade else "connection: close")
    if request.body.length is None:
        lines.append("transfer-encoding: chunked")
    elif request.body.length or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {request.body.length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _send_body(request: IncomingRequest, server: socket.socket) -> None:
    chunked = request.body.length is None
    while data := request.body.read_some():
        server.sendall(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
    if chunked:
        server.sendall(b"0\r\n\r\n")

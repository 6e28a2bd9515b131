"""Ways to the ports that programs in the box listen on."""

from __future__ import annotations

import socket

from ..box import Box
from ..errors import ApiError, forbidden
from ..http import Reply, Request, Takeover, Wire
from ..pump import join
from ..wire import Disconnected

CONNECT_TIMEOUT = 10.0

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "content-length", "expect",
     "x-execd-access-token", "x-paddock-root"}
)  # fmt: skip


def proxy(box: Box, request: Request) -> Reply:
    """Pass a request, or a WebSocket, on to `127.0.0.1:{port}`."""
    server = _dial(_port(request.params["port"]))
    return Takeover(lambda wire: _forward(request, wire, server))


def connect(box: Box, request: Request) -> Reply:
    """`GET /connect/{port}` with `Upgrade: tcp`: a raw tunnel."""
    if request.header("upgrade").lower() != "tcp":
        raise ApiError(426, "UPGRADE_REQUIRED", "send Upgrade: tcp and Connection: Upgrade")
    server = _dial(_port(request.params["port"]))
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n"
    return Takeover(lambda wire: _tunnel(wire, server, head))


def tunnel(box: Box, request: Request) -> Reply:
    """`CONNECT 127.0.0.1:{port}`: a raw tunnel."""
    host, _, port = request.target.rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        raise forbidden("only ports of the box itself can be reached: CONNECT 127.0.0.1:PORT")
    server = _dial(_port(port))
    return Takeover(lambda wire: _tunnel(wire, server, b"HTTP/1.1 200 OK\r\n\r\n"))


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ApiError(400, "INVALID_REQUEST_BODY", f"{text!r} is not a port")
    return int(text)


def _dial(port: int) -> socket.socket:
    try:
        server = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT)
    except OSError as error:
        raise ApiError(502, "BAD_GATEWAY", f"nothing answers on port {port} of the box: {error.strerror}") from None
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


def _tunnel(wire: Wire, server: socket.socket, head: bytes) -> None:
    with server:
        wire.send(head)
        early = wire.take_buffered()
        if early:
            server.sendall(early)
        join(wire.socket, server)


def _forward(request: Request, wire: Wire, server: socket.socket) -> None:
    """Send the request on with a connection of its own, then copy the answer until it ends."""
    upgrade = request.header("upgrade")
    with server:
        try:
            server.settimeout(wire.timeout)
            server.sendall(_request_head(request, upgrade))
            if upgrade:
                server.sendall(wire.take_buffered())
                return join(wire.socket, server)
            _send_body(request, server)
            server.settimeout(None)
            while data := server.recv(64 * 1024):
                wire.send(data)
        except OSError as error:
            raise Disconnected from error


def _request_head(request: Request, upgrade: str) -> bytes:
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


def _send_body(request: Request, server: socket.socket) -> None:
    chunked = request.body.length is None
    while data := request.body.read_some():
        server.sendall(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
    if chunked:
        server.sendall(b"0\r\n\r\n")

"""Connections through an HTTP proxy: TCP tunnels by the method CONNECT."""

from __future__ import annotations

import asyncio
import os
import socket

from paddock.config.outgoing_proxy import ProxyAddress
from paddock.network.socket_pump import wait_readable

PROXY_AUTHENTICATION_REQUIRED = 407
MAX_HEAD_BYTES = 64 * 1024
_NO_TIMEOUT = 1e9


class ProxyError(OSError):
    """The proxy opened no connection. The message names its setting, not its address, so sandboxes may see it."""

    def __init__(self, proxy: ProxyAddress, problem: str, *, is_permanent: bool = False) -> None:
        super().__init__(f"the proxy of {proxy.source} {problem}")
        self.proxy = proxy
        self.is_permanent = is_permanent
        """Whether a retry is pointless."""


def proxy_refusal(proxy: ProxyAddress, status: int) -> ProxyError:
    """Return the error of a proxy that answered with this status."""
    if status == PROXY_AUTHENTICATION_REQUIRED:
        problem = "refused the user name or password" if proxy.authorization else "requires a user name and a password"
        problem += f" (status {status}); write http://USER:PASSWORD@HOST:PORT in {proxy.source}"
        return ProxyError(proxy, problem, is_permanent=True)
    return ProxyError(proxy, f"refused the connection (status {status})", is_permanent=status < 500)


async def connect_to_proxy(proxy: ProxyAddress) -> socket.socket:
    """Return a non-blocking socket that is connected to the proxy. Raises `ProxyError`. Has no time limit."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ProxyError(proxy, f"has an unknown host name: {error.strerror}") from None
    problem = "no address"
    for family, kind, protocol, _, address in found:
        connected = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await loop.sock_connect(connected, address)
            return connected
        except OSError as error:
            # The event loop's message lacks the reason.
            problem = os.strerror(error.errno) if error.errno else str(error)
            connected.close()
        except BaseException:
            connected.close()
            raise
    raise ProxyError(proxy, f"cannot be reached: {problem}")


async def open_proxy_tunnel(proxy: ProxyAddress, host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that the proxy relays to a target. Raises `ProxyError`. Has no time limit."""
    connected = await connect_to_proxy(proxy)
    try:
        await asyncio.get_running_loop().sock_sendall(connected, _connect_request(proxy, host, port))
        status = _status(await _read_head(connected))
    except OSError as error:
        connected.close()
        raise ProxyError(proxy, "closed the connection without an answer") from error
    except BaseException:
        connected.close()
        raise
    if status is not None and 200 <= status < 300:
        return connected
    connected.close()
    if status is None:
        raise ProxyError(proxy, "does not answer like an HTTP proxy; check its address", is_permanent=True)
    raise proxy_refusal(proxy, status)


def _connect_request(proxy: ProxyAddress, host: str, port: int) -> bytes:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


async def _read_head(connected: socket.socket) -> bytes:
    """Read up to the empty line and not further: the next bytes belong to the target. Empty if the head is too long."""
    head = b""
    while len(head) < MAX_HEAD_BYTES:
        await wait_readable(connected.fileno(), _NO_TIMEOUT)
        try:
            seen = connected.recv(MAX_HEAD_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        if not seen:
            raise ConnectionResetError
        end = (head + seen).find(b"\r\n\r\n")
        head += connected.recv(len(seen) if end < 0 else end + 4 - len(head))
        if end >= 0:
            return head
    return b""


def _status(head: bytes) -> int | None:
    """Return the status of a response; `None` if it is not HTTP."""
    parts = head.partition(b"\r\n")[0].split(b" ", 2)
    is_http = len(parts) > 1 and parts[0].startswith(b"HTTP/1.") and len(parts[1]) == 3 and parts[1].isdigit()
    return int(parts[1]) if is_http else None

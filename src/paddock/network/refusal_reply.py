"""Tell a program why its connection is refused, in the protocol that it speaks."""

from __future__ import annotations

import asyncio
import socket

from paddock.model.network import ConnectionRefusal
from paddock.network.decision import Decision
from paddock.network.socket_pump import close_socket, read_available
from paddock.network.tls_server_name import ACCESS_DENIED_ALERT, HANDSHAKE_RECORD

FIRST_BYTES_TIMEOUT = 1.0
"""Seconds in which a refused program must speak to be told the reason."""
CLOSE_TIMEOUT = 0.5
_HTTP_METHODS = tuple(
    f"{method} ".encode() for method in "GET HEAD POST PUT DELETE OPTIONS PATCH TRACE CONNECT".split()
)


async def refuse_connection(sandbox_socket: socket.socket, decision: Decision, first: bytes = b"") -> None:
    """Answer with an HTTP error or a TLS alert, then close; other protocols see a reset. Never raises `OSError`.

    `first` was read from the program already.
    """
    try:
        if not first:
            first = await read_available(sandbox_socket, FIRST_BYTES_TIMEOUT) or b""
        reply = _reply(first, decision)
        if reply:
            sandbox_socket.send(reply, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            sandbox_socket.shutdown(socket.SHUT_WR)
            # Unread bytes would turn the close into a reset, which discards the reply.
            async with asyncio.timeout(CLOSE_TIMEOUT):
                while await read_available(sandbox_socket, CLOSE_TIMEOUT):
                    pass
        close_socket(sandbox_socket, reset=not reply)
    except (OSError, TimeoutError):
        close_socket(sandbox_socket, reset=True)
    except BaseException:
        close_socket(sandbox_socket, reset=True)
        raise


def _reply(first: bytes, decision: Decision) -> bytes:
    if first[:1] == bytes((HANDSHAKE_RECORD,)):
        return ACCESS_DENIED_ALERT
    if first.startswith(_HTTP_METHODS):
        status = "429 Too Many Requests" if decision.refusal is ConnectionRefusal.LIMIT else "403 Forbidden"
        body = f"Paddock refused this connection: {decision.message or ''}\n".encode(errors="replace")
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\nX-Paddock-Network: refused\r\n\r\n"
        )
        return head.encode() + (b"" if first.startswith(b"HEAD ") else body)
    return b""

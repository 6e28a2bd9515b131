"""Sends requests to upstreams over HTTP/1.1, and keeps connections for the next."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path

from paddock.llm.wire.answers import ClientAnswer
from paddock.llm.wire.base import Broken, CannotConnect, Headers, Timeouts, TlsFailed
from paddock.llm.wire.heads import OF_REQUESTS, head_bytes
from paddock.llm.wire.origins import Origin, tls_context
from paddock.llm.wire.outbound import Outbound

__all__ = ["Client", "ClientAnswer", "Origin"]

_WRONG_NAME = 62
"""What OpenSSL calls X509_V_ERR_HOSTNAME_MISMATCH; its own message would tell the name."""
_CLOSING = 5.0


class Client:
    """All connections to all upstreams. There is no bound on those at work; resting ones are few and young."""

    def __init__(self, *, idle_per_origin: int = 64, idle_age: float = 50.0) -> None:
        self._idle_per_origin = idle_per_origin
        self._idle_age = idle_age
        self._idle: dict[object, list[Outbound]] = {}
        self._connections: set[Outbound] = set()
        self._contexts: dict[Path | None, ssl.SSLContext] = {}
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    async def send(
        self, origin: Origin, method: str, target: bytes, headers: Headers, body: bytes, timeouts: Timeouts
    ) -> ClientAnswer:
        """Send a request, and return once the head of the answer is there. `target` is the path and the query.

        Sets the host and the length itself. Raises `UpstreamError`, and `ValueError` for what cannot be sent at all.
        """
        request = _request_bytes(origin, method, target, headers, body)
        head_only = method == "HEAD"
        connection = self._rested(origin)
        if connection is not None:
            answer = connection.ask(request, timeouts, head_only=head_only)
            try:
                await answer.begun()
            except Broken:
                # Upstreams end connections that rest, and may do so while a request is on its way to them: it then
                # meets a closed door and nobody has read it. That is by far the likeliest reason when not one byte of
                # an answer came over a connection that had been resting, so the request is sent once more, on a new
                # connection, even if it is a POST. Should an upstream have died over it instead, the worst is that a
                # model is asked twice. A new connection gives no such reason, nor does an answer that has begun.
                if answer.touched or self._closed:
                    raise
            else:
                return answer
        connection = await self._connect(origin, timeouts.connect)
        answer = connection.ask(request, timeouts, head_only=head_only)
        await answer.begun()
        return answer

    async def close(self) -> None:
        """End all connections, also those at work."""
        self._closed = True
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=_CLOSING)

    def join(self, connection: Outbound) -> None:
        self._connections.add(connection)

    def rest(self, connection: Outbound) -> None:
        resting = self._idle.setdefault(connection.key, [])
        if self._closed or len(resting) >= self._idle_per_origin:
            connection.abort()
        else:
            resting.append(connection)

    def forget(self, connection: Outbound) -> None:
        self._connections.discard(connection)
        resting = self._idle.get(connection.key)
        if resting is not None and connection in resting:
            resting.remove(connection)
        if self._empty is not None and not self._connections and not self._empty.done():
            self._empty.set_result(None)

    def _rested(self, origin: Origin) -> Outbound | None:
        """The connection that has rested for the shortest time, so that the others may age."""
        resting = self._idle.get(origin.key)
        while resting:
            connection = resting.pop()
            if connection.usable():
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, timeout: float) -> Outbound:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                context = await self._context(origin)
                _, connection = await loop.create_connection(
                    lambda: Outbound(self, origin.key, self._idle_age, loop),
                    origin.host,
                    origin.port,
                    ssl=context,
                    server_hostname=origin.host if context is not None else None,
                )
        except TimeoutError:
            raise CannotConnect(f"the upstream could not be reached within {timeout:g} seconds") from None
        except ssl.SSLError as error:
            raise TlsFailed(_tls_trouble(error)) from None
        except OSError as error:
            raise CannotConnect(_trouble(error)) from None
        if self._closed:
            connection.abort()
            raise CannotConnect("the server is stopping")
        return connection

    async def _context(self, origin: Origin) -> ssl.SSLContext | None:
        if not origin.tls:
            return None
        context = self._contexts.get(origin.ca)
        if context is None:
            # Reading the system's certificates takes tens of milliseconds.
            try:
                context = await asyncio.to_thread(tls_context, origin.ca)
            except OSError:
                raise TlsFailed("the certificates to trust cannot be read from the file of setting `ca`") from None
            self._contexts[origin.ca] = context
        return context


def _request_bytes(origin: Origin, method: str, target: bytes, headers: Headers, body: bytes) -> bytes:
    if b" " in target or not target.startswith(b"/"):
        raise ValueError("the target of a request begins with a slash and has no spaces")
    first = b"%b %b%b HTTP/1.1" % (method.encode("ascii"), origin.prefix, target)
    head = head_bytes((first, b"host: " + origin.host_header), headers, OF_REQUESTS)
    if body or method not in ("GET", "HEAD"):
        return b"%b\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body)
    return head + b"\r\n\r\n"


def _trouble(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the upstream's name is not known"
    # Where a name has several addresses there is no one reason.
    return f"the upstream could not be reached: {os.strerror(error.errno) if error.errno else 'no address answers'}"


def _tls_trouble(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = "it is for another name" if error.verify_code == _WRONG_NAME else error.verify_message
        return f"the upstream's certificate is not trusted: {reason}"
    return f"the upstream does not speak TLS as it should: {(error.reason or 'unknown').lower().replace('_', ' ')}"

"""HTTP/1.1 client for upstreams, with a pool of idle connections."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path

from paddock.config.outgoing_proxy import ProxyAddress
from paddock.llm.wire.base import Headers, UpstreamBroken, UpstreamTimeouts, UpstreamTlsFailed, UpstreamUnreachable
from paddock.llm.wire.http_client_connection import HttpClientConnection, ProxiedHttpClientConnection, proxy_failure
from paddock.llm.wire.http_client_response import HttpClientResponse
from paddock.llm.wire.http_heads import CONNECTION_REQUEST_HEADERS, encode_http_head
from paddock.llm.wire.upstream_address import UpstreamAddress, make_tls_context
from paddock.network.outgoing_proxy_tunnel import ProxyError, connect_to_proxy, open_proxy_tunnel

__all__ = ["HttpClient", "HttpClientResponse", "UpstreamAddress"]

_WRONG_NAME = 62
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH; its own message would reveal the name."""
_CLOSE_SECONDS = 5.0


class HttpClient:
    """All connections to all upstreams. Active ones are unbounded; idle ones are bounded in number and age."""

    def __init__(self, *, idle_per_origin: int = 64, idle_age: float = 50.0, ca_bundle: Path | None = None) -> None:
        """`ca_bundle` is a file of CA certificates to trust for every upstream."""
        self._ca_bundle = ca_bundle
        self._idle_per_origin = idle_per_origin
        self._idle_age = idle_age
        self._idle: dict[object, list[HttpClientConnection]] = {}
        self._connections: set[HttpClientConnection] = set()
        self._contexts: dict[Path | None, ssl.SSLContext] = {}
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    async def send(
        self,
        address: UpstreamAddress,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        timeouts: UpstreamTimeouts,
    ) -> HttpClientResponse:
        """Send a request, and return when the head of the response is there. `target` is the path and the query.

        Sets the host and the length itself. Raises `UpstreamError`, and `ValueError` for an invalid request.
        """
        head = _encode_request_head(address, method, target, headers, len(body))
        head_only = method == "HEAD"
        connection = self._take_idle_connection(address)
        if connection is not None:
            answer = connection.send_request(head, body, timeouts, head_only=head_only)
            try:
                await answer.wait_for_head()
            except UpstreamBroken:
                # Upstreams close idle connections, and may do so while a request is on its way, which then goes
                # unread. That is by far the likeliest reason when a reused connection returns not one byte, so the
                # request is sent once more on a new connection, even if it is a POST. If the upstream crashed on it
                # instead, the worst result is a model that is asked twice. A failure on a new connection, or after
                # the response has begun, is not retried here.
                if answer.has_bytes or self._closed:
                    raise
            else:
                return answer
        connection = await self._connect(address, timeouts.connect)
        answer = connection.send_request(head, body, timeouts, head_only=head_only)
        await answer.wait_for_head()
        return answer

    async def close(self) -> None:
        """Close all connections, including active ones."""
        self._closed = True
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=_CLOSE_SECONDS)

    def add_connection(self, connection: HttpClientConnection) -> None:
        self._connections.add(connection)

    def return_connection(self, connection: HttpClientConnection) -> None:
        idle = self._idle.setdefault(connection.key, [])
        if self._closed or len(idle) >= self._idle_per_origin:
            connection.abort()
        else:
            idle.append(connection)

    def forget_connection(self, connection: HttpClientConnection) -> None:
        self._connections.discard(connection)
        idle = self._idle.get(connection.key)
        if idle is not None and connection in idle:
            idle.remove(connection)
        if self._empty is not None and not self._connections and not self._empty.done():
            self._empty.set_result(None)

    def _take_idle_connection(self, address: UpstreamAddress) -> HttpClientConnection | None:
        """Take the most recently used idle connection, so that the others can expire."""
        idle = self._idle.get(address.connection_key)
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    async def _connect(self, address: UpstreamAddress, timeout: float) -> HttpClientConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                context = await self._tls_context_for(address)
                if address.proxy is not None:
                    connection = await self._connect_through(address.proxy, address, context)
                else:
                    _, connection = await loop.create_connection(
                        lambda: HttpClientConnection(self, address.connection_key, self._idle_age, loop),
                        address.host,
                        address.port,
                        ssl=context,
                        server_hostname=address.host if context is not None else None,
                    )
        except TimeoutError:
            if address.proxy is not None:
                problem = f"opened no connection within {timeout:g} seconds"
                raise proxy_failure(ProxyError(address.proxy, problem)) from None
            raise UpstreamUnreachable(f"the upstream could not be reached within {timeout:g} seconds") from None
        except ProxyError as error:
            raise proxy_failure(error) from None
        except ssl.SSLError as error:
            advice = "; if the proxy replaces certificates, name its CA in outgoing.ca_bundle" if address.proxy else ""
            raise UpstreamTlsFailed(_tls_problem(error) + advice) from None
        except OSError as error:
            raise UpstreamUnreachable(_connect_problem(error)) from None
        if self._closed:
            connection.abort()
            raise UpstreamUnreachable("the server is stopping")
        return connection

    async def _connect_through(
        self, proxy: ProxyAddress, address: UpstreamAddress, context: ssl.SSLContext | None
    ) -> HttpClientConnection:
        """Connect through a proxy: for TLS by a tunnel, else to the proxy itself, which forwards the requests."""
        loop = asyncio.get_running_loop()
        key, age = address.connection_key, self._idle_age
        if context is None:
            connected = await connect_to_proxy(proxy)
            _, forwarded = await loop.create_connection(
                lambda: ProxiedHttpClientConnection(self, key, age, loop, proxy), sock=connected
            )
            return forwarded
        connected = await open_proxy_tunnel(proxy, address.host, address.port)
        _, tunnelled = await loop.create_connection(
            lambda: HttpClientConnection(self, key, age, loop),
            sock=connected,
            ssl=context,
            server_hostname=address.host,
        )
        return tunnelled

    async def _tls_context_for(self, address: UpstreamAddress) -> ssl.SSLContext | None:
        if not address.tls:
            return None
        context = self._contexts.get(address.ca)
        if context is None:
            # Loading the system's certificates takes tens of milliseconds.
            try:
                context = await asyncio.to_thread(make_tls_context, self._ca_bundle, address.ca)
            except OSError:
                names = ["`outgoing.ca_bundle`"] * (self._ca_bundle is not None) + ["`ca`"] * (address.ca is not None)
                raise UpstreamTlsFailed(
                    f"the certificates to trust cannot be read from the file of setting {' or '.join(names)}"
                ) from None
            self._contexts[address.ca] = context
        return context


def _encode_request_head(
    address: UpstreamAddress, method: str, target: bytes, headers: Headers, body_size: int
) -> bytes:
    if b" " in target or not target.startswith(b"/"):
        raise ValueError("a request target starts with a slash and contains no spaces")
    first = b"%b %b%b HTTP/1.1" % (method.encode("ascii"), address.target_prefix, target)
    head = encode_http_head((first, *address.header_lines), headers, CONNECTION_REQUEST_HEADERS)
    if body_size or method not in ("GET", "HEAD"):
        return b"%b\r\ncontent-length: %d\r\n\r\n" % (head, body_size)
    return head + b"\r\n\r\n"


def _connect_problem(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the upstream's host name is unknown"
    # A name with several addresses has no single reason.
    return f"the upstream could not be reached: {os.strerror(error.errno) if error.errno else 'no address answers'}"


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = "it is for another name" if error.verify_code == _WRONG_NAME else error.verify_message
        return f"the upstream's certificate is not trusted: {reason}"
    return f"the upstream does not speak TLS as it should: {(error.reason or 'unknown').lower().replace('_', ' ')}"

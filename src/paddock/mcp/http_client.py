"""HTTP client for MCP servers: directly, or through the server's proxy, always to an address that was checked.

A proxy would resolve host names by itself, so that a name could lead to a private address. So names are resolved and
checked here, and the tunnel through the proxy leads to the checked address. An http address would need no tunnel, so a
proxy gets only those with an IP address; with a name, they are refused.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Any, Literal

import structlog
from aiohttp import (
    ClientHttpProxyError,
    ClientProxyConnectionError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from yarl import URL

from paddock.config.outgoing_proxy import OutgoingProxies, ProxyAddress
from paddock.errors import Unavailable
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.network.outgoing_proxy_tunnel import PROXY_AUTHENTICATION_REQUIRED, ProxyError, proxy_refusal

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 3600.0
"""Seconds without data from a server: tools may be slow, and notification streams may be silent."""
KEEPALIVE_TIMEOUT = 4.0
"""Seconds an idle connection is kept: shorter than servers do, to avoid reusing a closing one."""
log = structlog.get_logger()


class McpHttpClient:
    """Connections to MCP servers, shared by all sandboxes. Create it on the event loop, and `close` it."""

    def __init__(self, address_policy: McpAddressPolicy, proxies: OutgoingProxies) -> None:
        self._address_policy = address_policy
        self._proxies = proxies
        self._direct = _open_session(proxies, address_policy)
        # Names of MCP servers are resolved before, so that this session resolves only the name of the proxy.
        self._proxied = _open_session(proxies, None, connect=CONNECT_TIMEOUT)

    @property
    def address_policy(self) -> McpAddressPolicy:
        return self._address_policy

    async def send(
        self, method: str, url: URL, headers: CIMultiDict[str], data: AsyncIterator[bytes] | bytes | None
    ) -> ClientResponse:
        """Send a request. Raises `ProxyError`, `Forbidden`, `ClientError` and `TimeoutError`."""
        proxy, address = await self._route(url)
        if proxy is None:
            return await self._direct.request(method, url, headers=headers, data=data, allow_redirects=False)
        headers["Host"] = url.raw_authority
        authorization = {} if proxy.authorization is None else {"Proxy-Authorization": proxy.authorization}
        options: dict[str, Any] = {}
        if url.scheme == "https":
            # aiohttp's pool must keep connections of different server names apart; 3.14.5 does.
            options = {"server_hostname": url.raw_host, "proxy_headers": authorization}
        else:
            headers.update(authorization)
        try:
            response = await self._proxied.request(
                method, url.with_host(address), headers=headers, data=data, allow_redirects=False, proxy=proxy.url,
                **options,
            )  # fmt: skip
        except ClientHttpProxyError as error:
            raise proxy_refusal(proxy, error.status) from None
        except ClientProxyConnectionError as error:
            raise ProxyError(proxy, f"cannot be reached: {error.os_error.strerror}") from None
        if url.scheme == "http" and response.status == PROXY_AUTHENTICATION_REQUIRED:
            response.close()
            raise proxy_refusal(proxy, response.status)
        return response

    def trusted_certificates(self) -> bytes:
        """Return the certificates of the authorities that the client trusts, as PEM. Reads files."""
        context = ssl.create_default_context()
        if self._proxies.ca_bundle is not None:
            context.load_verify_locations(cafile=self._proxies.ca_bundle)
        return "".join(map(ssl.DER_cert_to_PEM_cert, context.get_ca_certs(binary_form=True))).encode()

    async def close(self) -> None:
        await self._direct.close()
        await self._proxied.close()

    async def _route(self, url: URL) -> tuple[ProxyAddress | None, str]:
        """Return the proxy for a URL, and the checked address to which it shall connect."""
        scheme: Literal["http", "https"] = "https" if url.scheme == "https" else "http"
        host, port = url.raw_host or "", url.port or 0
        proxy = self._proxies.choose(scheme, host, port)
        if proxy is None:
            return None, host
        try:
            found = await self._address_policy.resolve(host, port, socket.AF_UNSPEC)
        except OSError as error:
            raise Unavailable(f"{host} has no address: {error.strerror or error}") from None
        address = found[0]["host"]
        proxy = self._proxies.choose(scheme, host, port, ip_address(address.partition("%")[0]))
        if proxy is not None and scheme == "http" and host != address:
            raise ProxyError(
                proxy,
                f"would resolve {host} itself, past the check of its address; use an https address, or list "
                f"{host} in outgoing.no_proxy",
                is_permanent=True,
            )
        return proxy, address


def _open_session(
    proxies: OutgoingProxies, resolver: AbstractResolver | None, connect: float | None = None
) -> ClientSession:
    trusted: ssl.SSLContext | bool = True
    if proxies.ca_bundle is not None:
        trusted = ssl.create_default_context()
        trusted.load_verify_locations(cafile=proxies.ca_bundle)
    return ClientSession(
        connector=TCPConnector(
            resolver=resolver, limit=0, keepalive_timeout=KEEPALIVE_TIMEOUT, use_dns_cache=False, ssl=trusted
        ),
        timeout=ClientTimeout(total=None, connect=connect, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT),
        # Sandboxes must not share cookies.
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )

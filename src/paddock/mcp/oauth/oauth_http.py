"""HTTP requests to authorization servers: https only, checked addresses, bounded sizes, times and redirects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientError, ClientResponse
from multidict import CIMultiDict
from yarl import URL

from paddock.errors import Forbidden, McpSignInFailed, PaddockError, Unavailable
from paddock.mcp.declared_servers import LOOPBACK_NAMES
from paddock.mcp.http_client import McpHttpClient
from paddock.model.mcp import McpKind, McpServer
from paddock.network.outgoing_proxy_tunnel import ProxyError

MAX_DOCUMENT = 256 * 1024
MAX_ADDRESS = 2048
MAX_REDIRECTS = 3
REQUEST_TIMEOUT = 15.0
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A response with a JSON object, or with none."""

    status: int
    document: dict[str, Any] | None
    challenge: str | None = None
    """The header `WWW-Authenticate`."""


class OAuthHttp:
    """Requests for one sign-in."""

    def __init__(self, client: McpHttpClient) -> None:
        self._client = client

    async def get_document(self, address: str) -> JsonAnswer:
        """Fetch a JSON document; redirects are followed to addresses that may be fetched too. Raises `PaddockError`."""
        url = self.check_address(address)
        async with _bounded_time(url):
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._send("GET", url, {}, None)
                try:
                    if response.status not in _REDIRECTS:
                        return await _read_json(response, url)
                    target = response.headers.get("Location", "")
                finally:
                    response.close()
                try:
                    url = self.check_address(str(url.join(URL(target, encoded=True))))
                except ValueError:
                    raise McpSignInFailed(f"{shown_address(url)} redirects to an invalid address") from None
        raise McpSignInFailed(f"{shown_address(url)} redirects more than {MAX_REDIRECTS} times")

    async def post_form(
        self, address: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> JsonAnswer:
        """Post a form. Redirects are refused: they would carry secrets elsewhere. Raises `PaddockError`."""
        content_type = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._post(address, urlencode(fields).encode(), {**content_type, **(headers or {})})

    async def post_json(
        self, address: str, document: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> JsonAnswer:
        """Post a JSON document. Redirects are refused. Raises `PaddockError`."""
        content_type = {"Content-Type": "application/json"}
        return await self._post(address, json.dumps(document).encode(), {**content_type, **(headers or {})})

    async def _post(self, address: str, body: bytes, headers: Mapping[str, str]) -> JsonAnswer:
        url = self.check_address(address)
        async with _bounded_time(url):
            response = await self._send("POST", url, headers, body)
            try:
                if response.status in _REDIRECTS:
                    raise McpSignInFailed(f"{shown_address(url)} redirects, which is refused for this request")
                return await _read_json(response, url)
            finally:
                response.close()

    def check_address(self, address: str) -> URL:
        """Return an address that may be requested. Raises `McpSignInFailed` and `Forbidden`.

        Only https; http to loopback names, which the policy refuses unless the operator allows them.
        """
        try:
            url = URL(address)
            port = url.port
        except ValueError:
            raise McpSignInFailed("an address of the authorization server is invalid") from None
        if len(address) > MAX_ADDRESS or not url.host or url.user is not None or url.password is not None:
            raise McpSignInFailed("an address of the authorization server is invalid")
        if url.scheme != "https" and not (url.scheme == "http" and url.host in LOOPBACK_NAMES):
            raise Forbidden(f"{shown_address(url)} is needed for the sign-in, but does not begin with https")
        # Host names are checked when they are resolved; IP addresses are never resolved.
        self._client.address_policy.check_address(url.host, port or 0)
        return url.with_fragment(None)

    async def _send(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> ClientResponse:
        sent = CIMultiDict(
            {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "Paddock", **headers}
        )
        if body is not None:
            sent["Content-Length"] = str(len(body))
        try:
            return await self._client.send(method, url, sent, body)
        except ProxyError as error:
            raise Unavailable(f"{shown_address(url)} cannot be reached: {error}") from None
        except ClientError as error:
            if isinstance(refused := error.__cause__ or error.__context__, PaddockError):
                raise refused from None
            # Texts of some errors have the headers of the request.
            raise Unavailable(f"{shown_address(url)} cannot be reached: {type(error).__name__}") from None
        except (ConnectionError, ValueError) as error:
            raise Unavailable(f"{shown_address(url)} cannot be reached: {type(error).__name__}") from None


class OAuthClients:
    """Chooses the HTTP client for the sign-in at a server.

    A server on the internet could name a private address in its metadata. So everything for it goes to public
    addresses only, whatever the operator allows to servers in private networks.
    """

    def __init__(self, client: McpHttpClient, internet_client: McpHttpClient | None) -> None:
        self._client = client
        self._internet_client = internet_client

    async def choose(self, server: McpServer) -> OAuthHttp:
        """Return the client for a server. Raises `Unavailable`."""
        url = URL(server.url or "", encoded=True)
        if url.host in LOOPBACK_NAMES:
            return OAuthHttp(self._client)
        if server.sort is McpKind.INTERNET:
            if self._internet_client is None:
                raise Unavailable(f"the MCP server {server.name} is on the internet, which is not reachable from here")
            return OAuthHttp(self._internet_client)
        is_public = self._internet_client is not None and await _is_public(self._internet_client, url)
        return OAuthHttp(self._internet_client if is_public and self._internet_client else self._client)


async def _is_public(client: McpHttpClient, url: URL) -> bool:
    policy = client.address_policy
    try:
        policy.check_address(url.host or "", url.port or 0)
        async with asyncio.timeout(REQUEST_TIMEOUT):
            await policy.resolve(url.host or "", url.port or 0)
    except (Forbidden, OSError):
        return False
    return True


@asynccontextmanager
async def _bounded_time(url: URL) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            yield
    except TimeoutError:
        raise Unavailable(f"{shown_address(url)} does not answer within {REQUEST_TIMEOUT:.0f} s") from None


async def _read_json(response: ClientResponse, url: URL) -> JsonAnswer:
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_DOCUMENT:
                raise McpSignInFailed(f"{shown_address(url)} answers with more than {MAX_DOCUMENT} bytes")
    except (ClientError, ConnectionError) as error:
        raise Unavailable(f"{shown_address(url)} ended its answer early: {type(error).__name__}") from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    challenge = ", ".join(response.headers.getall("WWW-Authenticate", ())) or None
    return JsonAnswer(response.status, document if isinstance(document, dict) else None, challenge)


def shown_address(url: URL) -> str:
    """Return an address for messages: without query, which may have secrets, and not endless."""
    return str(url.with_query(None).with_fragment(None).with_user(None))[:200]

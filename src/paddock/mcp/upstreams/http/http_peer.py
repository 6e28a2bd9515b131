"""Sends HTTP requests to an MCP server: checked address, configured headers, credentials, size and time limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import ClientError, ClientResponse
from multidict import CIMultiDict
from yarl import URL

from paddock.errors import PaddockError, TooLarge, Unavailable
from paddock.mcp.declared_servers import check_mcp_server, fill_header_secrets
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.headers import ACCEPT_BOTH
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http.http_answer import HttpAnswer
from paddock.model.mcp import McpServer
from paddock.network.outgoing_proxy_tunnel import ProxyError

USER_AGENT = "Paddock"
MAX_SINGLE_WRITE = 512 * 1024
MAX_CHALLENGES = 2
"""Refusals of credentials after which a request is not repeated any more."""


class HttpPeer:
    """One server at one address, and how it is reached."""

    def __init__(self, server: McpServer, dependencies: UpstreamDependencies) -> None:
        check_mcp_server(server)
        self.server = server
        self.url = URL(server.url or "", encoded=True)
        self._dependencies = dependencies

    @asynccontextmanager
    async def send(
        self,
        method: str,
        context: CallContext,
        headers: Mapping[str, str],
        body: bytes | None,
        clock: CallClock,
        url: URL | None = None,
    ) -> AsyncGenerator[HttpAnswer, None]:
        """Send a request, and close its response at the end. Raises `PaddockError`."""
        if body is not None and len(body) > self.server.limits.request_size:
            raise TooLarge(
                f"the request to the MCP server {self.server.name} is larger than {self.server.limits.request_size} "
                "bytes; see its limits.request_size"
            )
        answer = await self._send_with_credentials(method, context, headers, body, clock, url or self.url)
        try:
            yield answer
        finally:
            answer.close()

    async def _send_with_credentials(
        self,
        method: str,
        context: CallContext,
        headers: Mapping[str, str],
        body: bytes | None,
        clock: CallClock,
        url: URL,
    ) -> HttpAnswer:
        credentials = self._dependencies.credentials
        for attempt in range(MAX_CHALLENGES + 1):
            sent = CIMultiDict({"Accept": ACCEPT_BOTH, "User-Agent": USER_AGENT, **headers})
            if body is not None:
                sent.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
            added = {**self._configured_headers(), **await credentials.headers(self.server, context)}
            sent.update(added)
            secrets = [word for value in added.values() for word in (value, *value.split())]
            response = await self._request(method, url, sent, body, clock)
            answer = HttpAnswer(self.server.name, response, self.server.limits.response_size, clock, secrets)
            if response.status not in (401, 403) or attempt == MAX_CHALLENGES:
                return answer
            try:
                challenge = ", ".join(response.headers.getall("WWW-Authenticate", ())) or None
                is_repeated = await credentials.on_challenge(self.server, context, response.status, challenge)
            except BaseException:
                answer.close()
                raise
            if not is_repeated:
                return answer
            answer.close()
        raise AssertionError("the last attempt returns")

    async def _request(
        self, method: str, url: URL, headers: CIMultiDict[str], body: bytes | None, clock: CallClock
    ) -> ClientResponse:
        name = self.server.name
        client = self._dependencies.client_for(self.server)
        # Host names are checked when they are resolved; IP addresses are never resolved.
        client.address_policy.check_address(url.host or "", url.port or 0)
        data = _body_pieces(body) if body is not None and len(body) > MAX_SINGLE_WRITE else body
        try:
            async with clock.wait():
                return await client.send(method, url, headers, data)
        except TimeoutError:
            raise clock.timeout_error() from None
        except ProxyError as error:
            raise Unavailable(f"the MCP server {name} cannot be reached: {error}") from None
        except ClientError as error:
            if isinstance(refused := error.__cause__ or error.__context__, PaddockError):
                raise refused from None
            # The representation of some errors has the headers of the request.
            raise Unavailable(f"the MCP server {name} cannot be reached: {_failure_reason(error)}") from None
        except (ConnectionError, ValueError) as error:
            raise Unavailable(f"the MCP server {name} cannot be reached: {type(error).__name__}") from None

    def _configured_headers(self) -> dict[str, str]:
        name, lookup = self.server.name, self._dependencies.secrets
        return {
            header: fill_header_secrets(name, header, value, lookup) for header, value in self.server.headers.items()
        }


async def _body_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), MAX_SINGLE_WRITE):
        yield body[start : start + MAX_SINGLE_WRITE]


def _failure_reason(error: ClientError) -> str:
    cause = getattr(error, "os_error", None)
    return str(getattr(cause, "strerror", None) or type(error).__name__)

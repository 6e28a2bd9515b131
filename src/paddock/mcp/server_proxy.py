"""Proxies requests of sandboxes to the MCP servers that their task declares, and to nothing else.

In a sandbox, `http://127.0.0.1:8422/NAME` is the server NAME. Requests and responses pass unchanged, streams included;
secret headers are added by the proxy and never visible in the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from aiohttp import ClientError, ClientResponse, web
from multidict import CIMultiDict
from yarl import URL

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import Forbidden, InvalidInput, NotFound, PaddockError, TooLarge, Unavailable
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_http_server import UplinkHttpServer
from paddock.fleet.uplink_sockets import is_from_web_page, publish_uplink_socket
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.declared_servers import (
    MCP_EXTENSION,
    MCP_PROXY_ADDRESS,
    MCP_PROXY_PORT,
    SecretLookup,
    check_mcp_server,
    fill_header_secrets,
    read_declared_servers,
)
from paddock.mcp.http_client import McpHttpClient
from paddock.model.mcp import McpServer
from paddock.model.sandbox import Sandbox, UplinkService
from paddock.network.proxy_tunnel import ProxyError

MCP_UPLINK_NAME = "mcp"
MAX_REQUEST_SIZE = 16 * 2**20
SEND_TIMEOUT = 120.0
"""Seconds for which a program may stop reading a response."""
PROXIED_METHODS = ("GET", "POST", "DELETE")
_SAFE_SUBPATH = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%(?!2[eEfF]|5[cC]|00)[0-9A-Fa-f]{2})*)*")
"""Paths that all servers interpret alike: no escaped dots or slashes."""
_HOP_HEADERS = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade"
    " expect host content-length".split()
)
"""Hop-by-hop headers, and headers that the proxy sets itself."""
_STATUSES: dict[type[PaddockError], int] = {
    NotFound: 404,
    TooLarge: 413,
    Forbidden: 403,
    InvalidInput: 400,
    Unavailable: 502,
}
log = structlog.get_logger()


class McpServerProxies:
    """Lifecycle hook: serve each sandbox a proxy to its declared MCP servers."""

    def __init__(
        self,
        lookup: SecretLookup = lambda name: None,
        address_policy: McpAddressPolicy | None = None,
        proxies: OutgoingProxies | None = None,
    ) -> None:
        self._lookup = lookup
        self._proxies = proxies or OutgoingProxies()
        self.address_policy = address_policy or McpAddressPolicy()
        self._served: dict[str, _McpServerProxy] = {}
        self._client: McpHttpClient | None = None

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        return (UplinkService(name=MCP_UPLINK_NAME, port=MCP_PROXY_PORT),)

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` for invalid servers, missing secrets, and use of this service's name or port."""
        if any(
            service.name == MCP_UPLINK_NAME or service.port == MCP_PROXY_PORT for service in request.uplink_services
        ):
            raise InvalidInput(
                f"the uplink service {MCP_UPLINK_NAME} and port {MCP_PROXY_PORT} are reserved for MCP servers; "
                "use others"
            )
        for server in read_declared_servers(request.extensions).values():
            check_mcp_server(server, self._lookup)
            parts = urlsplit(server.url or "")
            try:
                self.address_policy.check_address(
                    parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
                )
            except Forbidden as error:
                raise InvalidInput(f"mcp.{server.name}: {error.message}") from None

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {"PADDOCK_MCP_URL": MCP_PROXY_ADDRESS} if MCP_EXTENSION in sandbox.extensions else {}

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        """Serve the sandbox's socket, replacing one that an earlier server left behind."""
        servers = read_declared_servers(sandbox.extensions)
        if not servers:
            return
        if self._client is None:
            self._client = McpHttpClient(self.address_policy, self._proxies)
        proxy = _McpServerProxy(servers, self._client, self.address_policy, self._lookup)
        try:
            async with publish_uplink_socket(uplinks, MCP_UPLINK_NAME) as listening_socket:
                await proxy.listen(listening_socket)
        except BaseException:
            await proxy.close()
            raise
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = proxy
        if earlier is not None:
            await earlier.close()

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Do nothing: the proxy has no expiry of its own."""

    async def on_ended(self, sandbox_id: str) -> None:
        """Close the sandbox's socket and all connections to it."""
        proxy = self._served.pop(sandbox_id, None)
        if proxy is not None:
            await proxy.close()

    async def tracked_sandboxes(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server process serves the sandboxes again."""
        while self._served:
            await self._served.popitem()[1].close()
        if self._client is not None:
            await self._client.close()
            self._client = None


class _McpServerProxy(UplinkHttpServer):
    """Proxy of one sandbox to its MCP servers."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        client: McpHttpClient,
        address_policy: McpAddressPolicy,
        lookup: SecretLookup,
    ) -> None:
        super().__init__(MCP_UPLINK_NAME, decompress=False)  # Compressed bodies pass unchanged.
        self._servers = servers
        self._client = client
        self._address_policy = address_policy
        self._lookup = lookup

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if is_from_web_page(request.headers):
            return _error_response(403, "Web pages may not call the MCP servers of the sandbox.")
        try:
            server, target = self._target(request)
            headers = self._headers(server, request)
            return await self._forward(request, server.name, target, headers)
        except PaddockError as error:
            status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 500)
            return _error_response(status, error.message)
        except ValueError:
            return _error_response(400, "The request's address or headers contain invalid text.")
        except Exception:
            log.exception("unexpected error in request to MCP server")
            raise

    def _target(self, request: web.BaseRequest) -> tuple[McpServer, URL]:
        """Return the requested server and the target URL."""
        path, _, query = request.raw_path.partition("#")[0].partition("?")
        name, slash, below = path.removeprefix("/").partition("/")
        server = self._servers.get(name) if path.startswith("/") else None
        if server is None:
            known_paths = ", ".join(f"/{each}" for each in self._servers)
            raise NotFound(f"There is no MCP server at {path[:200]}; available: {known_paths}.")
        if not _SAFE_SUBPATH.fullmatch(slash + below) or {".", ".."} & set(below.split("/")):
            raise InvalidInput("The path contains sequences that servers interpret differently.")
        base = urlsplit(server.url or "")
        full_path = base.path + (f"/{below}" if below else slash) if not base.path.endswith("/") else base.path + below
        query_string = "&".join(part for part in (base.query, query) if part)
        url = URL(
            f"{base.scheme}://{base.netloc}{full_path or '/'}{'?' if query_string else ''}{query_string}", encoded=True
        )
        # Host names are checked when they are resolved; IP addresses are never resolved.
        self._address_policy.check_address(url.host or "", url.port or 0)
        return server, url

    def _headers(self, server: McpServer, request: web.BaseRequest) -> CIMultiDict[str]:
        configured = {
            name.lower(): fill_header_secrets(server.name, name, value, self._lookup)
            for name, value in server.headers.items()
        }
        named = {each.strip().lower() for each in request.headers.get("Connection", "").split(",")}
        passed = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in _HOP_HEADERS and name.lower() not in configured and name.lower() not in named
        )
        passed.update(configured)
        return passed

    async def _forward(
        self, request: web.BaseRequest, name: str, target: URL, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        if request.method not in PROXIED_METHODS:
            return _error_response(
                405, f"MCP uses the methods {', '.join(PROXIED_METHODS)}.", {"Allow": ", ".join(PROXIED_METHODS)}
            )
        if (request.content_length or 0) > MAX_REQUEST_SIZE:
            raise _too_large_error()
        if request.content_length is not None:
            headers["Content-Length"] = str(request.content_length)
        data = _bounded_body(request) if request.body_exists else None
        try:
            async with await self._client.send(request.method, target, headers, data) as upstream:
                if 300 <= upstream.status < 400 and upstream.status != 304:
                    message = (
                        f"The MCP server {name} redirects (status {upstream.status}); redirects are not followed. "
                        "Write the final address in the task, often with or without a trailing /."
                    )
                    return _error_response(502, message)
                return await _stream_response(request, upstream)
        except TimeoutError:
            return _error_response(504, f"The MCP server {name} does not answer.")
        except ProxyError as error:
            log.info("proxy refused connection to MCP server", server=name, proxy=error.proxy.url, error=str(error))
            return _error_response(502, f"The MCP server {name} cannot be reached: {error}.")
        except ClientError as error:
            if isinstance(refused := error.__cause__ or error.__context__, PaddockError):
                raise refused from None
            # The representation of some errors has the headers of the request.
            log.info("MCP server unreachable", server=name, error=f"{type(error).__name__}: {_failure_reason(error)}")
            return _error_response(502, f"The MCP server {name} cannot be reached: {_failure_reason(error)}.")


async def _stream_response(request: web.BaseRequest, upstream: ClientResponse) -> web.StreamResponse:
    """Stream the response to the sandbox; abort the connection if it breaks, or it would look complete."""
    headers = CIMultiDict(
        (name, value.encode(errors="replace").decode())
        for name, value in upstream.headers.items()
        if name.lower() not in _HOP_HEADERS
    )
    if "Content-Length" in upstream.headers:
        headers["Content-Length"] = upstream.headers["Content-Length"]
    response = web.StreamResponse(status=upstream.status, headers=headers)
    await response.prepare(request)
    try:
        async for chunk in upstream.content.iter_any():
            async with asyncio.timeout(SEND_TIMEOUT):
                await response.write(chunk)
        await response.write_eof()
    except (ClientError, ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
    return response


async def _bounded_body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    sent = 0
    async for chunk in request.content.iter_any():
        sent += len(chunk)
        if sent > MAX_REQUEST_SIZE:
            raise _too_large_error()
        yield chunk


def _too_large_error() -> TooLarge:
    return TooLarge(f"The request is larger than {MAX_REQUEST_SIZE >> 20} MiB.")


def _error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an MCP error response."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}
    return web.Response(status=status, body=json.dumps(body), content_type="application/json", headers=headers)


def _failure_reason(error: ClientError) -> str:
    cause = getattr(error, "os_error", None)
    return str(getattr(cause, "strerror", None) or type(error).__name__)

"""A server behind the gateway of another Paddock, over gRPC."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc
from yarl import URL

from paddock.errors import InvalidInput, McpTimeout, TooLarge, Unavailable
from paddock.mcp.declared_servers import check_mcp_server, fill_header_secrets
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import encode_message
from paddock.mcp.protocol.revisions import LISTEN
from paddock.mcp.rpc.client import McpRpcClient
from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies, UpstreamStatus
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.model.mcp import McpServer


class GrpcGateway(Upstream):
    """One stream to another gateway. The address is checked like that of an HTTP server; proxies are not used."""

    def __init__(self, server: McpServer, dependencies: UpstreamDependencies) -> None:
        super().__init__(server)
        check_mcp_server(server)
        self._url = URL(server.url or "", encoded=True)
        self._dependencies = dependencies
        self._connecting = asyncio.Lock()
        self._client: McpRpcClient | None = None
        self._is_closed = False

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if not isinstance(request.id, (int, str)):
            raise InvalidInput("a request needs an id")
        if len(encode_message(request)) > self.server.limits.request_size:
            raise TooLarge(f"the request to the MCP server {self.server.name} is larger than its limits.request_size")
        clock = (
            CallClock.unlimited(self.server, context) if request.method == LISTEN else CallClock(self.server, context)
        )
        client = await self._connect()
        endpoint = client.endpoint(self._url.raw_path.strip("/"))
        try:
            async with aclosing(endpoint.exchange(request, context)) as messages:
                while True:
                    async with clock.wait():
                        message = await anext(messages)
                    clock.restart()
                    if message.is_response:
                        self._health.record(UpstreamStatus.READY)
                    yield message
                    if message.is_response:
                        return
        except McpTimeout:
            raise
        except TimeoutError:
            raise clock.timeout_error() from None
        except Unavailable as error:
            self._health.record(UpstreamStatus.FAILED, error.message)
            raise

    async def close(self) -> None:
        self._is_closed = True
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> McpRpcClient:
        async with self._connecting:
            if self._is_closed:
                raise Unavailable(f"the connection to the MCP server {self.server.name} was closed")
            if self._client is None:
                self._health.record(UpstreamStatus.STARTING)
                self._client = await self._open_client()
            return self._client

    async def _open_client(self) -> McpRpcClient:
        client = self._dependencies.client_for(self.server)
        host, port = self._url.raw_host or "", self._url.port or 0
        try:
            addresses = await client.address_policy.resolve(host, port, socket.AF_UNSPEC)
        except OSError as error:
            raise Unavailable(f"{host} has no address: {error.strerror or error}") from None
        address = addresses[0]["host"]
        checked = f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}"
        metadata = [
            (name.lower(), fill_header_secrets(self.server.name, name, value, self._dependencies.secrets))
            for name, value in self.server.headers.items()
        ]
        credentials = None
        if self._url.scheme == "https":
            credentials = grpc.ssl_channel_credentials(await asyncio.to_thread(client.trusted_certificates))
        return McpRpcClient(checked, credentials=credentials, metadata=metadata, authority=f"{host}:{port}")

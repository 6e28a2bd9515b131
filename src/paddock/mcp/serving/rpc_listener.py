"""Serves the gateway over gRPC to the holders of API keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from paddock.auth.api_keys import ApiKeys
from paddock.auth.logins import BrowserLogins
from paddock.config.mcp_grpc import McpGrpcConfig
from paddock.errors import ConfigError
from paddock.mcp.gateway.contexts import principal_context
from paddock.mcp.protocol.endpoint import EndpointResolver
from paddock.model.keys import Scope

if TYPE_CHECKING:
    from paddock.mcp.rpc.server import RpcCaller


@asynccontextmanager
async def serve_grpc(
    settings: McpGrpcConfig, resolve: EndpointResolver, keys: ApiKeys, logins: BrowserLogins, grace: float
) -> AsyncIterator[int | None]:
    """Serve within the context, and yield the port; None if gRPC is not configured.

    Raises `Unavailable` if the address is taken, `ConfigError` if the certificate cannot be read.
    """
    if settings.listen is None:
        yield None
        return
    # gRPC takes a while to import, and few servers use it.
    from paddock.mcp.rpc.server import McpRpcServer, RpcCaller

    async def authenticate(key: str) -> RpcCaller:
        principal = await keys.authenticate(key)
        principal.require(Scope.MCP_USE)
        return RpcCaller(principal_context(principal, "grpc"), partial(logins.wait_until_invalid, principal))

    server = McpRpcServer(resolve, authenticate)
    certificate = await asyncio.to_thread(_read_certificate, settings)
    try:
        yield await server.listen(settings.listen, certificate)
    finally:
        await server.close(grace)


def _read_certificate(settings: McpGrpcConfig) -> tuple[bytes, bytes] | None:
    if settings.certificate is None or settings.private_key is None:
        return None
    try:
        return settings.certificate.read_bytes(), settings.private_key.read_bytes()
    except OSError as error:
        raise ConfigError(f"mcp.grpc: {error.filename} cannot be read: {error.strerror}") from None

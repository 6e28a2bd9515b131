"""gRPC server of the MCP gateway: the transport, typed calls, health and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from paddock.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    McpTimeout,
    NotFound,
    PaddockError,
    QuotaExceeded,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from paddock.mcp.protocol.endpoint import CallContext, EndpointResolver
from paddock.mcp.rpc.server_session import BrokenSession, ServerSession
from paddock.mcp.rpc.typed_tools import TypedTools
from paddock.mcp.rpc.v1 import mcp_pb2, mcp_pb2_grpc
from paddock.mcp.rpc.wire import AUTHORIZATION, KEEPALIVE_OPTIONS

MAX_METADATA = 16 * 2**10
MAX_STREAMS_PER_CONNECTION = 100
HEALTH_SERVICE = "grpc.health.v1.Health"
_ServicerContext: TypeAlias = grpc.aio.ServicerContext
_CODES: Mapping[type[PaddockError], grpc.StatusCode] = {
    Unauthorized: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    NotFound: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    McpTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}
log = structlog.get_logger()


@dataclass(frozen=True)
class RpcCaller:
    """The owner of a key."""

    context: CallContext
    until_invalid: Callable[[], Awaitable[str]]
    """Waits until the key becomes invalid, and returns the reason."""


Authenticate: TypeAlias = Callable[[str], Awaitable[RpcCaller]]
"""Returns the owner of a key. Raises `Unauthorized`, or `Forbidden` for a key that may not use MCP servers."""
_caller: ContextVar[RpcCaller] = ContextVar("grpc_caller")


class McpRpcServer:
    """Serves the gateway's endpoints over gRPC."""

    def __init__(self, resolve: EndpointResolver, authenticate: Authenticate) -> None:
        options = [
            *KEEPALIVE_OPTIONS,
            ("grpc.max_metadata_size", MAX_METADATA),
            ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(interceptors=[_KeyInterceptor(authenticate)], options=options)
        self._health = health_aio.HealthServicer()
        names = [each.full_name for each in mcp_pb2.DESCRIPTOR.services_by_name.values()]
        self._names = ["", *names]
        transport = _TransportService(resolve)
        mcp_pb2_grpc.add_TransportServicer_to_server(transport, self._server)  # type: ignore[no-untyped-call]
        mcp_pb2_grpc.add_ToolsServicer_to_server(_ToolsService(resolve), self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*names, HEALTH_SERVICE, reflection.SERVICE_NAME], self._server)

    async def listen(self, address: str, certificate: tuple[bytes, bytes] | None = None) -> int:
        """Listen on `host:port`, with TLS if there is a certificate and its key, and return the port.

        Raises `Unavailable` if the address is taken.
        """
        try:
            if certificate is None:
                port = self._server.add_insecure_port(address)
            else:
                chain, key = certificate
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials([(key, chain)]))
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address} for gRPC: {error}; set another mcp.grpc.listen") from None
        await self._server.start()
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return int(port)

    async def close(self, grace: float = 0.0) -> None:
        """Report not serving, wait `grace` seconds for calls under way, and close all connections."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)


class _KeyInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Authenticates calls before their messages are read. Health checks need no key."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        if handler_call_details.method.startswith(f"/{HEALTH_SERVICE}/"):
            return await continuation(handler_call_details)
        metadata = dict(handler_call_details.invocation_metadata)
        scheme, _, key = str(metadata.get(AUTHORIZATION, "")).partition(" ")
        try:
            if scheme.lower() != "bearer" or not key.strip():
                raise Unauthorized("send an API key in the metadata: authorization: Bearer KEY")
            _caller.set(await self._authenticate(key.strip()))
        except PaddockError as error:
            return _refuse(error)
        return await continuation(handler_call_details)


class _TransportService(mcp_pb2_grpc.TransportServicer):
    """Serves sessions until they end or their key becomes invalid."""

    def __init__(self, resolve: EndpointResolver) -> None:
        self._resolve = resolve

    async def Session(  # noqa: N802
        self, batches: AsyncIterator[mcp_pb2.FrameBatch], context: _ServicerContext
    ) -> AsyncGenerator[mcp_pb2.FrameBatch, None]:
        caller = _caller.get()
        await context.send_initial_metadata(())
        serving = asyncio.current_task()
        revoked: list[str] = []

        async def end_when_invalid() -> None:
            revoked.append(await caller.until_invalid())
            if serving is not None:
                serving.cancel()

        watching = asyncio.create_task(end_when_invalid())
        try:
            async with aclosing(ServerSession(self._resolve, caller.context).serve(batches)) as sent:
                async for batch in sent:
                    yield batch
        except BrokenSession as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            if not revoked:
                raise
            if serving is not None:
                serving.uncancel()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, revoked[0])
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


class _ToolsService(mcp_pb2_grpc.ToolsServicer):
    """Serves the typed calls."""

    def __init__(self, resolve: EndpointResolver) -> None:
        self._tools = TypedTools(resolve)

    async def ListTools(  # noqa: N802
        self, request: mcp_pb2.ListToolsRequest, context: _ServicerContext
    ) -> mcp_pb2.ListToolsResponse:
        try:
            return await self._tools.list_tools(request, _caller.get().context)
        except PaddockError as error:
            await _abort(context, error)

    async def CallTool(  # noqa: N802
        self, request: mcp_pb2.CallToolRequest, context: _ServicerContext
    ) -> AsyncGenerator[mcp_pb2.CallToolEvent, None]:
        try:
            events = self._tools.call_tool(request, _caller.get().context, context.time_remaining())
            async with aclosing(events):
                async for event in events:
                    yield event
        except PaddockError as error:
            await _abort(context, error)


def _refuse(error: PaddockError) -> grpc.RpcMethodHandler:
    """Return a handler that refuses a call without reading its messages."""

    async def abort(requests: AsyncIterator[Any], context: _ServicerContext) -> AsyncGenerator[bytes, None]:
        await _abort(context, error)
        yield b""

    return grpc.stream_stream_rpc_method_handler(abort)


async def _abort(context: _ServicerContext, error: PaddockError) -> NoReturn:
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    await context.abort(code, error.message, (("paddock-error-code", error.code),))
    raise AssertionError("abort always raises")

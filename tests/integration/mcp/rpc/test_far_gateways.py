"""Another gateway as a declared server with the transport gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import (
    Forbidden,
    McpTimeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies
from paddock.mcp.upstreams.factory import open_upstream
from paddock.model.mcp import McpServer

from .rpc_gateway import CONTEXT, KEY, Gateway, call, collect, result_text

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def far_server(
    gateway: Gateway, *, allow: str = "127.0.0.1", ca: Path | None = None, **fields: Any
) -> AsyncIterator[Upstream]:
    """Connect to the gateway's server `demo` as a declared server with the transport grpc."""
    url = f"http://{gateway.address}/demo" if ca is None else f"https://localhost:{gateway.port}/demo"
    headers = {"Authorization": "Bearer ${FAR_KEY}"}
    server = McpServer(**{"name": "far", "url": url, "transport": "grpc", "headers": headers, **fields})
    client = McpHttpClient(McpAddressPolicy([allow]), OutgoingProxies(ca_bundle=ca))
    upstream = open_upstream(server, UpstreamDependencies(client=client, secrets={"FAR_KEY": KEY}.get))
    try:
        yield upstream
    finally:
        await upstream.close()
        await client.close()


async def test_a_server_behind_another_gateway(gateway: Gateway) -> None:
    async with far_server(gateway) as upstream:
        messages = await collect(upstream, call("count", token="t", to=2))
        assert [each.method for each in messages[:-1]] == ["notifications/progress"] * 2
        assert [each.status for each in upstream.health_history] == ["idle", "starting", "ready"]
        messages_under_way = upstream.exchange(call("sleep", token="t"), CONTEXT)
        await anext(messages_under_way)
        await messages_under_way.aclose()
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_a_silent_server_behind_another_gateway(gateway: Gateway) -> None:
    async with far_server(gateway, timeouts={"call": 0.2}) as upstream:
        with pytest.raises(McpTimeout, match=r"did not answer for 0\.2 s"):
            await collect(upstream, call("sleep"))
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)
        assert upstream.state.status != "failed"


async def test_the_address_of_another_gateway_is_checked(gateway: Gateway) -> None:
    async with far_server(gateway, allow="192.0.2.1") as upstream:
        with pytest.raises(Forbidden, match=r"mcp\.allow"):
            await collect(upstream, call("echo"))
    async with far_server(gateway, headers={}) as upstream:
        with pytest.raises(Unauthorized, match="API key"):
            await collect(upstream, call("echo"))
    async with far_server(gateway, limits={"request_size": 1024}) as upstream:
        with pytest.raises(TooLarge, match="request_size"):
            await collect(upstream, call("echo", text="x" * 2048))


async def test_another_gateway_with_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    gateway = Gateway()
    async with gateway.serve((issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())):
        async with far_server(gateway, ca=tmp_path / "ca.pem", allow="localhost") as upstream:
            assert await result_text(upstream, call("echo", text="safe")) == "safe"
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
        async with far_server(gateway, ca=tmp_path / "other.pem", allow="localhost") as upstream:
            with pytest.raises(Unavailable):
                await collect(upstream, call("echo"))
            assert upstream.state.status == "failed"

"""The gRPC server and its client, on one event loop for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paddock.mcp.rpc.client import McpRpcClient

from .rpc_gateway import KEY, Gateway


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package", autouse=True)
async def one_event_loop() -> AsyncIterator[None]:
    """Run all tests on one event loop: gRPC delivers late events to the loop of a connection, which must be open."""
    yield  # noqa: PT022


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    async with made.serve():
        yield made


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[McpRpcClient]:
    made = McpRpcClient(gateway.address, KEY)
    yield made
    await made.close()

"""The server's side of a gRPC session, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddock.errors import NotFound
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.rpc.server_session import MAX_UNSENT_FRAMES, ServerSession
from paddock.mcp.rpc.v1 import mcp_pb2
from tests.support.mcp_edge_client import ME

pytestmark = pytest.mark.anyio
FRAMES = 10 * MAX_UNSENT_FRAMES


async def test_clients_that_do_not_read_are_not_read() -> None:
    """Refusals of exchanges wait for the client, too."""
    opened = 0

    def resolve(path: str, context: CallContext) -> McpEndpoint:
        raise NotFound(f"There is no MCP server {path!r}.")

    async def batches() -> AsyncIterator[mcp_pb2.FrameBatch]:
        nonlocal opened
        for number in range(FRAMES):
            request = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
            frame = mcp_pb2.Frame(exchange=number, open=mcp_pb2.Open(target="nothing", request=request))
            opened += 1
            yield mcp_pb2.FrameBatch(frames=[frame])
            await asyncio.sleep(0)

    session = ServerSession(resolve, ME).serve(batches())
    failures = len((await anext(session)).frames)
    before = -1
    while opened != before:  # The client reads nothing while the session takes all that it will take.
        before = opened
        for _ in range(100):
            await asyncio.sleep(0)
    assert opened <= 2 * MAX_UNSENT_FRAMES
    async for batch in session:
        failures += sum(frame.failure.message.startswith("There is no MCP server") for frame in batch.frames)
    assert failures == FRAMES

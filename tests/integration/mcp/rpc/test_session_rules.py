"""Clients that break the rules of the gRPC transport."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from paddock.errors import (
    QuotaExceeded,
)
from paddock.mcp.rpc.server_session import MAX_EXCHANGES
from paddock.mcp.rpc.v1 import mcp_pb2, mcp_pb2_grpc

from .rpc_gateway import KEY, Gateway

pytestmark = pytest.mark.anyio


def frame(number: int, request: bytes = b"", target: str = "demo", **content: Any) -> mcp_pb2.Frame:
    if not content:
        content = {"open": mcp_pb2.Open(target=target, request=request)}
    return mcp_pb2.Frame(exchange=number, **content)


def encoded(tool: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}).encode()


@asynccontextmanager
async def raw_session(gateway: Gateway) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = mcp_pb2_grpc.TransportStub(channel)  # type: ignore[no-untyped-call]
        yield stub.Session(metadata=(("authorization", f"Bearer {KEY}"),))


@pytest.mark.parametrize(
    "frames",
    [
        [frame(5, encoded("sleep")), frame(5, encoded("echo"))],
        [frame(5, encoded("sleep")), frame(4, encoded("echo"))],
        [frame(1, response=b"{}")],
        [frame(1, notification=b"{}")],
        [mcp_pb2.Frame(exchange=1)],
    ],
    ids=["used twice", "lower than before", "response", "notification", "empty"],
)
async def test_a_session_against_the_rules_ends(gateway: Gateway, frames: list[mcp_pb2.Frame]) -> None:
    async with raw_session(gateway) as session:
        await session.write(mcp_pb2.FrameBatch(frames=frames))
        assert await session.code() == grpc.StatusCode.INVALID_ARGUMENT
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"jsonrpc":"2.0","method":"tools/call"}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":null,"method":"x"}',
    ],
    ids=["empty", "no text", "batch", "notification", "deep", "null id"],
)
async def test_a_request_that_is_none_fails_alone(gateway: Gateway, request_bytes: bytes) -> None:
    async with raw_session(gateway) as session:
        await session.write(mcp_pb2.FrameBatch(frames=[frame(1, request_bytes), frame(2, encoded("echo"))]))
        received: dict[int, mcp_pb2.Frame] = {}
        while len(received) < 2:
            received |= {each.exchange: each for each in (await session.read()).frames}
        assert received[1].failure.code == "INVALID_INPUT" and received[2].HasField("response")


async def test_exchanges_of_a_session_are_bounded(gateway: Gateway) -> None:
    async with raw_session(gateway) as session:
        frames = [frame(number, encoded("sleep")) for number in range(1, MAX_EXCHANGES + 2)]
        await session.write(mcp_pb2.FrameBatch(frames=frames))
        (refused,) = (await session.read()).frames
        assert refused.exchange == MAX_EXCHANGES + 1 and refused.failure.code == QuotaExceeded.code
        await gateway.demo.wait_for(lambda demo: demo.under_way == MAX_EXCHANGES)
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_half_closing_lets_exchanges_end(gateway: Gateway) -> None:
    async with raw_session(gateway) as session:
        await session.write(mcp_pb2.FrameBatch(frames=[frame(1, encoded("echo"))]))
        await session.done_writing()
        assert (await session.read()).frames[0].HasField("response")
        assert await session.code() == grpc.StatusCode.OK

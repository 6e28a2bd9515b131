"""Calls that end at any moment leave nothing behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from paddock.mcp.upstreams.base import Upstream
from tests.integration.mcp.upstreams.legacy_server import LegacyCall, LegacyServer
from tests.integration.mcp.upstreams.sandbox_programs import INSIDE, LEGACY, STATELESS, ProgramSandbox, program_sandbox
from tests.integration.mcp.upstreams.scripted_server import (
    ADA,
    ScriptedServer,
    ask,
    call_tool,
    connected,
    json_result,
    messages_of,
    open_stream,
    result_of,
    scripted_server,
    send_event,
    text_result,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@pytest.fixture(scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProgramSandbox]:
    async with program_sandbox(tmp_path_factory.mktemp("programs")) as running:
        yield running


async def _cancel_at_any_moment(upstream: Upstream, context: Any, listening: Any) -> None:
    """Cancel many calls and subscriptions, and require that the connection is as before."""
    moments = random.Random(7)
    await result_of(upstream, call_tool("a"), context)
    # The first cancelled call may open a stream for notifications, which stays.
    await _cancel_after(0.05, messages_of(upstream, listening, context))
    await result_of(upstream, call_tool("a"), context)
    before = _own_tasks()
    requests = [call_tool("a", message_id=number, _meta={"progressToken": number}) for number in range(60)]
    requests += [listening.with_id(f"s{number}") for number in range(20)]
    calls = [_cancel_after(moments.random() / 10, messages_of(upstream, each, context)) for each in requests]
    await asyncio.gather(*calls)
    async with asyncio.timeout(20):
        while _own_tasks() > before:
            await asyncio.sleep(0.02)
    assert (await result_of(upstream, call_tool("a"), context))["content"][0]["text"] == "a"


async def _cancel_after(seconds: float, call: Any) -> None:
    task = asyncio.ensure_future(call)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _own_tasks() -> int:
    """Return the number of tasks, without tasks of the test's own server, which keeps idle connections."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return sum(not name.startswith("RequestHandler") for name in names)


LISTENING = ask("subscriptions/listen", "sub", notifications={"toolsListChanged": True})


async def test_requests_to_a_stateless_server(scripted: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        if message["method"] == "tools/list":
            return json_result(message, {"tools": [{"name": "a"}]})
        stream = await open_stream(request)
        own = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        if message["method"] == "subscriptions/listen":
            acknowledged = {"method": "notifications/subscriptions/acknowledged", "params": own}
            await send_event(stream, {"jsonrpc": "2.0"} | acknowledged)
            await asyncio.Event().wait()
        await asyncio.sleep(random.random() / 20)
        await send_event(stream, {"jsonrpc": "2.0", "id": message["id"], "result": text_result("a")})
        return stream

    scripted.answer = answer
    async with connected(scripted.url) as upstream:
        await _cancel_at_any_moment(upstream, ADA, LISTENING)


async def test_requests_in_a_session(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)

    async def on_call(call: LegacyCall) -> None:
        await asyncio.sleep(random.random() / 20)
        await call.finish("a")

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        await _cancel_at_any_moment(upstream, ADA, LISTENING)
        assert len(server.sessions) == 1
        ids = [message["id"] for _, message in server.received if "id" in message]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("source", [LEGACY, STATELESS], ids=["session", "stateless"])
async def test_requests_to_a_program(sandbox: ProgramSandbox, source: str) -> None:
    if source is STATELESS:
        source = source.replace("text(message, json.dumps(sorted(meta)), ", 'text(message, "a", ')
    async with sandbox.python(source) as upstream:
        await _cancel_at_any_moment(upstream, INSIDE, LISTENING)
        assert len(await sandbox.programs()) == 1

"""Clients of the HTTP+SSE transport of revision 2024-11-05 at a real server, before servers of both eras."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.types import ElicitRequestParams, ElicitResult

from tests.support.server import Server, eventually, run_server

from .reference_server import reference_server, view_of_one_era

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ExitStack() as held:
        direct = held.enter_context(reference_server())
        servers = [
            {"name": era, "url": held.enter_context(view_of_one_era(direct, era)), "hold_changes": False}
            for era in ("sessions", "stateless")
        ]
        sets = [{"name": "texts", "servers": {"stateless": {"rename": {"test_simple_text": "text"}}}}]
        settings = {"mcp": {"allow": ["127.0.0.1"], "servers": servers, "sets": sets}}
        yield held.enter_context(run_server(tmp_path_factory.mktemp("sse"), settings))


@asynccontextmanager
async def sse_session(server: Server, path: str, asked: list[str]) -> AsyncIterator[Client]:
    async def on_elicitation(context: object, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"username": "ada", "email": "a@b.example", "name": "Ada"})

    headers = {"Authorization": f"Bearer {server.key}"}
    transport = sse_client(f"{server.url}/mcp/{path}/sse", headers)
    async with Client(transport, mode="legacy", elicitation_callback=on_elicitation, read_timeout_seconds=30) as client:
        yield client


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize(
    ("path", "asking"), [("sessions", "test_elicitation"), ("stateless", "test_input_required_result_elicitation")]
)
async def test_the_sdk_uses_servers_of_both_eras(server: Server, path: str, asking: str) -> None:
    asked: list[str] = []
    async with sse_session(server, path, asked) as client:
        assert "simple text" in text_of(await client.call_tool("test_simple_text", {}))
        done: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            done.append(progress)

        result = await client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
        assert not result.is_error and done == sorted(done) and len(done) >= 3
        arguments = {"message": "Who are you?"} if path == "sessions" else {}
        assert "Ada" in text_of(await client.call_tool(asking, arguments)) or asked
        assert len(asked) == 1
        results = await asyncio.gather(*(client.call_tool("test_simple_text", {}) for _ in range(20)))
        assert len({text_of(each) for each in results}) == 1


async def test_the_sdk_uses_sets(server: Server) -> None:
    async with sse_session(server, "sets/texts", []) as client:
        assert "text" in {tool.name for tool in (await client.list_tools()).tools}
        assert "simple text" in text_of(await client.call_tool("text", {}))


def test_messages_need_the_key_of_the_stream(server: Server) -> None:
    with server.client() as client, client.stream("GET", "/mcp/sessions/sse") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: endpoint"
        address = next(lines).removeprefix("data: ")
        assert address.startswith("/mcp/sessions/messages?session_id=")
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        other_key = client.post("/v1/keys", json={"name": "other", "scopes": ["mcp:use"]}).json()["secret"]
        with server.client("") as nobody, server.client(other_key) as other:
            assert nobody.post(address, json=message).status_code == 401
            assert other.post(address, json=message).status_code == 404
        assert client.post(address, json=message, headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.post(address, json=message).status_code == 202
        assert client.get("/mcp/nothing/sse").status_code == 404

    def is_over() -> bool:
        with server.client() as again:
            return again.post(address, json=message).status_code == 404

    eventually(is_over)


def test_streams_end_with_their_key(server: Server) -> None:
    with server.client() as owner:
        key = owner.post("/v1/keys", json={"name": "short", "scopes": ["mcp:use"]}).json()
        with server.client(key["secret"]) as client, client.stream("GET", "/mcp/sessions/sse") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: endpoint"
            assert owner.delete(f"/v1/keys/{key['id']}").status_code < 300
            began = time.monotonic()
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
            assert time.monotonic() - began < 10


def test_open_streams_do_not_delay_the_end_of_the_server(server: Server) -> None:
    with server.client() as client, client.stream("GET", "/mcp/sessions/sse") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: endpoint"
        assert server.stop(timeout=20) == 0
        assert not [line for line in lines if line.startswith("event: ")]

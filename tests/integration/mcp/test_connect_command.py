"""`paddock mcp connect`: MCP clients of both eras on standard input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.mcp_edge_client import stateless_message
from tests.support.server import PADDOCK_COMMAND, Server, eventually, run_server

from .upstream_servers import Servers, mcp_servers

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}},
}
WAIT = {"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}}


@pytest.fixture(scope="module")
def upstreams() -> Iterator[Servers]:
    with mcp_servers() as servers:
        yield servers


@pytest.fixture(scope="module")
def server(upstreams: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("connect"), settings_for(upstreams)) as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh(upstreams: Servers) -> None:
    upstreams.proceed.clear()
    upstreams.client_left.clear()


def settings_for(upstreams: Servers) -> dict[str, Any]:
    servers = [{"name": "calc", "url": upstreams.calculator}]
    return {"mcp": {"allow": ["127.0.0.1"], "servers": servers}}


def command(server: Server, *words: str) -> StdioServerParameters:
    return StdioServerParameters(command=str(PADDOCK_COMMAND), args=["mcp", "connect", *words], env=environment(server))


def environment(server: Server) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(server.data.parent),
        "PADDOCK_URL": server.url,
        "PADDOCK_API_KEY": server.key,
    }


class Conversation:
    """A raw conversation with the command."""

    def __init__(self, server: Server, *words: str) -> None:
        self.process = subprocess.Popen(
            [PADDOCK_COMMAND, "mcp", "connect", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(server),
        )  # fmt: skip

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.receive()

    def end(self) -> tuple[list[Any], str]:
        """Close the input; return the rest of the output, and what the command said beside."""
        output, errors = self.process.communicate(timeout=30)
        return [json.loads(line) for line in output.splitlines()], errors.decode()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.anyio
async def test_the_sdk_uses_the_command(server: Server, mode: Literal["auto", "legacy"]) -> None:
    async with Client(stdio_client(command(server, "calc")), mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"add", "count", "wait"}
        done: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            done.append(progress)

        assert not (await client.call_tool("count", {"to": 3}, progress_callback=on_progress)).is_error
        assert done == [1, 2, 3]


def test_all_servers_are_one_without_a_name(server: Server) -> None:
    talk = Conversation(server)
    names = [tool["name"] for tool in talk.ask(stateless_message("tools/list", {}))["result"]["tools"]]
    assert names == ["calc_add", "calc_count", "calc_wait"]
    assert talk.end() == ([], "") and talk.process.returncode == 0


def test_stateless_requests_are_cancelled_by_notification(server: Server, upstreams: Servers) -> None:
    talk = Conversation(server, "calc")
    talk.send(stateless_message("tools/call", {"name": "wait"}, 5, progressToken=1))
    assert talk.receive()["method"] == "notifications/progress"
    talk.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
    eventually(upstreams.client_left.is_set)
    assert talk.ask(stateless_message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 6))["id"] == 6
    assert talk.end() == ([], "")


def test_requests_of_sessions_are_cancelled_by_notification(server: Server, upstreams: Servers) -> None:
    talk = Conversation(server, "calc")
    assert talk.ask(INITIALIZE)["result"]["serverInfo"]["name"] == "calculator"
    talk.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    talk.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": WAIT})
    assert talk.receive()["method"] == "notifications/progress"
    talk.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
    eventually(upstreams.client_left.is_set)
    assert talk.ask({"jsonrpc": "2.0", "id": 6, "method": "ping"}) == {"jsonrpc": "2.0", "id": 6, "result": {}}
    assert talk.end() == ([], "")


def test_requests_under_way_are_answered_after_the_end_of_the_input(server: Server) -> None:
    talk = Conversation(server, "calc")
    talk.send(stateless_message("tools/call", {"name": "add", "arguments": {"a": 40, "b": 2}}, 1))
    ((answer,), _) = talk.end()
    assert answer["result"]["content"][0]["text"] == "42"


def test_garbage_and_unknown_servers_are_errors_of_the_protocol(server: Server) -> None:
    talk = Conversation(server, "nothing")
    for line in (b"{", b"\xff\xfe", b"[]", b"[" * 100_000):
        assert talk.ask(line)["error"]["code"] == -32700
    unknown = talk.ask(stateless_message("tools/list", {}, "a"))
    assert unknown["id"] == "a" and "There is no MCP server 'nothing'" in unknown["error"]["message"]
    talk.end()


def test_sessions_survive_a_restart_of_the_gateway(upstreams: Servers, tmp_path: Path) -> None:
    server = Server(tmp_path / "data", settings_for(upstreams)).start()
    try:
        talk = Conversation(server, "calc")
        talk.ask(INITIALIZE)
        talk.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        talk.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": WAIT})
        assert talk.receive()["method"] == "notifications/progress"
        port = int(server.url.rpartition(":")[2])
        server.stop(signal.SIGKILL)
        server.start(port)
        lost = talk.receive()
        assert lost["id"] == 1 and "the connection was lost during the request" in lost["error"]["message"]
        added = {"name": "add", "arguments": {"a": 40, "b": 2}}
        answer = talk.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": added})
        assert answer["result"]["content"][0]["text"] == "42"
        talk.end()
    finally:
        server.stop()

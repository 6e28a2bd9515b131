"""OpenSandbox's MCP server, spoken to over its standard input and output."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.opensandbox.conftest import IMAGE
from tests.contract.opensandbox.peers import peer
from tests.support.server import Server

MCP = peer("opensandbox-mcp")


class Tools:
    """A client that speaks JSON-RPC, one message a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._ids = itertools.count(1)

    def request(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == number:
                return message["result"]
        raise AssertionError("the MCP server has ended")

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def call(self, name: str, **arguments: Any) -> Any:
        result = self.request("tools/call", name=name, arguments=arguments)
        assert not result.get("isError"), result
        structured = result.get("structuredContent")
        return structured if structured is not None else result["content"]


@pytest.fixture(scope="module")
def tools(server: Server) -> Iterator[Tools]:
    process = subprocess.Popen(
        [MCP, "--api-key", server.key, "--domain", server.domain],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
    )
    with process:
        client = Tools(process)
        client.request(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "test", "version": "1"},
        )
        client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()


def test_every_mcp_tool_works(tools: Tools) -> None:
    names = {tool["name"] for tool in tools.request("tools/list")["tools"]}
    assert {"sandbox_create", "command_run", "file_read"} <= names
    sandbox = tools.call("sandbox_create", image=IMAGE, metadata={"by": "mcp"})["sandbox_id"]
    done = tools.call("command_run", sandbox_id=sandbox, command="echo hello; exit 2")
    assert "hello" in json.dumps(done)
    tools.call("file_create_directories", sandbox_id=sandbox, entries=[{"path": "/tmp/m"}])
    tools.call("file_write", sandbox_id=sandbox, path="/tmp/m/a.txt", content="one two")
    assert "one two" in json.dumps(tools.call("file_read", sandbox_id=sandbox, path="/tmp/m/a.txt"))
    replacements = [{"path": "/tmp/m/a.txt", "old_content": "two", "new_content": "three"}]
    tools.call("file_replace_contents", sandbox_id=sandbox, entries=replacements)
    tools.call("file_move", sandbox_id=sandbox, entries=[{"src": "/tmp/m/a.txt", "dest": "/tmp/m/b.txt"}])
    assert "b.txt" in json.dumps(tools.call("file_search", sandbox_id=sandbox, path="/tmp/m", pattern="*.txt"))
    assert "one three" in json.dumps(tools.call("file_read", sandbox_id=sandbox, path="/tmp/m/b.txt"))
    tools.call("file_delete", sandbox_id=sandbox, paths=["/tmp/m/b.txt"])
    tools.call("file_delete_directories", sandbox_id=sandbox, paths=["/tmp/m"])
    assert "Running" in json.dumps(tools.call("sandbox_get_info", sandbox_id=sandbox))
    assert sandbox in json.dumps(tools.call("sandbox_list"))
    tools.call("sandbox_renew", sandbox_id=sandbox, timeout_seconds=1200)
    tools.call("sandbox_get_metrics", sandbox_id=sandbox)
    tools.call("sandbox_healthcheck", sandbox_id=sandbox)
    assert "127.0.0.1" in json.dumps(tools.call("sandbox_get_endpoint", sandbox_id=sandbox, port=8000))
    tools.call("sandbox_kill", sandbox_id=sandbox)

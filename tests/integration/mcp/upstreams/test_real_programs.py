"""Published MCP servers as programs in a sandbox: with sessions from npm, stateless from PyPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mcp.upstreams.sandbox_programs import INSIDE, ProgramSandbox, program_sandbox
from tests.integration.mcp.upstreams.scripted_server import ask, call_tool, messages_of, result_of

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[4]
EVERYTHING = ROOT / ".make/clis/node_modules"
PEERS = ROOT / ".venv-peers"
CLIENT: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "roots": {}}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProgramSandbox]:
    node = (ROOT / ".make/clis/bin/node").resolve()
    mounts = [EVERYTHING, PEERS] + ([] if node.is_relative_to("/usr") else [node.parent])
    async with program_sandbox(tmp_path_factory.mktemp("real"), mounts) as running:
        yield running


async def _names(upstream: Any) -> set[str]:
    return {tool["name"] for tool in (await result_of(upstream, ask("tools/list"), INSIDE))["tools"]}


async def test_the_reference_server_with_sessions(sandbox: ProgramSandbox) -> None:
    node = str((ROOT / ".make/clis/bin/node").resolve())
    program = str(EVERYTHING / "@modelcontextprotocol/server-everything/dist/index.js")
    async with sandbox.server(node, program, "stdio") as upstream:
        assert {"echo", "get-sum"} <= await _names(upstream)
        assert (await result_of(upstream, ask("prompts/list"), INSIDE))["prompts"]
        request = call_tool(
            "trigger-long-running-operation", {"duration": 0.2, "steps": 2}, "mine", _meta={"progressToken": "t"}
        )
        *progress, response = await messages_of(upstream, request, INSIDE)
        assert (len(progress), response.id) == (2, "mine")
        asked = await result_of(upstream, call_tool("trigger-elicitation-request", _meta=CLIENT), INSIDE)
        [(key, wanted)] = asked["inputRequests"].items()
        assert wanted["method"] == "elicitation/create"
        more = {"requestState": asked["requestState"], "inputResponses": {key: {"action": "decline"}}}
        request = call_tool("trigger-elicitation-request", None, 9, _meta=CLIENT, **more)
        assert "declined" in (await result_of(upstream, request, INSIDE))["content"][0]["text"]


async def test_stateless_servers(sandbox: ProgramSandbox) -> None:
    created = await sandbox.client.run("git init -q /tmp/repository && cd /tmp/repository && touch a")
    assert created.exit_code == 0
    commands: dict[str, tuple[list[str], str]] = {
        "mcp-server-time": (["--local-timezone", "UTC"], "get_current_time"),
        "mcp-server-git": (["--repository", "/tmp/repository"], "git_status"),
        "mcp-server-fetch": ([], "fetch"),
    }
    for name, (arguments, tool) in commands.items():
        async with sandbox.server(str(PEERS / "bin/python"), str(PEERS / "bin" / name), *arguments) as upstream:
            found = await result_of(upstream, ask("server/discover"), replace(INSIDE, client_session="1"))
            assert found["supportedVersions"], name
            assert tool in await _names(upstream)
            if tool == "get_current_time":
                result = await result_of(upstream, call_tool(tool, {"timezone": "UTC"}), INSIDE)
                assert "UTC" in result["content"][0]["text"]
            elif tool == "git_status":
                result = await result_of(upstream, call_tool(tool, {"repo_path": "/tmp/repository"}), INSIDE)
                assert "Untracked" in result["content"][0]["text"]
            assert upstream.state.status == "ready"

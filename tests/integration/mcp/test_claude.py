"""The real claude-code in a real sandbox, with no network but a scripted model and one MCP server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.app.server import build_server
from paddock.config.schema import Config
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.mcp.declared_servers import mcp_server_url, mcp_servers_extension
from paddock.model.mcp import McpServer
from paddock.sandbox.daemon.client import SandboxCommand

from ..fleet.conftest import data
from .upstream_servers import mcp_servers

__all__ = ["data"]
pytestmark = pytest.mark.anyio
INSTALLED = Path(__file__).parents[3] / ".make/clis/node_modules/@anthropic-ai"
TOKEN = "token-that-no-box-sees"
SCRIPT = """
turns:
  - call: {tool: add, arguments: {a: 2, b: 40}}
  - when: {tool: "42"}
    do: [{say: "The tool says {{ tool.output }}."}]
otherwise: {say: This was not to be said.}
"""


async def test_claude_uses_tool_of_declared_server(data: Path) -> None:
    if not INSTALLED.exists():
        pytest.fail("claude is not installed; run `make setup-test`")
    config = Config.model_validate(
        {
            "data": data,
            "sandboxes": {"default_image": "host", "min_free_disk": 0, "allowed_host_paths": [INSTALLED]},
            "runs": {"secrets": {"TOKEN": TOKEN}},
            "mcp": {"allow": ["127.0.0.1"]},
        }
    )
    with mcp_servers() as servers:
        async with build_server(config) as paddock:
            calc = McpServer(name="calc", url=servers.calculator, headers={"Authorization": "Bearer ${TOKEN}"})
            paddock.gateway.routes.run_scripts.add("run-1", SCRIPT, "me")
            paddock.gateway.run_traffic.start_counting("run-1", "me")
            sandbox_extensions = {
                "paddock.llm.run": "run-1",
                "paddock.llm.models": "script-run-1",
                **mcp_servers_extension([calc]),
            }
            volume = VolumeRequest(name="clis", host_path=str(INSTALLED), target="/clis", read_only=True)
            sandbox = await paddock.fleet.create("me", SandboxRequest(extensions=sandbox_extensions, volumes=(volume,)))
            inside = await paddock.fleet.running_client("me", sandbox.id)
            servers_file = json.dumps({"mcpServers": {"calc": {"type": "http", "url": mcp_server_url("calc")}}})
            words = [
                "/clis/claude-code-linux-x64/claude", "-p", "Add 2 and 40 with the tool.", "--output-format",
                "stream-json", "--verbose", "--dangerously-skip-permissions", "--model", "script-run-1",
                "--mcp-config", servers_file, "--strict-mcp-config",
            ]  # fmt: skip
            quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
            done = await inside.run(SandboxCommand(words, env=quiet, timeout=60))
            traffic = paddock.gateway.run_traffic.traffic_of("run-1")
    output = done.stdout.decode()
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert events and events[-1].get("result") == 'The tool says {"result":42}.', output + done.stderr.decode()
    (began,) = [event for event in events if event.get("subtype") == "init"]
    assert [(each["name"], each["status"]) for each in began["mcp_servers"]] == [("calc", "connected")]
    assert {each["headers"]["authorization"] for each in servers.seen} == {f"Bearer {TOKEN}"}
    assert TOKEN not in output
    assert (traffic.failed, traffic.scripted) == (0, True) and traffic.requests >= 2

"""Agents of tasks use MCP servers of each kind through the gateway, on a scripted model.

The five agents and a published MCP server are in one image, which is built the first time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from anyio.from_thread import start_blocking_portal
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from tests.integration.runs.agent_images import FinishedRun, RunCommandResult, paddock_run, share_images
from tests.support.http_proxy import HttpProxy
from tests.support.server import Server, run_server

from .published_servers import ROOT, everything_server
from .upstream_servers import serve_app

pytestmark = pytest.mark.timeout(1500)
IMAGE = "agents-and-mcp-servers"
AGENTS = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini-cli": "@google/gemini-cli",
    "opencode": "opencode-ai",
    "qwen-code": "@qwen-code/qwen-code",
}
MEMORY = "@modelcontextprotocol/server-memory"
SLOW_START = ["sh", "-c", "sleep 6; exec mcp-server-memory"]
"""Some agents would begin without the tools of a server that takes longer than one or five seconds."""
PUBLIC = "8.8.8.8"
"""A public address; the proxy leads it to this machine."""


def _noted(name: str) -> dict[str, Any]:
    """Return a step of the script that keeps the last tool's result in the program's memory."""
    entity = {"name": name, "entityType": "result", "observations": ["{{ tool.output }}"]}
    return {"call": {"tool": "*create_entities", "arguments": {"entities": [entity]}}}


WANTED = "select:mcp__shared__get-sum,mcp__notes__create_entities,mcp__public__multiply"
SCRIPT = {
    "turns": [
        # qwen-code gives the model only the names of MCP tools, and loads the tools that the model requests.
        {"when": {"offers": "tool_search"}, "do": [{"call": {"tool": "tool_search", "arguments": {"query": WANTED}}}]},
        {"call": {"tool": "*get?sum", "arguments": {"a": 2, "b": 40}}},
        _noted("sum"),
        {"call": {"tool": "*multiply", "arguments": {"a": 6, "b": 700}}},
        _noted("product"),
        {"say": "Both results are kept."},
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("agents")
    share_images(directory / "data", [IMAGE], _recipes(directory / "recipes"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    authority.issue_cert(PUBLIC).private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")
    proxy = HttpProxy()
    with ExitStack() as held:
        shared = held.enter_context(everything_server("sse", directory / "everything.log"))
        port = held.enter_context(serve_app(_public_app(), ssl_certfile=directory / "server.pem"))
        proxy.routes[f"{PUBLIC}:443"] = port
        portal = held.enter_context(start_blocking_portal())
        held.enter_context(portal.wrap_async_context_manager(proxy.serving()))
        servers = [
            {"name": "shared", "url": shared, "transport": "sse"},
            {"name": "public", "kind": "internet", "url": f"https://{PUBLIC}/mcp"},
        ]
        settings = {
            "mcp": {"servers": servers, "allow": ["127.0.0.1"]},
            "outgoing": {"proxy": proxy.url, "ca_bundle": str(directory / "ca.pem")},
            "images": {"recipes": [str(directory / "recipes")]},
        }
        yield held.enter_context(run_server(directory, settings))
        assert set(proxy.requests) == {f"CONNECT {PUBLIC}:443 HTTP/1.1"}


def _recipes(directory: Path) -> Path:
    """Write the recipe of the image, with the versions that the other tests use."""
    declared = json.loads((ROOT / "tests/clis/package.json").read_text())
    versions = {**declared["dependencies"], **declared["devDependencies"]}
    packages = [f"{package}@{versions[package]}" for package in (*AGENTS.values(), MEMORY)]
    directory.mkdir()
    recipe = {"description": "The agents, and an MCP server.", "base": "agent-base", "npm": packages}
    (directory / f"{IMAGE}.yaml").write_text(json.dumps(recipe))
    return directory


def _public_app() -> Any:
    """Return a server of both eras, which accepts the name under which the proxy reaches it."""
    server = MCPServer("public")

    @server.tool()
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    return server.streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )


@pytest.fixture(scope="module")
def runs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> RunCommandResult:
    """One task of each agent, with a server of each kind, run by one command."""
    directory = tmp_path_factory.mktemp("tasks")
    (directory / "tools.script.yaml").write_text(json.dumps(SCRIPT))
    files = []
    for agent in AGENTS:
        memory = {
            "name": "notes",
            "command": SLOW_START,
            "env": {"MEMORY_FILE_PATH": "/workspace/notes.jsonl"},
        }
        task = {
            "name": agent,
            "agent": agent,
            "image": IMAGE,
            "goal": "Compute with the tools, and note the results.",
            "llm": {"model": "script", "script": "tools.script.yaml"},
            "mcp": ["shared", "public", memory],
            "end": {"timeout": "2m"},
            "deliverables": ["notes.jsonl"],
        }
        files.append(directory / f"{agent}.json")
        files[-1].write_text(json.dumps(task))
    return paddock_run(server, files, parallel=3)


@pytest.mark.parametrize("agent", AGENTS)
class TestEachAgent:
    @pytest.fixture
    def done(self, runs: RunCommandResult, agent: str) -> FinishedRun:
        done = runs[agent]
        assert done.run["state"] == "succeeded", json.dumps(done.result)
        return done

    def test_results_are_in_the_deliverable(self, done: FinishedRun) -> None:
        notes = [json.loads(line) for line in done.delivered("notes.jsonl").splitlines()]
        texts = {note["name"]: " ".join(note["observations"]) for note in notes}
        assert "The sum of 2 and 40 is 42." in texts["sum"] and "4200" in texts["product"]

    def test_run_folder_has_the_calls(self, done: FinishedRun, agent: str) -> None:
        calls = [json.loads(line) for line in (done.folder / "mcp.jsonl").read_text().splitlines()]
        expected = [("shared", "get-sum"), ("notes", "create_entities"), ("public", "multiply")]
        expected.append(("notes", "create_entities"))
        assert [(each["server"], each["target"]) for each in calls] == expected
        assert {(each["outcome"], each["agent"], each["origin"]) for each in calls} == {("ok", agent, "sandbox")}
        assert "4200" in calls[2]["result"]

    def test_events_have_calls_and_results(self, done: FinishedRun) -> None:
        results = {each["id"]: each for each in done.event_data("tool_result")}
        calls = [results[each["id"]] for each in done.event_data("tool_call") if each["name"] != "tool_search"]
        assert len(calls) == 4 and not any(each["failed"] for each in results.values())
        assert "4200" in calls[2]["text"]
        assert done.event_data("error") == []

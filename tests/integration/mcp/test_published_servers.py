"""Nine published MCP servers, used through the gateway by the clients that people use."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.agents.chat_client import CODE, Chat, call, scripted, text_of
from tests.support.server import PADDOCK_COMMAND, Server, run_in_sandbox, run_server

from .published_servers import CLIS, MODULES, PREPARATION, VENVS, everything_server, published_servers

pytestmark = pytest.mark.anyio
NODE = (CLIS / "bin/node").resolve()
NODE_22 = MODULES / f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}/bin/node"
INSPECTOR = MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
PROGRAMS = published_servers(str(NODE))
SHARED = ("everything-http", "everything-sse")
Mode = Literal["auto", "legacy"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("published")
    with ExitStack() as held:
        urls = {
            "http": held.enter_context(everything_server("streamableHttp", directory / "http.log")),
            "sse": held.enter_context(everything_server("sse", directory / "sse.log")),
        }
        servers: list[dict[str, Any]] = [
            {"name": f"everything-{transport}", "url": url, "transport": transport} for transport, url in urls.items()
        ]
        servers += [{"name": name, "command": each.command, "env": dict(each.env)} for name, each in PROGRAMS.items()]
        sets = [
            {
                "name": "desk",
                "servers": {
                    "everything-http": {"allow": ["echo"], "rename": {"echo": "repeat"}},
                    "sqlite": {"deny": ["*insight*"]},
                },
            }
        ]
        steps = [call("everything-sse_get-sum", a=2, b=40), call("everything-sse_toggle-simulated-logging")]
        tries = {"turns": [*steps, {"say": "Done."}]}
        settings = {
            "llm": scripted(directory, tries=tries),
            "kinds": CODE,
            "mcp": {"allow": ["127.0.0.1"], "servers": servers, "sets": sets},
            "sandboxes": {"allowed_host_paths": [str(path) for path in _mounted()]},
        }
        yield held.enter_context(run_server(directory, settings))


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> str:
    """A sandbox with the packages at their own paths."""
    volumes = [
        {"name": f"v{number}", "host": {"path": str(path)}, "mountPath": str(path), "readOnly": True}
        for number, path in enumerate(_mounted())
    ]
    made = client.post("/v1/sandboxes", json={"image": {"uri": "host"}, "volumes": volumes})
    assert made.status_code == 202, made.text
    identifier: str = made.json()["id"]
    assert run_in_sandbox(client, identifier, f"cd /workspace && {PREPARATION}")[1] == 0
    return identifier


@asynccontextmanager
async def connected(server: Server, path: str, mode: Mode = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {server.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{server.url}/mcp{path}", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_clients_of_both_eras_use_programs_in_a_sandbox(
    server: Server, sandbox: str, name: str, mode: Mode
) -> None:
    async with connected(server, f"/{name}?sandbox={sandbox}", mode) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == PROGRAMS[name].size
        for tool, arguments, expected in PROGRAMS[name].calls:
            result = await client.call_tool(tool, dict(arguments))
            assert expected in str(result.content), (tool, result)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("name", SHARED)
async def test_clients_of_both_eras_use_a_server_over_http(server: Server, name: str, mode: Mode) -> None:
    async with connected(server, f"/{name}", mode) as client:
        assert len((await client.list_tools()).tools) == 13
        done: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            done.append(progress)

        arguments = {"duration": 0.2, "steps": 2}
        result = await client.call_tool("trigger-long-running-operation", arguments, progress_callback=on_progress)
        assert not result.is_error and done == [1, 2]
        resources = (await client.list_resources()).resources
        assert (await client.read_resource(str(resources[0].uri))).contents
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert "simple-prompt" in prompts and (await client.get_prompt("simple-prompt")).messages
        picture = await client.call_tool("get-tiny-image", {})
        assert [part.type for part in picture.content] == ["text", "image", "text"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_all_servers_are_one(server: Server, sandbox: str, mode: Mode) -> None:
    async with connected(server, f"?sandbox={sandbox}", mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert len(names) == len(set(names)) == sum(each.size for each in PROGRAMS.values()) + 2 * 13
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
        for name in ("everything_get-sum", "everything-http_get-sum", "everything-sse_get-sum"):
            assert "42" in str((await client.call_tool(name, {"a": 2, "b": 40})).content), name
        assert "UTC" in str((await client.call_tool("time_get_current_time", {"timezone": "UTC"})).content)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_set_offers_its_tools_under_its_names(server: Server, sandbox: str, mode: Mode) -> None:
    async with connected(server, f"/sets/desk?sandbox={sandbox}", mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"repeat", *(f"sqlite_{name}" for name in SQLITE_TOOLS - {"append_insight"})}
        assert "Echo: hi" in str((await client.call_tool("repeat", {"message": "hi"})).content)
        assert "sqlite_master" not in str((await client.call_tool("sqlite_list_tables", {})).content)


SQLITE_TOOLS = {"read_query", "write_query", "create_table", "list_tables", "describe_table", "append_insight"}


def test_the_inspector_lists_and_calls_tools(server: Server, sandbox: str) -> None:
    listed = _inspect(server, f"/git?sandbox={sandbox}", "--method", "tools/list")
    assert len(listed["tools"]) == PROGRAMS["git"].size
    called = _inspect(
        server, "/everything-sse", "--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "b=40"
    )
    assert "42" in called["content"][0]["text"]
    read = _inspect(server, "/everything-http", "--method", "resources/list")
    assert read["resources"]


def _inspect(server: Server, path: str, *words: str) -> Any:
    command = [
        str(NODE_22), str(INSPECTOR), "--cli", f"{server.url}/mcp{path}", "--transport", "http",
        "--header", f"Authorization: Bearer {server.key}", *words,
    ]  # fmt: skip
    env = {"PATH": os.environ["PATH"], "HOME": str(server.data.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_standard_streams_reach_programs_in_a_sandbox(server: Server, sandbox: str, mode: Mode) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(server.data.parent),
        "PADDOCK_URL": server.url,
        "PADDOCK_API_KEY": server.key,
    }
    words = ["mcp", "connect", "filesystem", "--sandbox", sandbox]
    parameters = StdioServerParameters(command=str(PADDOCK_COMMAND), args=words, env=env)
    async with Client(stdio_client(parameters), mode=mode) as client:
        assert len((await client.list_tools()).tools) == PROGRAMS["filesystem"].size
        listed = await client.call_tool("list_directory", {"path": "/workspace"})
        assert "repository" in str(listed.content)


def test_a_chat_calls_a_tool_after_approval(server: Server, client: httpx.Client) -> None:
    chat = Chat.create(client, model="tries", agent="langgraph", kinds=["code"], mcp=["everything-sse"])
    chat.send_message("Add, and start the log.")
    # The server declares that the first tool changes nothing, so that it needs no approval.
    approval = chat.wait_for_event(lambda event: event["type"] == "approval.required")["data"]["approval"]
    assert "toggle-simulated-logging" in str(approval)
    assert _targets(client, chat) == ["get-sum"]
    assert chat.decide({"action": "approve"}, approval=approval).status_code == 200
    assert chat.wait_for_turn_end() == "done"
    results = chat.results_by_tool()
    assert "The sum of 2 and 40 is 42." in text_of(results["everything-sse_get-sum"])
    assert "logging" in text_of(results["everything-sse_toggle-simulated-logging"])
    assert sorted(_targets(client, chat)) == ["get-sum", "toggle-simulated-logging"]


def _targets(client: httpx.Client, chat: Chat) -> list[str]:
    records = client.get("/v1/mcp/calls", params={"session": chat.id}).json()["items"]
    assert all(each["outcome"] == "ok" for each in records)
    return [each["target"] for each in records]


def test_sandboxes_in_addresses_are_checked(server: Server, client: httpx.Client) -> None:
    def status(query: str) -> tuple[int, str]:
        found = client.get(f"/mcp/time?{query}")
        return found.status_code, found.text

    assert status("sandbox=sb-nothing")[0] == 404
    assert status("sandbox=a&sandbox=b") == (400, status("sandbox=a&sandbox=b")[1])
    assert status("&".join(["a=b"] * 200))[0] == 400
    code, text = status("")
    assert code == 409 and "it runs in a sandbox" in text


def _mounted() -> list[Path]:
    return [MODULES, *VENVS.values(), *([] if NODE.is_relative_to("/usr") else [NODE.parent])]

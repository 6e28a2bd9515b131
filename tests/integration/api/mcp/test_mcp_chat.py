"""Chats use tools of MCP servers under the same approvals as tools of sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.agents.chat_client import CODE, SERVER_SIDE, Chat, call, scripted, text_of
from tests.integration.api.mcp.changing_server import ChangingServer, changing_server
from tests.support.server import Server, run_server

PROGRAM = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method = request["method"]
    result = {"resultType": "complete", "ttlMs": 60000, "cacheScope": "public"}
    if method == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result["tools"] = [{"name": "where", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
    elif method == "tools/call":
        import os
        result = {"resultType": "complete", "content": [{"type": "text", "text": "in " + os.getcwd()}]}
    else:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ChangingServer]:
    with changing_server() as running:
        running.tools["look"] = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: ChangingServer) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("chat")
    models = scripted(
        directory,
        looks={"turns": [call("tracker_look", at="page"), {"say": "Done."}]},
        adds={"turns": [call("tracker_add", a=1), {"say": "Done."}]},
        near={"turns": [call("near_where"), {"say": "Done."}]},
    )
    servers = [
        {"name": "tracker", "url": upstream.url},
        {"name": "near", "command": ["python3", "-c", PROGRAM]},
    ]
    host = upstream.url.removeprefix("http://").removesuffix("/mcp")
    with run_server(directory, {"llm": models, "kinds": CODE, "mcp": {"servers": servers, "allow": [host]}}) as running:
        yield running


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_a_tool_that_changes_nothing_is_called_at_once(
    client: httpx.Client, upstream: ChangingServer, engine: str
) -> None:
    chat = Chat.create(client, model="looks", agent=engine, kinds=["code"])
    chat.send_message("Look.")
    assert chat.wait_for_turn_end() == "done"
    assert text_of(chat.results_by_tool()["tracker_look"]) == '{"at": "page"}'
    found = client.get("/v1/mcp/calls", params={"session": chat.id}).json()["items"]
    assert [(each["target"], each["origin"], each["agent"]) for each in found] == [("look", "chat", engine)]
    # Nothing of it needs a sandbox.
    assert chat.load_session()["sandboxes"] == {}


def test_a_tool_that_may_change_something_waits_for_approval(client: httpx.Client, upstream: ChangingServer) -> None:
    chat = Chat.create(client, model="adds", agent="langgraph", kinds=["code"], mcp=["tracker"])
    chat.send_message("Add.")
    approval = chat.wait_for_event(lambda event: event["type"] == "approval.required")["data"]["approval"]
    assert "tracker_add" in str(approval)
    calls = len(upstream.calls)
    assert chat.decide({"action": "approve"}, approval=approval).status_code == 200
    assert chat.wait_for_turn_end() == "done"
    assert len(upstream.calls) == calls + 1
    assert text_of(chat.results_by_tool()["tracker_add"]) == '{"a": 1}'


def test_a_session_uses_only_the_servers_that_it_names(client: httpx.Client, upstream: ChangingServer) -> None:
    chat = Chat.create(client, model="looks", agent="langgraph", kinds=["code"], mcp=[])
    chat.send_message("Look.")
    calls = len(upstream.calls)
    assert chat.wait_for_turn_end() == "failed"  # The script's model does not find the tool.
    assert len(upstream.calls) == calls
    refused = client.post("/v1/sessions", json={"mcp": ["nowhere"]})
    assert refused.status_code == 400 and "no MCP server 'nowhere'; available: near, tracker" in refused.text


def test_programs_run_in_the_sandbox_of_the_chat(client: httpx.Client) -> None:
    chat = Chat.create(client, model="near", agent="langgraph", kinds=["code"], mcp=["near"])
    chat.send_message("Where?")
    assert chat.wait_for_turn_end() == "done"
    assert text_of(chat.results_by_tool()["near_where"]).startswith("in /")
    sandbox = chat.load_session()["sandboxes"]["code"]
    # Its programs cannot call tools past the approvals of the chat.
    ask = "import urllib.request as u; u.urlopen('http://127.0.0.1:8422/near', b'{}', timeout=10)"
    body = {"command": f'python3 -c "{ask}"'}
    refused = client.post(f"/v1/sandboxes/{sandbox}/tools/run_shell_command", json=body)
    assert "URLError" in refused.text or "RemoteDisconnected" in refused.text or "ConnectionReset" in refused.text
    client.delete(chat.path)

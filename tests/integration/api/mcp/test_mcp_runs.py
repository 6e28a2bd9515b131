"""Tasks that name MCP servers: their programs reach them, and the run's folder has the calls."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.api.mcp.changing_server import ChangingServer, changing_server
from tests.support.server import Server, eventually, run_server

CALL = """
import json, urllib.request
def ask(path, method, params):
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method,
    }
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    request = urllib.request.Request("http://127.0.0.1:8422/" + path, json.dumps(body).encode(), headers)
    return urllib.request.urlopen(request).read().decode()
print(ask("tracker", "tools/call", {"name": "add", "arguments": {"a": 1}}))
print(ask("", "tools/list", {}))
print(ask("", "tools/call", {"name": "tracker_add", "arguments": {"a": 2}}))
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ChangingServer]:
    with changing_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: ChangingServer) -> Iterator[Server]:
    host = upstream.url.removeprefix("http://").removesuffix("/mcp")
    servers = [{"name": "tracker", "url": upstream.url, "access": {"agents": ["script"]}}]
    with run_server(tmp_path_factory.mktemp("runs"), {"mcp": {"allow": [host], "servers": servers}}) as running:
        yield running


def test_a_task_names_a_declared_server(server: Server, client: httpx.Client, upstream: ChangingServer) -> None:
    task = {"name": "sum", "goal": "Add.", "image": "host", "entrypoint": ["python3", "-c", CALL], "mcp": ["tracker"]}
    started = client.post("/v1/runs", json={"task": task})
    assert started.status_code in (201, 202), started.text
    run = started.json()["runs"][0]["id"] if "runs" in started.json() else started.json()["items"][0]["id"]
    eventually(lambda: client.get(f"/v1/runs/{run}").json()["state"] in ("succeeded", "failed"), 60)
    ended = client.get(f"/v1/runs/{run}").json()
    assert ended["state"] == "succeeded", ended
    assert [each["arguments"] for each in upstream.calls] == [{"a": 1}, {"a": 2}]
    lines = (server.data / "runs" / run / "mcp.jsonl").read_text().splitlines()
    assert [json.loads(line)["target"] for line in lines] == ["add", "add"]
    assert json.loads(lines[0])["agent"] == "script" and '"a": 1' in json.loads(lines[0])["result"].replace("\\", "")
    found = client.get("/v1/mcp/calls", params={"run": run}).json()["items"]
    assert [each["origin"] for each in found] == ["sandbox", "sandbox"]
    events = client.get(f"/v1/runs/{run}/events", headers={"Accept": "application/json"}, params={"limit": 1000})
    assert "mcp.called" in events.text


def test_an_unknown_name_is_refused_before_the_run(client: httpx.Client) -> None:
    task = {"name": "sum", "goal": "Add.", "image": "host", "entrypoint": ["true"], "mcp": ["nowhere"]}
    refused = client.post("/v1/runs", json={"task": task})
    assert refused.status_code == 400 and "no MCP server 'nowhere'; available: tracker" in refused.text

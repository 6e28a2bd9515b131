"""Tasks with MCP servers that are programs in their sandbox: the gateway starts them, and records their calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.app.server import PaddockServer
from paddock.model.runs import RunState

from .run_service_support import TENANT, assert_nothing_left, open_server, task, wait_until_ended

pytestmark = pytest.mark.anyio
PROGRAM = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    result = None
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "local", "version": "1"}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]}
    elif message.get("method") == "tools/call":
        seen = [os.environ.get(name) for name in ("LEVEL", "PLACE")]
        result = {"content": [{"type": "text", "text": json.dumps(seen)}]}
    if "id" in message:
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
CLIENT = """
import json, os, urllib.request
server = json.load(open(os.environ["PADDOCK_MCP_FILE"]))["mcpServers"]["here"]
p = "io.modelcontextprotocol/"
meta = {p + "protocolVersion": "2026-07-28", p + "clientCapabilities": {}}
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "where", "_meta": meta}}
headers = {"Content-Type": "application/json", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
           "Mcp-Name": "where"}
request = urllib.request.Request(server["url"], json.dumps(body).encode(), headers)
text = json.load(urllib.request.urlopen(request, timeout=60))["result"]["content"][0]["text"]
open("seen.json", "w").write(text)
"""


@pytest.fixture
async def paddock(tmp_path: Path) -> AsyncIterator[PaddockServer]:
    async with open_server(tmp_path / "data") as running:
        yield running
        await assert_nothing_left(running)


async def test_programs_of_a_task_are_started_by_the_gateway(paddock: PaddockServer) -> None:
    work = task(
        "python3 client.py",
        mcp=[{"name": "here", "command": ["python3", "/workspace/server.py"], "env": {"LEVEL": "high"}}],
        env={"PLACE": "task", "LEVEL": "low"},
        inputs=[{"content": PROGRAM, "target": "server.py"}, {"content": CLIENT, "target": "client.py"}],
        deliverables=["seen.json"],
    )
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    assert run.result is not None and run.result.state is RunState.SUCCEEDED, run.result
    (delivered,) = paddock.config.data.rglob("seen.json")
    assert json.loads(delivered.read_text()) == ["high", "task"]
    await paddock.mcp.gateway.recorder.flush()
    (call,) = await paddock.mcp.calls.list_of_run(TENANT, run.id)
    assert (call.server, call.target, call.origin) == ("here", "where", "sandbox")

"""Unused MCP costs nothing: imports of the server, and sandboxes without MCP servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.app.server import build_server
from paddock.config.schema import Config
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.mcp.declared_servers import mcp_servers_extension
from paddock.mcp.serving.sandbox_server import MCP_UPLINK_NAME
from paddock.model.mcp import McpServer

from ..fleet.conftest import data

__all__ = ["data"]
pytestmark = pytest.mark.anyio
HEAVY = {"mcp", "mcp_types", "grpc", "httpx2"}
SERVERS = [
    {"name": "remote", "url": "http://tools.test/mcp"},
    {"name": "events", "url": "http://tools.test/sse", "transport": "sse"},
    {"name": "other", "url": "https://paddock.test:8430/calc", "transport": "grpc"},
    {"name": "public", "kind": "internet", "url": "https://tools.test/mcp"},
    {"name": "program", "command": ["mcp-server-memory"]},
]
START = """
import asyncio, json, sys
from paddock.app.server import build_server
from paddock.config.schema import Config

async def main():
    async with build_server(Config.model_validate(json.loads(sys.argv[1]))) as server:
        assert server.app is not None
        print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))

asyncio.run(main())
"""


def test_the_server_starts_without_the_sdk_and_grpc(tmp_path: Path) -> None:
    settings = {"data": str(tmp_path / "data"), "sandboxes": {"default_image": "host"}, "mcp": {"servers": SERVERS}}
    done = subprocess.run(
        [sys.executable, "-c", START, json.dumps(settings)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "aiohttp" in loaded and not loaded & HEAVY


async def test_sandboxes_without_servers_have_nothing_of_mcp(data: Path) -> None:
    settings = {
        "data": data,
        "sandboxes": {"default_image": "host", "min_free_disk": 0},
        "mcp": {"servers": SERVERS},
    }
    async with build_server(Config.model_validate(settings)) as paddock:
        gateway, tasks = paddock.mcp.gateway, asyncio.all_tasks()
        plain = await paddock.fleet.create("me", SandboxRequest())
        daemon = await paddock.fleet.running_client("me", plain.id)
        socket = f"{MCP_UPLINK_NAME}.sock"
        names = {path.name for path in paddock.fleet.backend.uplink_directory(plain.record).iterdir()}
        assert socket not in names
        assert not gateway.directory.sandbox_ids and not gateway.pool.entries and await daemon.terminals() == []
        assert not [task for task in asyncio.all_tasks() - tasks if "mcp" in str(task.get_coro()).lower()]
        environment = (await daemon.run("env")).stdout.decode()
        assert "PADDOCK_MCP_URL" not in environment
        # A sandbox with a server has its socket, and starts no program before the first use.
        program = McpServer(name="program", command=("mcp-server-memory",))
        used = await paddock.fleet.create("me", SandboxRequest(extensions=mcp_servers_extension([program])))
        assert socket in {path.name for path in paddock.fleet.backend.uplink_directory(used.record).iterdir()}
        assert gateway.directory.sandbox_ids == {used.id} and not gateway.pool.entries
        assert await (await paddock.fleet.running_client("me", used.id)).terminals() == []

"""MCP gateways with one worker each, in front of the compiled MCP server."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.gateways import (
    UNREACHED_LIMIT,
    FakeProvider,
    Gateway,
    free_port,
    run_process,
    serve_paddock,
    wait_until_listening,
)

ROOT = Path(__file__).parents[2]
FASTMCP_ENVIRONMENT = ROOT / ".venv-fastmcp"
CONTEXTFORGE_ENVIRONMENT = ROOT / ".venv-contextforge"
STATELESS = "2026-07-28"
WITH_SESSIONS = "2025-11-25"
LISTED_SERVERS, LISTED_TOOLS = 20, 50
START_TIMEOUT = 60.0
FASTMCP_PROXY = """
import sys
from fastmcp.server import create_proxy
proxy = create_proxy(sys.argv[1])
proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="ERROR")
"""


@dataclass(frozen=True)
class McpTarget(Gateway):
    """An MCP endpoint, and how its clients address it."""

    path: str = "/mcp"
    tool: str = "echo"
    revision: str = STATELESS
    grpc: int = 0
    """Port of the gRPC listener, if there is one."""

    def encode_request(self, path: str, body: Mapping[str, object]) -> bytes:
        """Return the bytes of a request as an MCP client of the target's revision sends it."""
        content = json.dumps(body, separators=(",", ":")).encode()
        params = body["params"]
        assert isinstance(params, dict)
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.key}",
            "MCP-Protocol-Version": self.revision,
            "Content-Length": str(len(content)),
        }
        if self.revision == STATELESS:
            headers |= {"Mcp-Method": str(body["method"])} | ({"Mcp-Name": params["name"]} if "name" in params else {})
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {path or self.path} HTTP/1.1\r\n{head}\r\n".encode() + content

    def call_tool(self) -> dict[str, object]:
        """Return a call of the tool, with a text of 100 characters."""
        return self._request("tools/call", {"name": self.tool, "arguments": {"text": "a word " * 14 + "xx"}})

    def list_tools(self) -> dict[str, object]:
        return self._request("tools/list", {})

    def _request(self, method: str, params: dict[str, object]) -> dict[str, object]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        return {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {**params, **({"_meta": meta} if self.revision == STATELESS else {})},
        }


@asynccontextmanager
async def run_paddock_mcp(directory: Path, server: FakeProvider) -> AsyncIterator[list[McpTarget]]:
    """Paddock with default settings: keys, access rules, limits, pins and records are on."""
    address = f"http://127.0.0.1:{server.port}/mcp"
    bounds = {"concurrency": 10_000}
    servers: list[dict[str, object]] = [{"name": "bench", "url": address, "limits": bounds}]
    servers += [
        {"name": f"listed-{number}", "url": f"{address}/{LISTED_TOOLS}", "limits": bounds}
        for number in range(LISTED_SERVERS)
    ]
    grpc = free_port()
    limits = {"concurrency": UNREACHED_LIMIT, "calls_per_minute": UNREACHED_LIMIT}
    mcp = {
        "allow": ["127.0.0.1"],
        "servers": servers,
        "sets": [{"name": "listed", "servers": {f"listed-{number}": {} for number in range(LISTED_SERVERS)}}],
        "tenant_limits": limits,
        "grpc": {"listen": f"127.0.0.1:{grpc}"},
    }
    async with serve_paddock(directory, {"mcp": mcp}, "mcp:use") as (process, port, key, data):
        yield [McpTarget("paddock", port, process.pid, key, data, path="/mcp/bench", grpc=grpc)]


@asynccontextmanager
async def run_fastmcp(directory: Path, server: FakeProvider) -> AsyncIterator[list[McpTarget]]:
    port = free_port()
    (directory / "proxy.py").write_text(FASTMCP_PROXY)
    python = str(FASTMCP_ENVIRONMENT / "bin/python")
    async with run_process(directory, python, "proxy.py", f"http://127.0.0.1:{server.port}/mcp", str(port)) as process:
        await wait_until_listening(port, process, directory)
        yield [McpTarget("fastmcp", port, process.pid)]


@asynccontextmanager
async def run_contextforge(directory: Path, server: FakeProvider) -> AsyncIterator[list[McpTarget]]:
    """ContextForge with SQLite, one worker, only errors logged, and a virtual server with the one tool."""
    port, signing_key = free_port(), secrets.token_hex(24)
    environment = {
        "DATABASE_URL": "sqlite:///./mcp.db",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        "JWT_SECRET_KEY": signing_key,
        "AUTH_ENCRYPTION_SECRET": secrets.token_hex(24),
        "PLATFORM_ADMIN_EMAIL": "admin@example.com",
        "PLATFORM_ADMIN_PASSWORD": f"{secrets.token_hex(12)}-Aa1",
        "BASIC_AUTH_PASSWORD": secrets.token_hex(12),
        "LOG_LEVEL": "ERROR",
    }
    programs = CONTEXTFORGE_ENVIRONMENT / "bin"
    words = ("mcpgateway.main:app", "--host", "127.0.0.1", "--port", str(port), "--workers", "1")
    async with run_process(directory, str(programs / "mcpgateway"), *words, environment=environment) as process:
        await wait_until_listening(port, process, directory)
        making = await asyncio.create_subprocess_exec(
            *(str(programs / "python"), "-m", "mcpgateway.utils.create_jwt_token", "--admin"),
            *("--username", "admin@example.com", "--exp", "600", "--secret", signing_key),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=directory,
            env={**os.environ, **environment},
        )
        key = (await making.communicate())[0].decode().split()[-1]
        base = f"http://127.0.0.1:{port}"
        peer = {"name": "bench", "url": f"http://127.0.0.1:{server.port}/mcp", "transport": "STREAMABLEHTTP"}
        await asyncio.to_thread(_send_json, f"{base}/gateways", key, peer)
        tools = await asyncio.to_thread(_send_json, f"{base}/tools", key)
        virtual = {"server": {"name": "bench", "associated_tools": [tools[0]["id"]]}}
        made = await asyncio.to_thread(_send_json, f"{base}/servers", key, virtual)
        path = f"/servers/{made['id']}/mcp/"
        yield [McpTarget("contextforge", port, process.pid, key, None, path, tools[0]["name"], WITH_SESSIONS)]


def _send_json(url: str, key: str, body: Mapping[str, object] | None = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers), timeout=START_TIMEOUT) as answer:
        return json.loads(answer.read())

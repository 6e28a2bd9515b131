"""A sandbox for MCP servers that are programs, and small programs of both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.protocol import CallContext
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.mcp.upstreams.factory import open_upstream
from paddock.mcp.upstreams.programs.program_server import ProgramServer
from paddock.mcp.upstreams.programs.sandbox_programs import SandboxPrograms
from paddock.model.mcp import McpServer
from paddock.model.sandbox import SandboxMount, SandboxSpec
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings

INSIDE = CallContext(tenant="default", caller="ada", origin="sandbox", sandbox="programs")

PRELUDE = """
import json, os, sys, time
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def text(request, text, **more): send(id=request["id"], result={"content": [{"type": "text", "text": text}], **more})
def refuse(request, code=-32601): send(id=request["id"], error={"code": code, "message": "no"})
def initialize(request):
    capabilities = {"tools": {"listChanged": True}, "logging": {}}
    send(id=request["id"], result={"protocolVersion": "2025-11-25", "capabilities": capabilities,
         "serverInfo": {"name": "old", "version": "1"}})
def discover(request):
    send(id=request["id"], result={"resultType": "complete", "supportedVersions": ["2026-07-28"],
         "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
def received():
    for line in sys.stdin:
        yield json.loads(line)
"""
LEGACY = (
    PRELUDE
    + """
declared, cancelled = {}, None
for message in received():
    method = message.get("method")
    if method == "initialize":
        declared = message["params"]["capabilities"]
        initialize(message)
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "die":
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        elif name == "ask":
            send(id="mine", method="elicitation/create", params={"message": "Name?"})
            asked = message
        elif name == "pid":
            text(message, str(os.getpid()))
        elif name == "declared":
            text(message, json.dumps(declared))
        elif name == "big":
            text(message, "x" * message["params"]["arguments"]["size"])
        elif name == "count":
            for progress in (1, 2):
                token = message["params"]["_meta"]["progressToken"]
                send(method="notifications/progress", params={"progressToken": token, "progress": progress})
            text(message, "counted")
        elif name == "garbage":
            print("not json", flush=True)
            print("{" * 5000, flush=True)
            sys.stdout.buffer.write(b"\\xff\\xfe\\n"); sys.stdout.buffer.flush()
            send(id=10**6, result={}); send(id="x", result={}); send(id=message["id"] , result={"content": [], "n": 1})
            send(id=message["id"], result={"content": [], "n": 2})
        elif name == "flood":
            for _ in range(50_000):
                send(method="notifications/message", params={"level": "error", "data": "x" * 50})
                send(method="notifications/tools/list_changed")
                send(id="strange", result={})
            text(message, "flooded")
        elif name == "env":
            text(message, os.environ.get("LEVEL", ""))
        elif name == "change":
            send(method="notifications/tools/list_changed")
            text(message, "changed")
        elif name == "cancelled":
            text(message, str(cancelled))
        elif name != "never":
            text(message, name)
        cancelled = message["id"] if name == "never" else cancelled
    elif method == "notifications/cancelled":
        cancelled = "cancelled %s" % (message["params"]["requestId"] == cancelled)
    elif method == "tools/list":
        send(id=message["id"], result={"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]})
    elif method is None and message["id"] == "mine":
        text(asked, message["result"]["content"]["name"] if "result" in message else str(message["error"]["code"]))
    elif "id" in message:
        refuse(message)
"""
)
STATELESS = (
    PRELUDE
    + """
for message in received():
    method, params = message.get("method"), message.get("params", {})
    meta = params.get("_meta", {})
    if method == "server/discover":
        discover(message)
    elif method == "initialize":
        refuse(message)
    elif method == "subscriptions/listen":
        listening = message["id"]
        own = {"io.modelcontextprotocol/subscriptionId": listening}
        accepted = {"_meta": own, "notifications": params["notifications"]}
        send(method="notifications/subscriptions/acknowledged", params=accepted)
    elif method == "tools/call" and params["name"] == "change":
        send(method="notifications/tools/list_changed", params={"_meta": own})
        text(message, "changed", resultType="complete")
    elif method == "tools/call" and params["name"] == "end":
        send(id=listening, result={"resultType": "complete", "_meta": own})
        text(message, "ended", resultType="complete")
    elif method == "tools/call" and params["name"] == "ask":
        if "requestState" in params:
            text(message, params["requestState"] + json.dumps(params["inputResponses"]), resultType="complete")
        else:
            asked = {"a": {"method": "elicitation/create", "params": {}}}
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": "own"}
            send(id=message["id"], result=result)
    elif method == "tools/call":
        if "progressToken" in meta:
            send(method="notifications/progress", params={"progressToken": meta["progressToken"], "progress": 1})
        text(message, json.dumps(sorted(meta)), resultType="complete")
    elif "id" in message:
        refuse(message)
"""
)


@dataclass
class ProgramSandbox:
    client: DaemonClient
    opened: int = 0

    @asynccontextmanager
    async def server(self, *command: str, **declared: Any) -> AsyncIterator[ProgramServer]:
        """Open a connection to a program in the sandbox."""
        self.opened += 1

        async def find_daemon(tenant: str, sandbox: str) -> DaemonClient:
            assert (tenant, sandbox) == ("default", "programs")
            return self.client

        client = McpHttpClient(McpAddressPolicy(), OutgoingProxies())
        server = McpServer.model_validate({"name": f"local-{self.opened}", "command": command} | declared)
        dependencies = UpstreamDependencies(client=client, programs=SandboxPrograms(find_daemon))
        upstream = open_upstream(server, dependencies)
        assert isinstance(upstream, ProgramServer)
        try:
            yield upstream
        finally:
            await upstream.close()
            await client.close()

    def python(self, source: str, **declared: Any) -> Any:
        return self.server("python3", "-c", source, **declared)

    async def programs(self) -> list[str]:
        """Return the names of the programs that the sandbox keeps."""
        return [str(each["session_id"]) for each in await self.client.terminals()]


@asynccontextmanager
async def program_sandbox(data: Path, mounted: Sequence[Path] = ()) -> AsyncIterator[ProgramSandbox]:
    """Start a sandbox with directories of this machine at their own paths."""
    mounts = tuple(SandboxMount(source=path, target=str(path), read_only=True) for path in mounted)
    backend = LocalBackend(LocalBackendSettings(data=data))
    image = ImageStore(data / "images").resolve("host")
    record = await backend.start(SandboxSpec(id="programs", image=image, token="secret", mounts=mounts))
    try:
        async with DaemonClient(backend.daemon_address(record)) as client:
            yield ProgramSandbox(client)
    finally:
        await backend.remove("programs")
        await backend.close()

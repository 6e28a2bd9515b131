"""Real sandboxes reach the MCP servers that their task declares, and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.config.schema import Config
from paddock.errors import InvalidInput
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.reconciler import Reconciler
from paddock.fleet.uplink_http_server import MAX_CONNECTIONS
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.declared_servers import MCP_EXTENSION, mcp_servers_extension
from paddock.mcp.gateway.call_records import CallRecorder
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.gateway.server_directory import ServerDirectory
from paddock.mcp.gateway.tool_versions import ToolVersionBook
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.serving.http_edge import MAX_REQUEST_SIZE
from paddock.mcp.serving.sandbox_hook import McpSandboxHook
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.mcp.upstreams.factory import open_upstream
from paddock.model.mcp import McpServer
from paddock.model.sandbox import Sandbox, UplinkService
from paddock.sandbox.daemon.client import SandboxCommand
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.store.database import Store

from ..fleet.conftest import data, until
from .upstream_servers import Servers, mcp_servers

__all__ = ["data"]
pytestmark = pytest.mark.anyio
ME = "me"
PREFIX = "io.modelcontextprotocol"
SECRET = "s3cr3t-of-the-host"
CLIENT = """
import http.client, json, sys
method, path, headers, size = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
headers.setdefault("Content-Type", "application/json")
to = http.client.HTTPConnection("127.0.0.1", 8422, timeout=20)
body = headers.pop("body", None) or (b"x" * size if size else None)
chunked = headers.pop("chunked", None)
try:
    if chunked:
        to.request(method, path, (b"x" * 65536 for _ in range(size // 65536)), headers, encode_chunked=True)
    else:
        to.request(method, path, body, headers)
    answer = to.getresponse()
    said = answer.read()
    print(json.dumps([answer.status, said.decode("latin-1"), {k.lower(): v for k, v in answer.getheaders()}]))
except (OSError, http.client.HTTPException) as error:
    print(json.dumps([0, type(error).__name__, {}]))
"""
TOOL_CLIENT = """
import http.client, json, sys
name, session = sys.argv[1], None
def post(method, params=None, number=None):
    global session
    message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {}),
               **({"id": number} if number else {})}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session:
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-06-18"}
    to = http.client.HTTPConnection("127.0.0.1", 8422, timeout=20)
    to.request("POST", "/" + name, json.dumps(message), headers)
    answer = to.getresponse()
    session = answer.getheader("mcp-session-id") or session
    text = answer.read().decode()
    assert answer.status in (200, 202), (answer.status, text)
    if "event-stream" in (answer.getheader("content-type") or ""):
        return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
    return [json.loads(text)] if text.strip() else []
client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "sandbox", "version": "1"}}
hello = post("initialize", client, 1)[-1]["result"]
post("notifications/initialized")
tools = [tool["name"] for tool in post("tools/list", {}, 2)[-1]["result"]["tools"]]
added = post("tools/call", {"name": "add", "arguments": {"a": 2, "b": 40}}, 3)[-1]["result"]["content"][0]["text"]
counting = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "t"}}
counted = [each.get("method", "result") for each in post("tools/call", counting, 4)]
to = http.client.HTTPConnection("127.0.0.1", 8422, timeout=20)
to.request("DELETE", "/" + name, headers={"Mcp-Session-Id": session})
print(json.dumps([hello["serverInfo"]["name"], tools, added, counted, to.getresponse().status]))
"""


CALL_WAIT = """
import http.client, json
to = http.client.HTTPConnection("127.0.0.1", 8422, timeout=20)
p = "io.modelcontextprotocol/"
meta = {p + "protocolVersion": "2026-07-28", p + "clientCapabilities": {}, "progressToken": 1}
message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "_meta": meta}}
headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
           "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "wait"}
to.request("POST", "/calc", json.dumps(message), headers)
answer = to.getresponse()
print(answer.getheader("content-type"), answer.read1(1000), flush=True)
"""

SSE_CLIENT = """
import http.client, json
stream = http.client.HTTPConnection("127.0.0.1", 8422, timeout=20)
stream.request("GET", "/calc/sse", headers={"Accept": "text/event-stream"})
answer = stream.getresponse()
def data():
    while not (line := answer.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    return line[6:].strip().decode()
address = data()
def post(method, params, number, to=None):
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    sender = http.client.HTTPConnection("127.0.0.1", 8422, timeout=20)
    sender.request("POST", to or address, body, {"Content-Type": "application/json"})
    return sender.getresponse().status
hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "s", "version": "1"}}
statuses = [post("initialize", hello, 1)]
found = [json.loads(data())["result"]["serverInfo"]["name"]]
statuses.append(post("tools/call", {"name": "add", "arguments": {"a": 2, "b": 40}}, 2))
found.append(json.loads(data())["result"]["content"][0]["text"])
statuses.append(post("ping", {}, 3, "/calc/messages?session_id=" + "x" * 43))
print(json.dumps([address.partition("=")[0], statuses, found]))
"""


@dataclass
class Running:
    fleet: Fleet
    hook: McpSandboxHook
    addresses: McpAddressPolicy
    backend: LocalBackend

    async def sandbox(self, *servers: McpServer) -> Sandbox:
        return await self.fleet.create(ME, SandboxRequest(extensions=mcp_servers_extension(servers)))

    async def run(self, sandbox: Sandbox, *words: str) -> str:
        inside = await self.fleet.running_client(sandbox.tenant, sandbox.id)
        result = await inside.run(SandboxCommand(list(words)))
        return (result.stdout + result.stderr).decode()

    async def ask(
        self, sandbox: Sandbox, path: str, method: str = "GET", size: int = 0, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Send a request from the sandbox; return status, body and headers (no status if the connection broke)."""
        shown = json.dumps({name.replace("_", "-"): value for name, value in headers.items()})
        output = await self.run(sandbox, "python3", "-c", CLIENT, method, path, shown, str(size))
        status, body, answered = json.loads(output)
        return status, body, answered

    async def discover(self, sandbox: Sandbox, path: str, **headers: str) -> tuple[int, str]:
        """Send `server/discover` of the stateless revision; return status and body."""
        meta = {f"{PREFIX}/protocolVersion": "2026-07-28", f"{PREFIX}/clientCapabilities": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
        sent = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover", **headers}
        status, body, _ = await self.ask(sandbox, path, "POST", 0, body=json.dumps(message), **sent)
        return status, body

    async def use_tools(self, sandbox: Sandbox, name: str = "calc") -> Any:
        return json.loads(await self.run(sandbox, "python3", "-c", TOOL_CLIENT, name))


@asynccontextmanager
async def running(data: Path, secrets: dict[str, str] | None = None) -> AsyncIterator[Running]:
    """A fleet at work with an attendant for MCP, as a server has them."""
    sandboxes = {"default_image": "host", "min_free_disk": 0, "reconcile_every": 0.1}
    config = Config.model_validate({"data": data, "sandboxes": sandboxes})
    backend = LocalBackend(LocalBackendSettings(data=data))
    store = await Store.open(data / "paddock.db")
    events = await EventLog.open(store)
    addresses = McpAddressPolicy(("127.0.0.1", "localhost"), config.sandboxes.port_range)
    client = McpHttpClient(addresses, OutgoingProxies())
    lookup = {} if secrets is None else secrets
    dependencies = UpstreamDependencies(client=client, secrets=lookup.get)
    gateway = McpGateway(
        config.mcp,
        ServerDirectory(),
        lambda server: open_upstream(server, dependencies),
        versions=ToolVersionBook(None, approve_new=True),
        recorder=CallRecorder(None, events, record_size=1000, keep=None),
    )
    hook = McpSandboxHook(gateway, addresses, lookup.get)
    images = ImageStore(data / "images")
    fleet = Fleet(backend=backend, images=images, store=store, events=events, config=config, hooks=[hook])
    fleet_reconciler = Reconciler(fleet)
    await fleet_reconciler.open()
    try:
        yield Running(fleet, hook, addresses, backend)
    finally:
        await fleet_reconciler.close()
        await fleet.close()
        await hook.close()
        await gateway.close()
        await client.close()
        events.close()
        await store.close()
        await backend.close()


@pytest.fixture(scope="module")
def running_servers() -> Iterator[Servers]:
    with mcp_servers() as servers:
        yield servers


@pytest.fixture
def servers(running_servers: Servers) -> Servers:
    running_servers.seen.clear()
    running_servers.proceed.clear()
    running_servers.client_left.clear()
    return running_servers


def calc(servers: Servers, **headers: str) -> McpServer:
    return McpServer(name="calc", url=servers.calculator, headers=headers)


def odd(servers: Servers, **headers: str) -> McpServer:
    return McpServer(name="odd", url=servers.odd, headers=headers)


TALKED = ["calculator", ["add", "count", "wait"], "42", [*["notifications/progress"] * 3, "result"], 200]


async def test_sandboxed_program_uses_tools_of_declared_server(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(calc(servers))
        assert await machine.use_tools(sandbox) == TALKED
        assert (await machine.run(sandbox, "printenv", "PADDOCK_MCP_URL")).strip() == "http://127.0.0.1:8422"
    # The server gets its own host name, not the sandbox's name for it.
    assert {each["host"] for each in servers.headers()} == {f"127.0.0.1:{servers.port}"}


async def test_sandboxed_program_uses_the_transport_with_two_addresses(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(calc(servers))
        output = json.loads(await machine.run(sandbox, "python3", "-c", SSE_CLIENT))
        assert output == ["/calc/messages?session_id", [202, 202, 404], ["calculator", "42"]]


async def test_restarted_server_serves_existing_sandboxes(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(calc(servers))
        uplink_directory = machine.backend.uplink_directory(sandbox.record)
    assert (uplink_directory / "mcp.sock").is_socket()  # As one that was killed leaves it, too.
    async with running(data) as machine:
        assert await machine.use_tools(sandbox) == TALKED
        assert [path.name for path in uplink_directory.iterdir()] == ["mcp.sock"]
        assert await machine.hook.tracked_sandboxes() == {sandbox.id}
        await machine.fleet.delete(ME, sandbox.id)
        assert await machine.hook.tracked_sandboxes() == set()


async def test_secrets_are_added_outside_of_the_sandbox(data: Path, servers: Servers) -> None:
    async with running(data, {"TOKEN": SECRET}) as machine:
        server = calc(servers, Authorization="Bearer ${TOKEN}", **{"X-Plain": "$${TOKEN}"})
        sandbox = await machine.sandbox(server)
        status, _ = await machine.discover(sandbox, "/calc", authorization="Bearer mine", cookie="a=b")
        assert status == 200 and await machine.use_tools(sandbox) == TALKED
        for headers in servers.headers():
            assert (headers["authorization"], headers["x-plain"]) == (f"Bearer {SECRET}", "${TOKEN}")
            assert "cookie" not in headers  # Programs in the sandbox do not add headers.
        assert SECRET not in await machine.run(sandbox, "sh", "-c", "env; cat /proc/*/environ; cat /proc/*/cmdline")
        assert SECRET not in (await machine.fleet.get(ME, sandbox.id)).model_dump_json()
    for path in data.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert SECRET.encode() not in path.read_bytes(), path


async def test_error_names_the_missing_secret(data: Path, servers: Servers) -> None:
    secrets = {"TOKEN": SECRET}
    async with running(data, secrets) as machine:
        sandbox = await machine.sandbox(calc(servers, Authorization="${TOKEN}"))
        secrets.clear()
        status, response_text = await machine.discover(sandbox, "/calc")
        assert status == 400 and "there is no secret TOKEN" in response_text and not servers.seen
        secrets["TOKEN"] = "two\nlines"
        status, response_text = await machine.discover(sandbox, "/calc")
        assert status == 400 and "one line" in response_text and "two" not in response_text and not servers.seen


async def test_only_declared_servers_are_reachable(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(odd(servers))
        plain = await machine.sandbox()
        for path in (
            "/calc", "/mcp", "/oddly", "//odd", "http://127.0.0.1:1/odd", "/ODD", "/odd/x", "/sets/odd",
            "/odd/../mcp", "/odd/%2e%2e/mcp", "/odd/..%2fmcp", "/odd/a%5c..", "/odd/./x", "/odd/%zz", "/%6fdd",
        ):  # fmt: skip
            status, response_text = await machine.discover(sandbox, path)
            assert status == 404 and ("available: odd" in response_text or "sets" in path), path
        assert not servers.seen
        assert (await machine.ask(plain, "/odd"))[0] == 0
        assert not (machine.backend.uplink_directory(plain.record) / "mcp.sock").exists()
        assert "PADDOCK_MCP_URL" not in await machine.run(plain, "printenv")


async def test_notifications_arrive_during_the_call(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(calc(servers))
        inside = await machine.fleet.running_client(ME, sandbox.id)
        output_bytes = b""
        async for output in inside.stream(SandboxCommand(["python3", "-c", CALL_WAIT + "print(answer.read())"])):
            output_bytes += getattr(output, "data", b"")
            if b"progress" in output_bytes:
                servers.proceed.set()
        assert b"waited" in output_bytes and b"text/event-stream" in output_bytes


async def test_disconnected_client_cancels_the_request(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(calc(servers))
        await machine.run(sandbox, "python3", "-c", CALL_WAIT)

        async def client_left() -> bool:
            return servers.client_left.is_set()

        await until(client_left)


@pytest.mark.parametrize("header", [{"Origin": "null"}, {"Host": "evil.example:8422"}], ids=["origin", "host"])
async def test_requests_of_web_pages_are_refused(data: Path, servers: Servers, header: dict[str, str]) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(odd(servers))
        status, response_text = await machine.discover(sandbox, "/odd", **header)
        assert status == 403 and "Web pages" in response_text and not servers.seen


async def test_upstream_errors_are_reported(data: Path, servers: Servers) -> None:
    unreachable = McpServer(name="nobody", url="http://127.0.0.1:9/mcp")
    unknown = McpServer(name="unknown", url="http://nowhere.invalid/mcp")
    elsewhere = McpServer(name="elsewhere", url=f"{servers.odd}/elsewhere")
    cut = McpServer(name="cut", url=f"{servers.odd}/cut")
    async with running(data) as machine:
        sandbox = await machine.sandbox(odd(servers), unreachable, unknown, elsewhere, cut)
        for name, problem in (
            ("elsewhere", "redirects (status 307)"),
            ("nobody", "cannot be reached"),
            ("unknown", "cannot be reached"),
            ("cut", ""),
        ):
            status, response_text = await machine.discover(sandbox, f"/{name}")
            message = json.loads(response_text)["error"]["message"]
            assert status == 502 and name in message and problem in message, message
            assert "secret-place" not in response_text
        status, _, headers = await machine.ask(sandbox, "/odd", "PUT", 2)
        assert (status, headers["allow"]) == (405, "GET, POST, DELETE")


async def test_request_bodies_are_bounded(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(odd(servers))
        status, response_text, _ = await machine.ask(sandbox, "/odd", "POST", MAX_REQUEST_SIZE)
        assert status == 400 and "not JSON" in response_text
        for size, more in ((MAX_REQUEST_SIZE + 1, {}), (MAX_REQUEST_SIZE + 2**20, {"chunked": "yes"}), (100 << 20, {})):
            status, response_text, _ = await machine.ask(sandbox, "/odd", "POST", size, **more)
            assert status in (413, 0), response_text  # The response may arrive before the whole request was sent.
        status, _, _ = await machine.ask(sandbox, "/odd", "POST", 100, content_encoding="gzip")
        assert status == 415 and not servers.seen


async def test_concurrent_requests_of_a_sandbox_are_limited(data: Path, servers: Servers) -> None:
    many = f"""
import socket
open_ones = []
for _ in range({MAX_CONNECTIONS} + 20):
    try:
        s = socket.create_connection(("127.0.0.1", 8422), timeout=20)
        s.sendall(b"GET /none HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        if s.recv(100):
            open_ones.append(s)
    except OSError:
        pass
print(len(open_ones))
"""
    async with running(data) as machine:
        one, other = await machine.sandbox(odd(servers)), await machine.sandbox(odd(servers))
        assert (await machine.run(one, "python3", "-c", many)).strip() == str(MAX_CONNECTIONS)
        assert (await machine.ask(other, "/odd"))[0] == 405
        assert (await machine.ask(one, "/odd"))[0] == 405  # Once it has let go of them.


async def test_paddock_and_cloud_metadata_are_unreachable(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        sandbox = await machine.sandbox(
            odd(servers), McpServer(name="name", url=servers.odd.replace("127.0.0.1", "localhost"))
        )
        machine.addresses.refuse_port(servers.port)
        for path in ("/odd", "/name"):
            status, response_text = await machine.discover(sandbox, path)
            assert status == 403 and "is Paddock itself" in response_text
        for url in (servers.odd, "http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/"):
            with pytest.raises(InvalidInput, match=r"mcp\.x: .* (is Paddock itself|may not have the address)"):
                await machine.sandbox(McpServer(name="x", url=url))


async def test_host_services_and_other_sandboxes_are_unreachable(data: Path, servers: Servers) -> None:
    async with running(data) as machine:
        with pytest.raises(InvalidInput, match=r"mcp\.x: .* the setting mcp\.allow"):
            await machine.sandbox(McpServer(name="x", url=f"http://127.0.0.2:{servers.port}/odd"))
        other = await machine.sandbox()
        endpoint, _ = await machine.fleet.open_endpoint(ME, other.id, 8090)
        with pytest.raises(InvalidInput, match=r"mcp\.x: .*sandboxes\.port_range"):
            await machine.sandbox(McpServer(name="x", url=f"http://{endpoint}/"))


async def test_invalid_declarations_are_rejected_before_creation(data: Path) -> None:
    async with running(data) as machine:
        for extensions, problem in (
            ("nonsense", "paddock.mcp: invalid JSON"),
            ('[{"name": "x", "url": "http://h/", "command": "run"}]', "needs either 'url' or 'command'"),
            ('[{"name": "x", "url": "http://"}]', "'http://' is no address"),
            ('[{"name": "x", "url": "http://ann:pw@h/"}]', "the address must not contain a password"),
            ('[{"name": "x", "url": "http://h/", "headers": {"A": "${NOPE}"}}]', "there is no secret NOPE"),
            ('[{"name": "x", "url": "http://h/", "headers": {"Host": "x"}}]', "'Host' cannot be set as a header"),
        ):
            with pytest.raises(InvalidInput, match=problem.replace("$", "\\$")):
                await machine.fleet.create(ME, SandboxRequest(extensions={MCP_EXTENSION: extensions}))
        with pytest.raises(InvalidInput, match="reserved for MCP servers"):
            await machine.fleet.create(ME, SandboxRequest(uplink_services=(UplinkService(name="mine", port=8422),)))
        assert (await machine.fleet.list(ME))[1] == 0

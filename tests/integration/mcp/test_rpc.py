"""The gRPC transport and its typed calls, between real servers and clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec import Raw

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import (
    Forbidden,
    InvalidInput,
    McpTimeout,
    NotFound,
    PaddockError,
    QuotaExceeded,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.messages import decode_message, make_notification, make_request
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION
from paddock.mcp.rpc.client import McpRpcClient
from paddock.mcp.rpc.server import McpRpcServer, RpcCaller
from paddock.mcp.rpc.server_session import MAX_EXCHANGES
from paddock.mcp.rpc.v1 import mcp_pb2, mcp_pb2_grpc
from paddock.mcp.rpc.wire import WINDOW
from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies
from paddock.mcp.upstreams.factory import open_upstream
from paddock.model.mcp import McpServer
from paddock.testing.in_memory_mcp_endpoint import InMemoryMcpEndpoint

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]
PROTO = ROOT / "src/paddock/mcp/rpc/v1/mcp.proto"
NODE = ROOT / ".make/clis/bin/node"
CONTEXT = CallContext(tenant="default", caller="somebody")
KEY = "good"


@dataclass
class Gateway:
    """A gRPC server with one MCP server in memory, and the key that it accepts."""

    demo: InMemoryMcpEndpoint = field(default_factory=InMemoryMcpEndpoint)
    others: dict[str, McpEndpoint] = field(default_factory=dict)
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    contexts: list[CallContext] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def resolve(self, path: str, context: CallContext) -> McpEndpoint:
        self.contexts.append(context)
        match path:
            case "demo":
                return self.demo
            case "denied":
                raise Forbidden("this key may not use the MCP server denied")
            case name if name in self.others:
                return self.others[name]
        raise NotFound(f"there is no MCP server {path}")

    async def authenticate(self, key: str) -> RpcCaller:
        if key != KEY:
            raise Unauthorized("this API key is not valid")
        return RpcCaller(CallContext(tenant="default", caller="key-1", origin="grpc"), self._until_invalid)

    async def _until_invalid(self) -> str:
        await self.revoked.wait()
        return "this API key was revoked"

    @asynccontextmanager
    async def serve(self, certificate: tuple[bytes, bytes] | None = None) -> AsyncIterator[McpRpcServer]:
        server = McpRpcServer(self.resolve, self.authenticate)
        self.port = await server.listen(f"127.0.0.1:{self.port}", certificate)
        try:
            yield server
        finally:
            await server.close()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_event_loop() -> AsyncIterator[None]:
    """Run all tests on one event loop: gRPC delivers late events to the loop of a connection, which must be open."""
    yield  # noqa: PT022


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    async with made.serve():
        yield made


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[McpRpcClient]:
    made = McpRpcClient(gateway.address, KEY)
    yield made
    await made.close()


def call(tool: str, *, token: str | None = None, **arguments: Any) -> JsonRpcMessage:
    meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {"elicitation": {}}}
    params = {"name": tool, "arguments": arguments, "_meta": meta | ({"progressToken": token} if token else {})}
    return make_request(7, "tools/call", params)


async def collect(
    endpoint: McpEndpoint, request: JsonRpcMessage, context: CallContext = CONTEXT
) -> list[JsonRpcMessage]:
    async with aclosing(endpoint.exchange(request, context)) as messages:
        return [message async for message in messages]


async def result_text(endpoint: McpEndpoint, request: JsonRpcMessage) -> str:
    return str((await collect(endpoint, request))[-1].result_object()["content"][0]["text"])


class ManyNotifications:
    """Sends notifications without end, and counts them."""

    def __init__(self, size: int) -> None:
        self.sent = 0
        self.ended = asyncio.Event()
        self._text = "x" * size

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        try:
            while True:
                yield make_notification("notifications/message", {"data": self._text})
                self.sent += 1
                await asyncio.sleep(0)
        finally:
            self.ended.set()


class Fixed:
    """Answers with the given bytes."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = messages
        self.received: list[JsonRpcMessage] = []

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        self.received.append(request)
        for each in self._messages:
            yield decode_message(each)


# The transport.


async def test_notifications_come_before_the_response(client: McpRpcClient, gateway: Gateway) -> None:
    messages = await collect(client.endpoint("demo"), call("count", token="t", to=3))
    assert [each.method for each in messages[:-1]] == ["notifications/progress"] * 3
    assert [each.params_object()["progress"] for each in messages[:-1]] == [1, 2, 3]
    assert messages[-1].id == 7 and messages[-1].result_object()["content"][0]["text"] == "done"
    assert gateway.contexts[-1].caller == "key-1" and gateway.contexts[-1].origin == "grpc"


async def test_messages_arrive_byte_for_byte(client: McpRpcClient, gateway: Gateway) -> None:
    result = b'{"z":12345678901234567890123,"a":1.10,"e":1e400,"u":"\\u00e9","n":3.0}'
    fixed = gateway.others["fixed"] = Fixed(b'{"jsonrpc":"2.0","id":7,"result":' + result + b"}")
    params = b'{"name":"x","arguments":{"big":98765432109876543210,"b":0.0,"a":1}}'
    (answer,) = await collect(client.endpoint("fixed"), JsonRpcMessage(id=7, method="tools/call", params=Raw(params)))
    assert isinstance(answer.result, Raw) and bytes(answer.result) == result
    received = fixed.received[0].params
    assert isinstance(received, Raw) and bytes(received) == params


async def test_many_exchanges_share_the_connection_and_a_stuck_one_delays_none(
    client: McpRpcClient, gateway: Gateway
) -> None:
    endpoint = client.endpoint("demo")
    stuck = asyncio.create_task(collect(endpoint, call("sleep")))
    await gateway.demo.wait_for(lambda demo: demo.under_way == 1)
    texts = await asyncio.gather(*(result_text(endpoint, call("echo", text=str(number))) for number in range(500)))
    assert texts == [str(number) for number in range(500)]
    assert not stuck.done()
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_closing_an_exchange_cancels_it_at_the_server(client: McpRpcClient, gateway: Gateway) -> None:
    messages = client.endpoint("demo").exchange(call("sleep", token="t"), CONTEXT)
    first = await anext(messages)
    assert first.method == "notifications/progress"
    await messages.aclose()
    await gateway.demo.wait_for(lambda demo: demo.cancelled == ["tools/call"] and demo.under_way == 0)
    assert await result_text(client.endpoint("demo"), call("echo", text="still here")) == "still here"


async def test_a_deadline_ends_the_exchange_on_both_sides(client: McpRpcClient, gateway: Gateway) -> None:
    deadline = asyncio.get_running_loop().time() + 0.2
    with pytest.raises(McpTimeout, match=r"no answer within 0\.\d+ s"):
        await collect(client.endpoint("demo"), call("sleep"), CallContext(tenant="t", caller="c", deadline=deadline))
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        ("nothing", NotFound, "there is no MCP server nothing"),
        ("denied", Forbidden, "may not use"),
        ("", NotFound, "there is no MCP server"),
    ],
)
async def test_refusals_keep_their_meaning(
    client: McpRpcClient, target: str, error: type[PaddockError], text: str
) -> None:
    with pytest.raises(error, match=text):
        await collect(client.endpoint(target), call("echo"))


async def test_unexpected_errors_are_not_shown(client: McpRpcClient, gateway: Gateway) -> None:
    gateway.others["broken"] = Fixed(b"not JSON-RPC")
    with pytest.raises(InvalidInput):
        await collect(client.endpoint("broken"), call("echo"))

    class Faulty:
        async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
            yield make_notification("notifications/message", {})
            raise RuntimeError("a secret of the server")

    gateway.others["faulty"] = Faulty()
    with pytest.raises(PaddockError, match="unexpected error in the gateway"):
        await collect(client.endpoint("faulty"), call("echo"))


async def test_a_refused_key_is_told(gateway: Gateway) -> None:
    for key in ("bad", None):
        client = McpRpcClient(gateway.address, key)
        with pytest.raises(Unauthorized, match="API key"):
            await collect(client.endpoint("demo"), call("echo"))
        await client.close()


async def test_a_revoked_key_ends_the_session(client: McpRpcClient, gateway: Gateway) -> None:
    waiting = asyncio.create_task(collect(client.endpoint("demo"), call("sleep")))
    await gateway.demo.wait_for(lambda demo: demo.under_way == 1)
    gateway.revoked.set()
    with pytest.raises(Unauthorized, match="revoked"):
        await waiting
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_a_lost_gateway_fails_calls_under_way_and_is_found_again() -> None:
    gateway = Gateway()
    async with gateway.serve():
        client = McpRpcClient(gateway.address, KEY)
        waiting = asyncio.create_task(collect(client.endpoint("demo"), call("sleep")))
        await gateway.demo.wait_for(lambda demo: demo.under_way == 1)
    with pytest.raises(Unavailable, match="ended"):
        await waiting
    assert gateway.demo.under_way == 0
    with pytest.raises(Unavailable):
        await collect(client.endpoint("demo"), call("echo"))
    async with gateway.serve(), asyncio.timeout(20):
        while True:
            try:
                assert await result_text(client.endpoint("demo"), call("echo", text="again")) == "again"
                break
            except Unavailable:
                await asyncio.sleep(0.05)
        await client.close()


async def test_a_reader_that_stops_holds_only_its_own_exchange(client: McpRpcClient, gateway: Gateway) -> None:
    flood = gateway.others["flood"] = ManyNotifications(size=4096)
    messages = client.endpoint("flood").exchange(call("x"), CONTEXT)
    await anext(messages)
    reader = client.endpoint("demo")
    for _ in range(50):
        assert await result_text(reader, call("echo", text="quick")) == "quick"
    sent = flood.sent
    assert sent <= WINDOW // 4096 + 2
    for _ in range(50):
        await result_text(reader, call("echo", text="quick"))
    assert flood.sent == sent
    for _ in range(1000):  # The flood goes on as it is read.
        await anext(messages)
    await messages.aclose()
    await asyncio.wait_for(flood.ended.wait(), 10)


async def test_large_results_pass(client: McpRpcClient, gateway: Gateway) -> None:
    text = "x" * (20 * 2**20)
    assert await result_text(client.endpoint("demo"), call("echo", text=text)) == text


async def test_tls_with_a_private_authority() -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    gateway = Gateway()
    certificate = (issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())
    async with gateway.serve(certificate):
        address = f"localhost:{gateway.port}"
        trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        client = McpRpcClient(address, KEY, trusted)
        assert await result_text(client.endpoint("demo"), call("echo", text="safe")) == "safe"
        await client.close()
        for untrusted in (grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes()), None):
            client = McpRpcClient(address, KEY, untrusted)
            with pytest.raises(Unavailable):
                await collect(client.endpoint("demo"), call("echo"))
            await client.close()


# Another gateway as a server.


@asynccontextmanager
async def far_server(
    gateway: Gateway, *, allow: str = "127.0.0.1", ca: Path | None = None, **fields: Any
) -> AsyncIterator[Upstream]:
    """Connect to the gateway's server `demo` as a declared server with the transport grpc."""
    url = f"http://{gateway.address}/demo" if ca is None else f"https://localhost:{gateway.port}/demo"
    headers = {"Authorization": "Bearer ${FAR_KEY}"}
    server = McpServer(**{"name": "far", "url": url, "transport": "grpc", "headers": headers, **fields})
    client = McpHttpClient(McpAddressPolicy([allow]), OutgoingProxies(ca_bundle=ca))
    upstream = open_upstream(server, UpstreamDependencies(client=client, secrets={"FAR_KEY": KEY}.get))
    try:
        yield upstream
    finally:
        await upstream.close()
        await client.close()


async def test_a_server_behind_another_gateway(gateway: Gateway) -> None:
    async with far_server(gateway) as upstream:
        messages = await collect(upstream, call("count", token="t", to=2))
        assert [each.method for each in messages[:-1]] == ["notifications/progress"] * 2
        assert [each.status for each in upstream.health_history] == ["idle", "starting", "ready"]
        messages_under_way = upstream.exchange(call("sleep", token="t"), CONTEXT)
        await anext(messages_under_way)
        await messages_under_way.aclose()
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_a_silent_server_behind_another_gateway(gateway: Gateway) -> None:
    async with far_server(gateway, timeouts={"call": 0.2}) as upstream:
        with pytest.raises(McpTimeout, match=r"did not answer for 0\.2 s"):
            await collect(upstream, call("sleep"))
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)
        assert upstream.state.status != "failed"


async def test_the_address_of_another_gateway_is_checked(gateway: Gateway) -> None:
    async with far_server(gateway, allow="192.0.2.1") as upstream:
        with pytest.raises(Forbidden, match=r"mcp\.allow"):
            await collect(upstream, call("echo"))
    async with far_server(gateway, headers={}) as upstream:
        with pytest.raises(Unauthorized, match="API key"):
            await collect(upstream, call("echo"))
    async with far_server(gateway, limits={"request_size": 1024}) as upstream:
        with pytest.raises(TooLarge, match="request_size"):
            await collect(upstream, call("echo", text="x" * 2048))


async def test_another_gateway_with_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    gateway = Gateway()
    async with gateway.serve((issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())):
        async with far_server(gateway, ca=tmp_path / "ca.pem", allow="localhost") as upstream:
            assert await result_text(upstream, call("echo", text="safe")) == "safe"
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
        async with far_server(gateway, ca=tmp_path / "other.pem", allow="localhost") as upstream:
            with pytest.raises(Unavailable):
                await collect(upstream, call("echo"))
            assert upstream.state.status == "failed"


# Clients that break the rules.


def frame(number: int, request: bytes = b"", target: str = "demo", **content: Any) -> mcp_pb2.Frame:
    if not content:
        content = {"open": mcp_pb2.Open(target=target, request=request)}
    return mcp_pb2.Frame(exchange=number, **content)


def encoded(tool: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}).encode()


@asynccontextmanager
async def raw_session(gateway: Gateway) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = mcp_pb2_grpc.TransportStub(channel)  # type: ignore[no-untyped-call]
        yield stub.Session(metadata=(("authorization", f"Bearer {KEY}"),))


@pytest.mark.parametrize(
    "frames",
    [
        [frame(5, encoded("sleep")), frame(5, encoded("echo"))],
        [frame(5, encoded("sleep")), frame(4, encoded("echo"))],
        [frame(1, response=b"{}")],
        [frame(1, notification=b"{}")],
        [mcp_pb2.Frame(exchange=1)],
    ],
    ids=["used twice", "lower than before", "response", "notification", "empty"],
)
async def test_a_session_against_the_rules_ends(gateway: Gateway, frames: list[mcp_pb2.Frame]) -> None:
    async with raw_session(gateway) as session:
        await session.write(mcp_pb2.FrameBatch(frames=frames))
        assert await session.code() == grpc.StatusCode.INVALID_ARGUMENT
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"jsonrpc":"2.0","method":"tools/call"}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":null,"method":"x"}',
    ],
    ids=["empty", "no text", "batch", "notification", "deep", "null id"],
)
async def test_a_request_that_is_none_fails_alone(gateway: Gateway, request_bytes: bytes) -> None:
    async with raw_session(gateway) as session:
        await session.write(mcp_pb2.FrameBatch(frames=[frame(1, request_bytes), frame(2, encoded("echo"))]))
        received: dict[int, mcp_pb2.Frame] = {}
        while len(received) < 2:
            received |= {each.exchange: each for each in (await session.read()).frames}
        assert received[1].failure.code == "INVALID_INPUT" and received[2].HasField("response")


async def test_exchanges_of_a_session_are_bounded(gateway: Gateway) -> None:
    async with raw_session(gateway) as session:
        frames = [frame(number, encoded("sleep")) for number in range(1, MAX_EXCHANGES + 2)]
        await session.write(mcp_pb2.FrameBatch(frames=frames))
        (refused,) = (await session.read()).frames
        assert refused.exchange == MAX_EXCHANGES + 1 and refused.failure.code == QuotaExceeded.code
        await gateway.demo.wait_for(lambda demo: demo.under_way == MAX_EXCHANGES)
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_half_closing_lets_exchanges_end(gateway: Gateway) -> None:
    async with raw_session(gateway) as session:
        await session.write(mcp_pb2.FrameBatch(frames=[frame(1, encoded("echo"))]))
        await session.done_writing()
        assert (await session.read()).frames[0].HasField("response")
        assert await session.code() == grpc.StatusCode.OK


# Typed calls.


@asynccontextmanager
async def typed(gateway: Gateway, key: str | None = KEY) -> AsyncIterator[tuple[Any, Any]]:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = mcp_pb2_grpc.ToolsStub(channel)  # type: ignore[no-untyped-call]
        yield stub, (("authorization", f"Bearer {key}"),) if key else None


async def test_typed_calls(gateway: Gateway) -> None:
    async with typed(gateway) as (tools, key):
        listed = await tools.ListTools(mcp_pb2.ListToolsRequest(target="demo"), metadata=key)
        echo = next(each for each in listed.tools if each.name == "echo")
        assert json.loads(echo.input_schema_json) == {"type": "object"} and not listed.next_cursor
        asked = mcp_pb2.CallToolRequest(target="demo", name="count", arguments_json=b'{"to": 2}')
        events = [event async for event in tools.CallTool(asked, metadata=key)]
        assert [each.WhichOneof("event") for each in events] == ["progress", "progress", "result"]
        assert events[0].progress.progress == 1 and events[0].progress.total == 2
        assert events[2].result.text == "done" and json.loads(events[2].result.result_json)["resultType"] == "complete"
        failed = mcp_pb2.CallToolRequest(target="demo", name="fail")
        (event,) = [event async for event in tools.CallTool(failed, metadata=key)]
        assert event.result.is_error and event.result.text == "it failed"
        unknown = mcp_pb2.CallToolRequest(target="demo", name="nothing")
        (event,) = [event async for event in tools.CallTool(unknown, metadata=key)]
        assert event.error.code == -32602 and "nothing" in event.error.message


async def test_typed_pages(gateway: Gateway) -> None:
    gateway.demo.page_size = 4
    async with typed(gateway) as (tools, key):
        first = await tools.ListTools(mcp_pb2.ListToolsRequest(target="demo"), metadata=key)
        second = await tools.ListTools(mcp_pb2.ListToolsRequest(target="demo", cursor=first.next_cursor), metadata=key)
        assert len(first.tools) == 4 and first.next_cursor and not second.next_cursor
        assert len({each.name for each in (*first.tools, *second.tools)}) == 6


async def test_typed_calls_that_need_input(gateway: Gateway) -> None:
    async with typed(gateway) as (tools, key):
        asked = mcp_pb2.CallToolRequest(target="demo", name="ask", capabilities_json=b'{"elicitation": {}}')
        (event,) = [event async for event in tools.CallTool(asked, metadata=key)]
        requests = json.loads(event.input_required.input_requests_json)
        assert requests["name"]["method"] == "elicitation/create"
        answered = mcp_pb2.CallToolRequest(
            target="demo",
            name="ask",
            input_responses_json=b'{"name": {"action": "accept", "content": {"name": "Ada"}}}',
            request_state=event.input_required.request_state,
        )
        (event,) = [event async for event in tools.CallTool(answered, metadata=key)]
        assert event.result.text == "accept Ada"


@pytest.mark.parametrize(
    ("request_fields", "key", "code"),
    [
        ({"target": "nothing"}, KEY, grpc.StatusCode.NOT_FOUND),
        ({"target": "denied"}, KEY, grpc.StatusCode.PERMISSION_DENIED),
        ({"target": "demo", "arguments_json": b"[]"}, KEY, grpc.StatusCode.INVALID_ARGUMENT),
        ({"target": "demo", "arguments_json": b"{"}, KEY, grpc.StatusCode.INVALID_ARGUMENT),
        ({"target": "demo"}, "bad", grpc.StatusCode.UNAUTHENTICATED),
        ({"target": "demo"}, None, grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_typed_refusals(
    gateway: Gateway, request_fields: dict[str, Any], key: str | None, code: grpc.StatusCode
) -> None:
    async with typed(gateway, key) as (tools, metadata):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in tools.CallTool(mcp_pb2.CallToolRequest(name="echo", **request_fields), metadata=metadata):
                pass
        assert refused.value.code() == code and refused.value.details()


async def test_cancelling_a_typed_call_cancels_it_at_the_server(gateway: Gateway) -> None:
    async with typed(gateway) as (tools, key):
        calling = tools.CallTool(mcp_pb2.CallToolRequest(target="demo", name="sleep"), metadata=key)
        assert (await calling.read()).HasField("progress")
        calling.cancel()
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)
        late = tools.CallTool(mcp_pb2.CallToolRequest(target="demo", name="sleep"), metadata=key, timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as expired:
            async for _ in late:
                pass
        assert expired.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_health_needs_no_key(gateway: Gateway) -> None:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "paddock.mcp.v1.Transport", "paddock.mcp.v1.Tools"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


# Clients that know only the published definition.

REFLECTING_CLIENT = """
import sys, grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

class WithKey(grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    def add(self, details):
        return details._replace(metadata=[("authorization", "Bearer good")])
    def intercept_unary_stream(self, call, details, request):
        return call(self.add(details), request)
    def intercept_stream_stream(self, call, details, requests):
        return call(self.add(details), requests)

channel = grpc.intercept_channel(grpc.insecure_channel(sys.argv[1]), WithKey())
database = ProtoReflectionDescriptorDatabase(channel)
print(*sorted(database.get_services()))
pool = DescriptorPool(database)
call = pool.FindServiceByName("paddock.mcp.v1.Tools").FindMethodByName("CallTool")
Request, Event = GetMessageClass(call.input_type), GetMessageClass(call.output_type)
method = channel.unary_stream("/paddock.mcp.v1.Tools/CallTool", Request.SerializeToString, Event.FromString)
for event in method(Request(target="demo", name="count", arguments_json=b'{"to": 2}')):
    print(event.WhichOneof("event"), event.result.text)
"""


async def run_program(*command: str, env: dict[str, str] | None = None) -> list[str]:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)

    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_a_program_learns_the_interface_by_reflection(gateway: Gateway) -> None:
    lines = await run_program(sys.executable, "-c", REFLECTING_CLIENT, gateway.address)
    assert {"paddock.mcp.v1.Tools", "paddock.mcp.v1.Transport", "grpc.health.v1.Health"} <= set(lines[0].split())
    assert lines[1:] == ["progress ", "progress ", "result done"]


NODE_CLIENT = """
const grpc = require("@grpc/grpc-js");
const loaded = require("@grpc/proto-loader").loadSync(process.argv[1], {keepCase: true});
const { Tools } = grpc.loadPackageDefinition(loaded).paddock.mcp.v1;
const tools = new Tools(process.argv[2], grpc.credentials.createInsecure());
const key = new grpc.Metadata();
key.set("authorization", "Bearer good");
tools.ListTools({target: "demo"}, key, (error, listed) => {
  if (error) throw error;
  console.log(listed.tools.map((tool) => tool.name).sort().join(" "));
  const call = tools.CallTool({target: "demo", name: "count", arguments_json: Buffer.from('{"to": 2}')}, key);
  call.on("data", (event) => console.log(event.progress ? `progress ${event.progress.progress}` : event.result.text));
  call.on("end", () => {
    const slow = tools.CallTool({target: "demo", name: "sleep"}, key);
    slow.on("data", () => slow.cancel());
    slow.on("error", (error) => { console.log(grpc.status[error.code]); tools.close(); });
  });
});
"""


async def test_a_client_in_javascript(gateway: Gateway) -> None:
    modules = {"NODE_PATH": str(ROOT / ".make/clis/node_modules"), "PATH": "/usr/bin:/bin"}
    lines = await run_program(str(NODE), "-e", NODE_CLIENT, str(PROTO), gateway.address, env=modules)
    assert lines == ["ask count echo fail sleep talk", "progress 1", "progress 2", "done", "CANCELLED"]
    await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_generated_modules_are_current() -> None:
    await run_program(str(ROOT / "scripts/generate-proto"), "--check")

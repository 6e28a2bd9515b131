"""The gRPC transport, between a real server and real clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import grpc
import grpc.aio
import pytest
import trustme
from msgspec import Raw

from paddock.errors import (
    Forbidden,
    InvalidInput,
    McpTimeout,
    NotFound,
    PaddockError,
    Unauthorized,
    Unavailable,
)
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import decode_message, make_notification
from paddock.mcp.rpc.client import McpRpcClient
from paddock.mcp.rpc.wire import WINDOW

from .rpc_gateway import CONTEXT, KEY, Gateway, call, collect, result_text

pytestmark = pytest.mark.anyio


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

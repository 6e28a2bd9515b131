"""The Model Context Protocol as the tool worker implements it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.inside.tools.mcp_protocol import MAX_BATCH, McpProtocol
from paddock.inside.tools.tool_context import ToolContext
from paddock.inside.tools.tool_registry import CallableTool, ToolRegistry
from paddock.inside.tools.tool_result import ToolCallResult, ToolError

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Sums(ToolRegistry):
    def __init__(self) -> None:
        super().__init__(ToolContext("/"), "code")
        number = {"type": "integer"}
        self._tools = {
            "add": CallableTool("add", "Adds.", {"a": number, "b": number}, ["a", "b"], self._add, read_only=True),
            "break": CallableTool("break", "Breaks.", {}, [], self._break),
        }

    def _add(self, context: ToolContext, a: int, b: int) -> ToolCallResult:
        if a > 1000:
            raise ToolError("too large; add smaller numbers")
        return ToolCallResult(str(a + b), structured={"sum": a + b})

    def _break(self, context: ToolContext) -> ToolCallResult:
        raise ZeroDivisionError("oh")


@pytest.fixture
def protocol() -> McpProtocol:
    return McpProtocol(Sums())


def ask(protocol: McpProtocol, method: str, params: Any = None, **more: Any) -> tuple[int, dict[str, Any]]:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, **more}
    if params is not None:
        message["params"] = params
    status, body = protocol.answer_message(json.dumps(message).encode())
    document: dict[str, Any] = json.loads(body)
    assert document["jsonrpc"] == "2.0"
    return status, document


@pytest.mark.parametrize(
    ("wanted", "given"),
    [("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25"), (None, "2025-11-25")],
)
def test_handshake_negotiates_a_version(protocol: McpProtocol, wanted: str | None, given: str) -> None:
    status, answer = ask(protocol, "initialize", {"protocolVersion": wanted, "capabilities": {}})
    assert status == 200 and answer["result"]["protocolVersion"] == given
    assert answer["result"]["capabilities"] == {"tools": {"listChanged": False}}
    assert "/workspace" in answer["result"]["instructions"]


def test_discover_lists_supported_versions(protocol: McpProtocol) -> None:
    status, answer = ask(protocol, "server/discover", {"_meta": MODERN})
    assert status == 200 and answer["result"]["supportedVersions"] == ["2026-07-28"]
    assert answer["result"]["resultType"] == "complete"
    assert "/workspace" in answer["result"]["instructions"]


def test_tools_are_listed_with_schemas(protocol: McpProtocol) -> None:
    _, answer = ask(protocol, "tools/list")
    add = answer["result"]["tools"][0]
    assert add["name"] == "add" and add["inputSchema"]["required"] == ["a", "b"]
    assert add["annotations"]["readOnlyHint"] is True
    assert "ttlMs" not in answer["result"] and "ttlMs" in ask(protocol, "tools/list", {"_meta": MODERN})[1]["result"]


def test_tools_are_called(protocol: McpProtocol) -> None:
    _, answer = ask(protocol, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert answer["result"]["content"] == [{"type": "text", "text": "3"}]
    assert answer["result"]["structuredContent"] == {"sum": 3} and answer["result"]["isError"] is False


def test_invalid_arguments_and_failures_are_error_results(protocol: McpProtocol) -> None:
    for arguments, expected_error in (
        ({"a": "1", "b": 2}, "'a' must be a whole number"),
        ({"a": 9999, "b": 1}, "too large"),
    ):
        _, answer = ask(protocol, "tools/call", {"name": "add", "arguments": arguments})
        assert answer["result"]["isError"] is True and expected_error in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "ad"}, -32602),
        ("tools/call", {"name": 3}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": "add", "arguments": [1]}, -32602),
        ("tools/call", [1], -32602),
        ("tools/call", {"name": "break"}, -32603),
        ("resources/list", None, -32601),
        ("server/discover", None, -32601),
    ],
)
def test_malformed_calls_are_errors(protocol: McpProtocol, method: str, params: Any, code: int) -> None:
    status, answer = ask(protocol, method, params)
    assert (status, answer["error"]["code"], answer["id"]) == (200, code, 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"3", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', -32600),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * (MAX_BATCH + 1)).encode(), -32600),
    ],
)
def test_malformed_requests_are_refused(protocol: McpProtocol, body: bytes, code: int) -> None:
    status, answer = protocol.answer_message(body)
    assert status == 400 and json.loads(answer)["error"]["code"] == code


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": 4, "result": {}},
    ],
)
def test_notifications_get_no_reply(protocol: McpProtocol, message: dict[str, Any]) -> None:
    assert protocol.answer_message(json.dumps(message).encode()) == (202, b"")
    assert protocol.answer_message(json.dumps([message]).encode()) == (202, b"")


def test_batch_gets_one_reply(protocol: McpProtocol) -> None:
    pings: list[dict[str, Any]] = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(3)]
    status, body = protocol.answer_message(
        json.dumps([*pings, {"jsonrpc": "2.0", "method": "notifications/x"}]).encode()
    )
    assert status == 200 and [answer["id"] for answer in json.loads(body)] == [0, 1, 2]


def test_self_contained_requests_get_the_status_of_their_error(protocol: McpProtocol) -> None:
    assert ask(protocol, "nothing", {"_meta": MODERN})[0] == 404
    assert ask(protocol, "tools/call", {"_meta": MODERN})[0] == 400
    status, answer = ask(protocol, "ping", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}})
    assert status == 400 and answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}

"""Parsing and building of MCP messages."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import NotFound, QuotaExceeded, SandboxGone, SandboxTimeout
from paddock.live.tools import mcp_messages
from paddock.live.tools.mcp_messages import McpError, McpMessage
from paddock.sandbox.daemon.untrusted_json import MAX_JSON_VALUES, MAX_NON_ASCII_BYTES

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "click", "arguments": {"x": 1}}}


def parse_mcp_message(body: bytes) -> McpMessage | None:
    return asyncio.run(mcp_messages.parse_mcp_message(body))


def parse_mcp_response(body: bytes, request: McpMessage) -> dict[str, Any] | None:
    return asyncio.run(mcp_messages.parse_mcp_response(body, request))


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def refused(body: bytes) -> tuple[int, dict[str, Any]]:
    with pytest.raises(McpError) as raised:
        parse_mcp_message(body)
    document = json.loads(raised.value.response.body)
    assert document["jsonrpc"] == "2.0" and "\n" not in document["error"]["message"]
    return raised.value.response.status, document


def test_tool_call_is_parsed_with_its_tool() -> None:
    message = parse_mcp_message(encoded(CALL))
    assert message is not None
    assert (message.method, message.id, message.tool, message.states_version) == ("tools/call", 7, "click", False)


def test_commas_in_strings_do_not_count_as_values() -> None:
    for size in (MAX_JSON_VALUES, 2**21):
        call: dict[str, Any] = {**CALL, "params": {"name": "write_file", "arguments": {"content": "1,[2{\n" * size}}}
        message = parse_mcp_message(encoded(call))
        assert message is not None and message.arguments == call["params"]["arguments"]


def test_other_messages_have_no_tool() -> None:
    for document in ({**CALL, "method": "tools/list"}, {**CALL, "params": {"name": 3}}, {**CALL, "params": {}}):
        message = parse_mcp_message(encoded(document))
        assert message is not None and message.tool is None


def test_request_with_an_mcp_revision_is_recognized() -> None:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    message = parse_mcp_message(encoded({**CALL, "params": meta}))
    assert message is not None and message.states_version
    assert json.loads(mcp_messages.mcp_result_response(message, {}).body)["result"] == {"resultType": "complete"}


def test_notifications_and_client_responses_need_no_response() -> None:
    notification = parse_mcp_message(encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    assert notification is not None and notification.id is None
    assert parse_mcp_message(encoded({"jsonrpc": "2.0", "id": 1, "result": {}})) is None


@pytest.mark.parametrize(
    ("body", "status", "code", "expected_message"),
    [
        (b"", 400, -32700, "not JSON"),
        (b"{", 400, -32700, "not JSON"),
        (b"\xff\xfe", 400, -32700, "not JSON"),
        (b"[" * 40_000, 400, -32700, "not JSON"),
        (encoded([CALL]), 400, -32600, "one message at a time"),
        (encoded("hello"), 400, -32600, "JSON-RPC"),
        (encoded({"id": 1, "method": "ping"}), 400, -32600, "JSON-RPC"),
        (encoded({**CALL, "id": 1.5}), 400, -32600, "id"),
        (encoded({**CALL, "id": True}), 400, -32600, "id"),
        (encoded({**CALL, "id": None}), 400, -32600, "id"),
        (encoded({**CALL, "method": 3}), 400, -32600, "method"),
        (encoded({**CALL, "params": [1]}), 400, -32602, "params"),
        (b" " * (mcp_messages.MAX_REQUEST_SIZE + 1), 413, -32600, "16 MiB"),
        (b"[" + b"[]," * MAX_JSON_VALUES + b"[]]", 413, -32600, "values"),
        (b"[" * (MAX_JSON_VALUES + 1), 413, -32600, "values"),
        (b"[" + (b"1" * 4000 + b",") * 300 + b"1]", 413, -32600, "digits"),
        ('{"a": "é"}'.encode() + b" " * MAX_NON_ASCII_BYTES, 413, -32600, "ASCII"),
        (('{"a": "' + "\\u2c2c" * 9 + '"}').encode("utf-16"), 400, -32700, "not JSON"),
    ],
)
def test_invalid_message_is_rejected_in_one_line(body: bytes, status: int, code: int, expected_message: str) -> None:
    found, document = refused(body)
    assert (found, document["error"]["code"]) == (status, code)
    assert expected_message in document["error"]["message"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_input_is_parsed_or_rejected(document: Any) -> None:
    with suppress(McpError):
        parse_mcp_message(encoded(document))


def test_unknown_revisions_are_refused_with_the_known_ones() -> None:
    mcp_messages.check_mcp_version(None)
    for version in mcp_messages.VERSIONS:
        mcp_messages.check_mcp_version(version)
    with pytest.raises(McpError) as raised:
        mcp_messages.check_mcp_version("1999-01-01" * 100)
    error = json.loads(raised.value.response.body)["error"]
    assert error["code"] == mcp_messages.UNSUPPORTED_VERSION
    assert error["data"]["supported"] == list(mcp_messages.VERSIONS)
    assert len(error["message"]) < 300


def test_only_a_response_to_the_request_is_accepted() -> None:
    request = McpMessage("ping", 7, {})
    assert parse_mcp_response(b'{"jsonrpc": "2.0", "id": 7, "result": {}}', request) is not None
    assert (
        parse_mcp_response(b'{"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}', request) is not None
    )
    for nonsense in (
        b"",
        b"<html>",
        b"[]",
        b'{"jsonrpc": "2.0", "id": 8, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 7}',
        b'{"jsonrpc": "2.0", "id": 7, "result": []}',
        b'{"id": 7, "result": {}}',
    ):
        assert parse_mcp_response(nonsense, request) is None, nonsense


def test_paddock_errors_map_to_http_statuses() -> None:
    errors = {NotFound("no"): 404, QuotaExceeded("no"): 429, SandboxTimeout("no"): 504, SandboxGone("no"): 502}
    for error, status in errors.items():
        answer = mcp_messages.mcp_response_for_error(error, "a")
        assert answer.status == status
        assert json.loads(answer.body) == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32000, "message": "no"}}


def test_daemon_error_is_reported_in_one_line() -> None:
    assert mcp_messages.daemon_error_text(b'{"code": "X", "message": "no worker\\nat all"}') == (
        "the sandbox's tools failed: no worker"
    )
    assert len(mcp_messages.daemon_error_text(encoded({"message": "x" * 10_000})) or "") < 600
    for nonsense in (b"", b"[]", b"{}", b'{"message": 3}', b'{"message": " "}', b'"message"'):
        assert mcp_messages.daemon_error_text(nonsense) is None

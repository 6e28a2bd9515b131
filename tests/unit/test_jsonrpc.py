"""Messages of MCP, as far as somebody in the middle understands them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import BoxGone, BoxTimeout, NotFound, QuotaExceeded
from paddock.live import jsonrpc
from paddock.live.jsonrpc import Message, Refusal, read_answer, read_message
from paddock.sandbox.exchange import MOST_VALUES

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "click", "arguments": {"x": 1}}}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def refused(body: bytes) -> tuple[int, dict[str, Any]]:
    with pytest.raises(Refusal) as raised:
        read_message(body)
    document = json.loads(raised.value.answer.body)
    assert document["jsonrpc"] == "2.0" and "\n" not in document["error"]["message"]
    return raised.value.answer.status, document


def test_a_call_is_seen_with_its_tool() -> None:
    message = read_message(encoded(CALL))
    assert message is not None
    assert (message.method, message.id, message.tool, message.alone) == ("tools/call", 7, "click", False)


def test_what_is_no_call_names_no_tool() -> None:
    for document in ({**CALL, "method": "tools/list"}, {**CALL, "params": {"name": 3}}, {**CALL, "params": {}}):
        message = read_message(encoded(document))
        assert message is not None and message.tool is None


def test_a_request_that_says_its_own_revision_is_known() -> None:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    message = read_message(encoded({**CALL, "params": meta}))
    assert message is not None and message.alone
    assert json.loads(jsonrpc.result(message, {}).body)["result"] == {"resultType": "complete"}


def test_notifications_and_answers_of_clients_are_nothing_to_answer() -> None:
    notification = read_message(encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    assert notification is not None and notification.id is None
    assert read_message(encoded({"jsonrpc": "2.0", "id": 1, "result": {}})) is None


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        (b"", 400, -32700, "not JSON"),
        (b"{", 400, -32700, "not JSON"),
        (b"\xff\xfe", 400, -32700, "not JSON"),
        (b"[" * 100_000, 400, -32700, "not JSON"),
        (encoded([CALL]), 400, -32600, "one message at a time"),
        (encoded("hello"), 400, -32600, "JSON-RPC"),
        (encoded({"id": 1, "method": "ping"}), 400, -32600, "JSON-RPC"),
        (encoded({**CALL, "id": 1.5}), 400, -32600, "id"),
        (encoded({**CALL, "id": True}), 400, -32600, "id"),
        (encoded({**CALL, "id": None}), 400, -32600, "id"),
        (encoded({**CALL, "method": 3}), 400, -32600, "method"),
        (encoded({**CALL, "params": [1]}), 400, -32602, "params"),
        (b" " * (jsonrpc.LARGEST_REQUEST + 1), 413, -32600, "16 MiB"),
        (b"[" + b"[]," * MOST_VALUES + b"[]]", 413, -32600, "values"),
    ],
)
def test_what_is_no_message_is_refused_in_one_line(body: bytes, status: int, code: int, says: str) -> None:
    found, document = refused(body)
    assert (found, document["error"]["code"]) == (status, code)
    assert says in document["error"]["message"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_whatever_comes_is_a_message_or_refused(document: Any) -> None:
    with suppress(Refusal):
        read_message(encoded(document))


def test_unknown_revisions_are_refused_with_those_that_are_known() -> None:
    jsonrpc.check_version(None)
    for version in jsonrpc.VERSIONS:
        jsonrpc.check_version(version)
    with pytest.raises(Refusal) as raised:
        jsonrpc.check_version("1999-01-01" * 100)
    error = json.loads(raised.value.answer.body)["error"]
    assert error["code"] == jsonrpc.UNSUPPORTED_VERSION
    assert error["data"]["supported"] == list(jsonrpc.VERSIONS)
    assert len(error["message"]) < 300


def test_only_an_answer_to_the_question_counts() -> None:
    asked = Message("ping", 7, {})
    assert read_answer(b'{"jsonrpc": "2.0", "id": 7, "result": {}}', asked) is not None
    assert read_answer(b'{"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}', asked) is not None
    for nonsense in (
        b"",
        b"<html>",
        b"[]",
        b'{"jsonrpc": "2.0", "id": 8, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 7}',
        b'{"jsonrpc": "2.0", "id": 7, "result": []}',
        b'{"id": 7, "result": {}}',
    ):
        assert read_answer(nonsense, asked) is None, nonsense


def test_errors_of_ours_have_a_status_that_fits() -> None:
    errors = {NotFound("no"): 404, QuotaExceeded("no"): 429, BoxTimeout("no"): 504, BoxGone("no"): 502}
    for error, status in errors.items():
        answer = jsonrpc.refusal(error, "a")
        assert answer.status == status
        assert json.loads(answer.body) == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32000, "message": "no"}}


def test_what_a_daemon_says_is_wrong_is_told_in_one_line() -> None:
    assert jsonrpc.trouble(b'{"code": "X", "message": "no worker\\nat all"}') == (
        "the tools of the sandbox do not work: no worker"
    )
    assert len(jsonrpc.trouble(encoded({"message": "x" * 10_000})) or "") < 600
    for nonsense in (b"", b"[]", b"{}", b'{"message": 3}', b'{"message": " "}', b'"message"'):
        assert jsonrpc.trouble(nonsense) is None

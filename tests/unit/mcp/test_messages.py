"""JSON-RPC messages keep their values as bytes."""

from __future__ import annotations

import pytest
from msgspec import Raw

from paddock.errors import InvalidInput
from paddock.mcp.protocol.messages import decode_message, decode_value, encode_message, make_error, make_request


@pytest.mark.parametrize(
    "content",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"b":12345678901234567890123,"a":1.10,"e":1e400}}',
        b'{"jsonrpc":"2.0","id":"a","result":{"z":[],"a":{"\xc3\xa9":null}}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":12345678901234567890123,"method":"ping"}',
    ],
)
def test_messages_keep_their_bytes(content: bytes) -> None:
    assert encode_message(decode_message(content)) == content


def test_half_characters_of_javascript_are_kept() -> None:
    message = decode_message(b'{"jsonrpc":"2.0","id":1,"result":{"text":"cut \\ud83d","n":12345678901234567890123}}')
    assert message.result_object() == {"text": "cut \ud83d", "n": 12345678901234567890123}
    assert b"\\ud83d" in encode_message(message)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"1",
        b"{}",
        b'{"jsonrpc":"1.0","id":1,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":true,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"x"}',
        b'{"jsonrpc":"2.0","id":null,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":5}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud83d","id":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        '{"jsonrpc":"2.0","id":1,"method":"x"}'.encode("utf-16"),
    ],
)
def test_other_documents_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_message(content)


def test_kinds_of_messages() -> None:
    request, error = make_request(1, "ping", {}), make_error(None, -32700, "no JSON", data=[1])
    assert request.is_request and not request.is_notification and not request.is_response
    assert error.is_response and error.error_object() == {"code": -32700, "message": "no JSON", "data": [1]}
    assert decode_message(b'{"jsonrpc":"2.0","method":"x"}').is_notification
    with pytest.raises(InvalidInput, match="params: must be an object"):
        decode_message(b'{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}').params_object()
    assert decode_value(Raw(b"1e400")) == float("inf")

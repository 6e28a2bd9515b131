"""JSON-RPC messages. Parameters and results stay bytes, so that they are forwarded unchanged.

Only the envelope is decoded: `id`, `method` and which of `params`, `result` and `error` a message has. Code that needs
a field decodes it with `decode_value`; everything else passes through, large integers and the order of keys included.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from paddock.errors import InvalidInput

MessageId: TypeAlias = int | str

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
LEGACY_RESOURCE_NOT_FOUND = -32002
LEGACY_REQUEST_TIMEOUT = -32001


class JsonRpcMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A request (method and id), a notification (method only), or a response (result or error)."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: MessageId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        return isinstance(self.method, str) and isinstance(self.id, (int, str))

    @property
    def is_notification(self) -> bool:
        return isinstance(self.method, str) and self.id is UNSET

    @property
    def is_response(self) -> bool:
        return self.method is UNSET and (self.result is not UNSET or self.error is not UNSET)

    @property
    def request_id(self) -> MessageId:
        """The id of a request."""
        assert isinstance(self.id, (int, str)), "only requests have an id for sure"
        return self.id

    def with_id(self, message_id: MessageId) -> JsonRpcMessage:
        return msgspec.structs.replace(self, id=message_id)

    def with_params(self, params: Any) -> JsonRpcMessage:
        return msgspec.structs.replace(self, params=encode_value(params))

    def with_result(self, result: Any) -> JsonRpcMessage:
        return msgspec.structs.replace(self, result=encode_value(result))

    def params_object(self) -> dict[str, Any]:
        """Decode the parameters; empty if there are none. Raises `InvalidInput`."""
        return _decode_object(self.params, "params")

    def result_object(self) -> dict[str, Any]:
        """Decode the result; empty for errors. Raises `InvalidInput`."""
        return _decode_object(self.result, "result")

    def error_object(self) -> dict[str, Any]:
        """Decode the error; empty for results. Raises `InvalidInput`."""
        return _decode_object(self.error, "error")


_DECODER = msgspec.json.Decoder(JsonRpcMessage)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])


def decode_message(content: bytes | bytearray | str) -> JsonRpcMessage:
    """Decode one message. Raises `InvalidInput` for anything that is not a JSON-RPC message."""
    try:
        if not isinstance(content, str):
            content.decode()  # Values that stay bytes are not checked otherwise.
        message = _decode_envelope(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the message is not JSON-RPC 2.0: {str(error)[:200]}") from None
    if isinstance(message.method, str):
        if message.id is None or message.result is not UNSET or message.error is not UNSET:
            raise InvalidInput("the message is not JSON-RPC 2.0: a request has an id, and no result or error")
    elif (message.result is UNSET) == (message.error is UNSET):
        raise InvalidInput("the message is not JSON-RPC 2.0: it needs a method, a result or an error")
    return message


def _decode_envelope(content: bytes | bytearray | str) -> JsonRpcMessage:
    try:
        return _DECODER.decode(content)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # JavaScript writes half of a character that was cut as an escape, such as "\\ud83d"; msgspec refuses that.
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError("it is not an object") from None
        values = {key: encode_value(document[key]) for key in ("params", "result", "error") if key in document}
        envelope = {key: document[key] for key in ("jsonrpc", "id", "method") if key in document}
        return msgspec.convert({**envelope, **values}, JsonRpcMessage)


def encode_message(message: JsonRpcMessage) -> bytes:
    """Encode a message; never contains a newline outside of what the sender wrote."""
    return msgspec.json.encode(message)


def decode_value(raw: Raw | bytes) -> Any:
    """Decode a value that stayed bytes. Raises `InvalidInput`."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return json.loads(bytes(raw))  # Accepts lone surrogates and numbers beyond the range of doubles.
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the message has a value that cannot be decoded: {str(error)[:200]}") from None


def decode_raw_fields(raw: Raw | UnsetType) -> dict[str, Raw]:
    """Decode an object and keep its values as bytes; of duplicate keys the last counts. Raises `InvalidInput`."""
    if isinstance(raw, UnsetType):
        return {}
    try:
        return _FIELDS.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidInput("the message has parameters or a result that is no object") from None


def encode_value(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (UnicodeEncodeError, OverflowError):
        return Raw(json.dumps(value, separators=(",", ":")).encode())


def make_request(message_id: MessageId, method: str, params: Any) -> JsonRpcMessage:
    return JsonRpcMessage(id=message_id, method=method, params=encode_value(params))


def make_notification(method: str, params: Any) -> JsonRpcMessage:
    return JsonRpcMessage(method=method, params=encode_value(params))


def make_result(message_id: MessageId, result: Any) -> JsonRpcMessage:
    return JsonRpcMessage(id=message_id, result=encode_value(result))


def make_error(message_id: MessageId | None, code: int, text: str, data: Any = None) -> JsonRpcMessage:
    """Build an error response; an id of None means that the id of the request could not be read."""
    error = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return JsonRpcMessage(id=message_id, error=encode_value(error))


def _decode_object(raw: Raw | UnsetType, field: str) -> dict[str, Any]:
    if isinstance(raw, UnsetType):
        return {}
    value = decode_value(raw)
    if not isinstance(value, dict):
        raise InvalidInput(f"{field}: must be an object")
    return value

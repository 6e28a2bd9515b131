"""Reads and rewrites single fields of parameters and results; the other fields stay bytes.

Duplicate keys and keys that differ only in case would let a program pass one name to the gateway and another one to a
server that reads JSON differently. So objects that are decided from are written again with one value per key, and keys
that another reader might take for the decisive one are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from paddock.errors import InvalidInput, Unavailable
from paddock.mcp.protocol import JsonRpcMessage
from paddock.mcp.protocol.messages import decode_value, encode_value

RawObject = dict[str, Raw]
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_TEXT = msgspec.json.Decoder(str)
_ENCODER = msgspec.json.Encoder()


class _Named(msgspec.Struct):
    name: str


class _Located(msgspec.Struct):
    uri: str


_NAMED = msgspec.json.Decoder(_Named)
_LOCATED = msgspec.json.Decoder(_Located)


def raw_object(raw: Raw | UnsetType | bytes, what: str) -> RawObject:
    """Decode an object, but not its values: they stay bytes. Raises `InvalidInput`."""
    if isinstance(raw, UnsetType):
        return {}
    try:
        return _OBJECT.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Lone surrogates and a few others are only accepted by the slower decoder.
        value = decode_value(raw)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what}: must be an object")
    return {key: encode_value(each) for key, each in value.items()}


def raw_array(raw: Raw | bytes, what: str) -> list[Raw]:
    """Decode an array, but not its items: they stay bytes. Raises `InvalidInput`."""
    try:
        return _ARRAY.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = decode_value(raw)
    if not isinstance(value, list):
        raise InvalidInput(f"{what}: must be a list")
    return [encode_value(each) for each in value]


def result_fields(response: JsonRpcMessage) -> RawObject:
    """Return the fields of a result; empty for an error. Raises `Unavailable` if the server sent something else."""
    try:
        return raw_object(response.result, "result")
    except InvalidInput as error:
        raise Unavailable(f"the server's answer cannot be read: {error.message}") from None


def result_items(result: Mapping[str, Raw], field: str) -> list[Raw]:
    """Return the items of a list in a result. Raises `Unavailable` if the server sent something else."""
    try:
        return raw_array(result[field], f"result.{field}")
    except InvalidInput as error:
        raise Unavailable(f"the server's answer cannot be read: {error.message}") from None


def raw_text(raw: Raw | bytes) -> str | None:
    """Decode text; None if the value is something else."""
    try:
        return _TEXT.decode(raw)
    except (msgspec.MsgspecError, ValueError):
        pass
    try:
        value = decode_value(raw)
    except InvalidInput:
        return None
    return value if isinstance(value, str) else None


def item_name(raw: Raw) -> str | None:
    """Return the name of a tool or prompt."""
    try:
        return _NAMED.decode(raw).name
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _slow_text(raw, "name")


def item_uri(raw: Raw) -> str | None:
    """Return the URI of a resource or of a content."""
    try:
        return _LOCATED.decode(raw).uri
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _slow_text(raw, "uri")


def _slow_text(raw: Raw, field: str) -> str | None:
    try:
        value = decode_value(raw)
    except InvalidInput:
        return None
    text = value.get(field) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def encode_raw(value: Any) -> Raw:
    """Encode a value that may contain bytes of messages."""
    try:
        return Raw(_ENCODER.encode(value))
    except UnicodeEncodeError:
        pass
    try:
        return encode_value(value)
    except TypeError:
        raise InvalidInput("a key of the message has characters that cannot be passed on") from None


def replace_field(raw: Raw, field: str, value: str) -> Raw:
    """Return an object with another text as the value of one field."""
    return encode_raw(raw_object(raw, "item") | {field: encode_raw(value)})


def decisive_text(params: Mapping[str, Raw], field: str) -> str:
    """Return the text of a parameter from which is decided. Raises `InvalidInput`."""
    if field not in params:
        raise InvalidInput(f"params.{field}: is missing")
    text = raw_text(params[field])
    if text is None:
        raise InvalidInput(f"params.{field}: must be text")
    for key in params:
        if key != field and key.casefold() == field:
            raise InvalidInput(f"params: has both {field!r} and {key[:20]!r}; send one of them")
    return text


def with_raw_params(request: JsonRpcMessage, params: Mapping[str, Raw]) -> JsonRpcMessage:
    """Return the request with other parameters; each key is written once."""
    return msgspec.structs.replace(request, params=encode_raw(params))


def with_raw_result(response: JsonRpcMessage, result: Mapping[str, Raw]) -> JsonRpcMessage:
    """Return the response with another result."""
    return msgspec.structs.replace(response, result=encode_raw(result))

"""Reads and changes single fields of requests and results; everything else stays as it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from paddock.errors import InvalidInput
from paddock.mcp.protocol import JsonRpcMessage
from paddock.mcp.protocol.messages import decode_value, encode_value
from paddock.mcp.protocol.revisions import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_REVISION,
    META_SUBSCRIPTION,
    PROGRESS_TOKEN,
    STATELESS_REVISION,
)


class RequestMeta(msgspec.Struct):
    """Fields of a request's `_meta` that connections use."""

    revision: str = msgspec.field(default=STATELESS_REVISION, name=META_REVISION)
    client_info: Raw | UnsetType = msgspec.field(default=UNSET, name=META_CLIENT_INFO)
    capabilities: Raw | UnsetType = msgspec.field(default=UNSET, name=META_CLIENT_CAPABILITIES)
    log_level: str | UnsetType = msgspec.field(default=UNSET, name=META_LOG_LEVEL)
    progress_token: int | str | UnsetType = msgspec.field(default=UNSET, name=PROGRESS_TOKEN)


class RequestFields(msgspec.Struct):
    """Fields of a request's parameters that connections use."""

    meta: RequestMeta = msgspec.field(default_factory=RequestMeta, name="_meta")
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    request_state: str | UnsetType = msgspec.field(default=UNSET, name="requestState")
    input_responses: Raw | UnsetType = msgspec.field(default=UNSET, name="inputResponses")


_FIELDS = msgspec.json.Decoder(RequestFields)


class _ErrorCode(msgspec.Struct):
    code: int


_ERROR_CODE = msgspec.json.Decoder(_ErrorCode)


def request_fields(request: JsonRpcMessage) -> RequestFields:
    """Decode the parameters of a request. Raises `InvalidInput`."""
    if not isinstance(request.params, Raw):
        return RequestFields()
    try:
        return _FIELDS.decode(request.params)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"params: {str(error)[:200]}") from None


def raw_object(raw: Raw | UnsetType) -> dict[str, Raw]:
    """Return the fields of an encoded object, each still encoded. Raises `InvalidInput` for anything else."""
    if isinstance(raw, UnsetType):
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = decode_value(raw)
    if not isinstance(value, dict):
        raise InvalidInput("the message has a value that must be an object")
    return {key: encode_value(each) for key, each in value.items()}


def change_meta(message: JsonRpcMessage, changes: Mapping[str, Any]) -> JsonRpcMessage:
    """Return the message with changed fields in `params._meta`; None removes a field."""
    params = raw_object(message.params)
    meta = raw_object(params.get("_meta", UNSET))
    for key, value in changes.items():
        if value is None:
            meta.pop(key, None)
        else:
            meta[key] = encode_value(value)
    return message.with_params(params | {"_meta": meta} if meta else {k: v for k, v in params.items() if k != "_meta"})


def with_subscription_id(message: JsonRpcMessage, subscription: int | str) -> JsonRpcMessage:
    return change_meta(message, {META_SUBSCRIPTION: subscription})


def error_code(response: JsonRpcMessage) -> int | None:
    """Return the code of an error response; None for results and malformed errors."""
    if not isinstance(response.error, Raw):
        return None
    try:
        return _ERROR_CODE.decode(response.error).code
    except (msgspec.MsgspecError, ValueError):
        return None

"""Translates between the stateless form and messages of older revisions, as their clients read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from paddock.errors import InvalidInput
from paddock.mcp.protocol.messages import (
    INVALID_PARAMS,
    LEGACY_RESOURCE_NOT_FOUND,
    JsonRpcMessage,
    decode_raw_fields,
    decode_value,
    encode_value,
)
from paddock.mcp.protocol.revisions import (
    INPUT_REQUIRED,
    LATEST_LEGACY_REVISION,
    LEGACY_REVISIONS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_REVISION,
    META_SERVER_INFO,
    META_SUBSCRIPTION,
    RESULT_TYPE,
    STATELESS_REVISION,
)

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_STATELESS_FIELDS = (RESULT_TYPE, "ttlMs", "cacheScope")


def negotiate_revision(requested: object) -> str:
    """Return the revision of a session: the client's, or the latest that has sessions."""
    return requested if isinstance(requested, str) and requested in LEGACY_REVISIONS else LATEST_LEGACY_REVISION


def stateless_meta(capabilities: Raw, client_info: Raw | None, log_level: str | None) -> dict[str, Any]:
    """Return the metadata that each request of a session gets."""
    meta: dict[str, Any] = {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: capabilities}
    if client_info is not None:
        meta[META_CLIENT_INFO] = client_info
    if log_level is not None:
        meta[META_LOG_LEVEL] = log_level
    return meta


def add_meta(fields: Mapping[str, Raw], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the metadata of the session; the request's own, such as a progress token, stays."""
    own = decode_raw_fields(fields["_meta"]) if "_meta" in fields else {}
    return {**fields, "_meta": {**own, **meta}}


def initialize_result(discovered: JsonRpcMessage, revision: str) -> dict[str, Any]:
    """Return the result of `initialize` for a discovery. Raises `InvalidInput`."""
    fields = decode_raw_fields(discovered.result)
    meta = decode_raw_fields(fields["_meta"]) if "_meta" in fields else {}
    result: dict[str, Any] = {
        "protocolVersion": revision,
        "capabilities": fields.get("capabilities", {}),
        "serverInfo": meta.get(META_SERVER_INFO, {"name": "paddock", "version": "1"}),
    }
    if "instructions" in fields:
        result["instructions"] = fields["instructions"]
    if own := {key: value for key, value in meta.items() if key != META_SERVER_INFO}:
        result["_meta"] = own
    return result


def is_input_required(response: JsonRpcMessage) -> bool:
    """Return whether a response asks the client for input."""
    if not response.result or b'"input_required"' not in bytes(response.result):
        return False
    try:
        result_type = decode_raw_fields(response.result).get(RESULT_TYPE)
        return result_type is not None and decode_value(result_type) == INPUT_REQUIRED
    except InvalidInput:
        return False


def legacy_response(response: JsonRpcMessage, method: str) -> JsonRpcMessage:
    """Return a response without what strict clients of older revisions refuse."""
    try:
        if response.error:
            return _legacy_error(response, method)
        fields: dict[str, Any] = dict(decode_raw_fields(response.result))
        kept = {key: value for key, value in fields.items() if key not in _STATELESS_FIELDS}
        if method == "tools/list" and b'"outputSchema"' in bytes(response.result or b""):
            kept["tools"] = _object_schemas(fields.get("tools"))
        if method == "tools/call" and "structuredContent" in kept and bytes(kept["structuredContent"])[:1] != b"{":
            del kept["structuredContent"]  # Older revisions know objects only; the text content says the same.
    except (InvalidInput, TypeError):
        return response
    return response if len(kept) == len(fields) and kept == fields else response.with_result(kept)


def legacy_notification(notification: JsonRpcMessage) -> JsonRpcMessage:
    """Return a notification of a subscription without the id of the subscription, which the client does not know."""
    if not notification.params or META_SUBSCRIPTION.encode() not in bytes(notification.params):
        return notification
    params: dict[str, Any] = dict(decode_raw_fields(notification.params))
    meta = decode_raw_fields(params.pop("_meta", Raw(b"{}")))
    meta.pop(META_SUBSCRIPTION, None)
    return notification.with_params({**params, "_meta": meta} if meta else params)


def listen_filter(server_capabilities: Mapping[str, Any], uris: set[str]) -> dict[str, Any]:
    """Return the subscription for all that a session is told."""
    wanted: dict[str, Any] = {}
    for kind in ("tools", "prompts", "resources"):
        declared = server_capabilities.get(kind)
        if isinstance(declared, dict) and declared.get("listChanged"):
            wanted[f"{kind}ListChanged"] = True
    if uris:
        wanted["resourceSubscriptions"] = sorted(uris)
    return wanted


def _legacy_error(response: JsonRpcMessage, method: str) -> JsonRpcMessage:
    error = response.error_object()
    data = error.get("data")
    if method == "resources/read" and error.get("code") == INVALID_PARAMS and isinstance(data, dict) and "uri" in data:
        changed = encode_value({**error, "code": LEGACY_RESOURCE_NOT_FOUND})
        return JsonRpcMessage(id=response.id, error=changed)
    return response


def _object_schemas(tools: Raw | None) -> list[dict[str, Raw]]:
    """Return tools without output schemas of other types than objects, which strict clients refuse with the list."""
    found = []
    for tool in [] if tools is None else _decode_list(tools):
        fields = decode_raw_fields(tool)
        if "outputSchema" in fields:
            schema = decode_value(fields["outputSchema"])
            if not isinstance(schema, dict) or schema.get("type") != "object":
                del fields["outputSchema"]
        found.append(fields)
    return found


def _decode_list(raw: Raw) -> list[Raw]:
    try:
        return msgspec.json.decode(raw, type=list[Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidInput("the result has tools that are no list") from None

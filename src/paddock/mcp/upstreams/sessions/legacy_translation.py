"""Translates requests and results between the stateless form and revisions with sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from paddock.errors import InvalidInput, PaddockError
from paddock.mcp.protocol import JsonRpcMessage
from paddock.mcp.protocol.messages import INVALID_PARAMS, LEGACY_RESOURCE_NOT_FOUND, encode_value
from paddock.mcp.protocol.revisions import (
    COMPLETE,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_REVISION,
    META_SERVER_INFO,
    PROGRESS_TOKEN,
    RESULT_TYPE,
    STATELESS_REVISION,
)
from paddock.mcp.upstreams.request_fields import raw_object
from paddock.mcp.upstreams.response_cache import CACHED_METHODS

LIST_TTL_MS = 5_000
"""How long lists of servers that give no time are fresh."""
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
INPUT_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Requests of servers that clients answer, and the capability they need."""
INPUT_METHODS = ("tools/call", "prompts/get", "resources/read")
"""Requests of clients that can end with `input_required`."""
SESSION_METHODS = frozenset(("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"))
"""Requests that the stateless revision does not have; sessions make them by themselves."""
_STATELESS_META = (META_REVISION, META_CLIENT_INFO, META_CLIENT_CAPABILITIES, META_LOG_LEVEL)
_RETRY_FIELDS = ("requestState", "inputResponses")


class _ResultHints(msgspec.Struct):
    result_type: Raw | UnsetType = msgspec.field(default=UNSET, name=RESULT_TYPE)
    ttl: Raw | UnsetType = msgspec.field(default=UNSET, name="ttlMs")
    scope: Raw | UnsetType = msgspec.field(default=UNSET, name="cacheScope")


_HINTS = msgspec.json.Decoder(_ResultHints)


def legacy_request(request: JsonRpcMessage, message_id: int, has_progress: bool) -> JsonRpcMessage:
    """Return a request as a server with sessions expects it, with another id that is also its progress token."""
    params = raw_object(request.params)
    meta = raw_object(params.pop("_meta", UNSET))
    for key in _STATELESS_META:
        meta.pop(key, None)
    for key in _RETRY_FIELDS:
        params.pop(key, None)
    if has_progress:
        meta[PROGRESS_TOKEN] = encode_value(message_id)
    if meta:
        params["_meta"] = encode_value(meta)
    return msgspec.structs.replace(request, id=message_id, params=encode_value(params) if params else UNSET)


def stateless_response(response: JsonRpcMessage, request_id: int | str, method: str) -> JsonRpcMessage:
    """Return a response in the stateless form: type of the result, hints for caches, codes of errors."""
    if isinstance(response.error, Raw):
        error = response.error_object()
        if error.get("code") == LEGACY_RESOURCE_NOT_FOUND:
            error["code"] = INVALID_PARAMS
            return msgspec.structs.replace(response, id=request_id, error=encode_value(error))
        return response.with_id(request_id)
    return msgspec.structs.replace(response, id=request_id, result=_complete_result(response.result, method))


def discover_result(initialized: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `server/discover` for a server's answer to `initialize`."""
    result: dict[str, Any] = {
        RESULT_TYPE: COMPLETE,
        "supportedVersions": [STATELESS_REVISION],
        "capabilities": initialized.get("capabilities") or {},
        "ttlMs": LIST_TTL_MS,
        "cacheScope": "private",
    }
    if isinstance(initialized.get("instructions"), str):
        result["instructions"] = initialized["instructions"]
    if isinstance(initialized.get("serverInfo"), dict):
        result["_meta"] = {META_SERVER_INFO: initialized["serverInfo"]}
    return result


def request_digest(request: JsonRpcMessage) -> bytes:
    """Return a digest of a request that is the same when it is repeated with answers to the server's requests."""
    try:
        params = {key: value for key, value in request.params_object().items() if key not in (*_RETRY_FIELDS, "_meta")}
        text = json.dumps([request.method, params], sort_keys=True)
    except (PaddockError, ValueError, RecursionError):
        raise InvalidInput("params: cannot be read") from None
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def is_logged(level: object, minimum: str | UnsetType) -> bool:
    """Return whether a log notification has the level that a request asked for."""
    if not isinstance(minimum, str) or minimum not in LOG_LEVELS:
        return False
    return level not in LOG_LEVELS or LOG_LEVELS.index(str(level)) >= LOG_LEVELS.index(minimum)


def _complete_result(raw: Raw | UnsetType, method: str) -> Raw:
    """Add missing fields to a result without decoding the others."""
    content = bytes(raw) if isinstance(raw, Raw) else b"{}"
    if not content.startswith(b"{"):
        return Raw(content)
    try:
        hints = _HINTS.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Raw(content)
    added: dict[str, Any] = {}
    if hints.result_type is UNSET:
        added[RESULT_TYPE] = COMPLETE
    if method in CACHED_METHODS or method == "resources/read":
        if hints.ttl is UNSET:
            added["ttlMs"] = 0 if method == "resources/read" else LIST_TTL_MS
        if hints.scope is UNSET:
            added["cacheScope"] = "private"
    if not added:
        return Raw(content)
    rest = content[1:].lstrip()
    return Raw(msgspec.json.encode(added)[:-1] + (b"" if rest.startswith(b"}") else b",") + rest)

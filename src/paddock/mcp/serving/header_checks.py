"""Checks that the headers of a stateless request say the same as its body. The body alone decides what is done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paddock.mcp.protocol.headers import (
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_METHODS,
    PARAMETER_HEADER_PREFIX,
    REVISION_HEADER,
    ParameterPath,
    decode_header_value,
    header_text,
)
from paddock.mcp.protocol.messages import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, MessageId
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION
from paddock.mcp.serving.http_messages import Refusal

_INVALID_CHARACTERS = re.compile(r"[^\t\x20-\x7e]")
_DECIMAL = re.compile(r"(-?[0-9]{1,30})(?:\.0*)?")
MAX_QUOTED = 100


def check_standard_headers(
    headers: Mapping[str, str], message_id: MessageId, method: str, params: Mapping[str, Any], meta: Any
) -> None:
    """Check the metadata of a request and the headers that mirror it. Raises `Refusal`."""
    if not isinstance(meta, dict):
        raise Refusal(400, INVALID_PARAMS, f"params._meta must have {META_REVISION}", message_id=message_id)
    for key in (META_REVISION, META_CLIENT_CAPABILITIES):
        if key not in meta:
            raise Refusal(400, INVALID_PARAMS, f"params._meta must have {key}", message_id=message_id)
    revision = meta[META_REVISION]
    if not isinstance(meta[META_CLIENT_CAPABILITIES], dict):
        raise Refusal(
            400, INVALID_PARAMS, f"params._meta: {META_CLIENT_CAPABILITIES} must be an object", message_id=message_id
        )
    _compare(headers, REVISION_HEADER, revision, message_id)
    _compare(headers, METHOD_HEADER, method, message_id)
    if method in NAMED_METHODS and isinstance(name := params.get(NAMED_METHODS[method]), str):
        _compare(headers, NAME_HEADER, name, message_id, encoded=True)
    if revision != STATELESS_REVISION:
        raise unsupported_revision(revision, message_id)


def unsupported_revision(revision: str, message_id: MessageId | None) -> Refusal:
    data = {"supported": [STATELESS_REVISION], "requested": str(revision)[:MAX_QUOTED]}
    return Refusal(400, UNSUPPORTED_VERSION, "Unsupported protocol version", message_id=message_id, data=data)


def check_parameter_headers(
    mirrored: Mapping[ParameterPath, str], headers: Mapping[str, str], arguments: Any, message_id: MessageId
) -> None:
    """Check the `Mcp-Param-` headers of a tool call against its arguments. Raises `Refusal`."""
    for path, name in mirrored.items():
        header = PARAMETER_HEADER_PREFIX + name
        sent = headers.get(header.lower())
        value = _value_at(arguments, path)
        text = header_text(value)
        if text is None:
            if sent is not None:
                raise _mismatch(f"{header} is sent, but the argument {'.'.join(path)} has no such value", message_id)
        elif sent is None:
            raise _mismatch(f"{header} is missing; it must repeat the argument {'.'.join(path)}", message_id)
        elif not _is_same_value(sent, value, text):
            raise _mismatch(f"{header} differs from the argument {'.'.join(path)}", message_id)


def _compare(
    headers: Mapping[str, str], header: str, value: Any, message_id: MessageId, *, encoded: bool = False
) -> None:
    sent = headers.get(header.lower())
    if sent is None:
        raise _mismatch(f"the header {header} is missing", message_id)
    if _INVALID_CHARACTERS.search(sent):
        raise _mismatch(f"the header {header} has characters that headers cannot have", message_id)
    if (decode_header_value(sent) if encoded else sent) != value:
        raise _mismatch(
            f"the header {header} is {sent[:MAX_QUOTED]!r}, but the body says {str(value)[:MAX_QUOTED]!r}", message_id
        )


def _value_at(arguments: Any, path: ParameterPath) -> Any:
    for key in path:
        arguments = arguments.get(key) if isinstance(arguments, dict) else None
    return arguments


def _is_same_value(sent: str, value: Any, text: str) -> bool:
    decoded = None if _INVALID_CHARACTERS.search(sent) else decode_header_value(sent)
    if decoded == text:
        return True
    if isinstance(value, (int, float)) and not isinstance(value, bool) and decoded is not None:
        match = _DECIMAL.fullmatch(decoded)
        return bool(match and int(match[1]) == value)
    return False


def _mismatch(text: str, message_id: MessageId) -> Refusal:
    return Refusal(400, HEADER_MISMATCH, f"Header mismatch: {text}", message_id=message_id)

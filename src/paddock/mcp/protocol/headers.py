"""HTTP headers of MCP: names, encoding of values, and parameters that are mirrored by `x-mcp-header`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

REVISION_HEADER = "MCP-Protocol-Version"
METHOD_HEADER = "Mcp-Method"
NAME_HEADER = "Mcp-Name"
PARAMETER_HEADER_PREFIX = "Mcp-Param-"
SESSION_HEADER = "Mcp-Session-Id"
ACCEPT_BOTH = "application/json, text/event-stream"

NAMED_METHODS: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods with `Mcp-Name`, and the parameter that it repeats."""

MAX_SAFE_INTEGER = 2**53 - 1
_ANNOTATION = "x-mcp-header"
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_SAFE = re.compile(r"[\x20-\x7e]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRIMITIVES = ("string", "integer", "boolean")
_SCHEMA_KEYWORDS = frozenset(
    "items contains additionalProperties unevaluatedItems unevaluatedProperties propertyNames not if then else"
    " contentSchema allOf anyOf oneOf prefixItems".split()
)
_SCHEMA_MAPS = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))

ParameterPath: TypeAlias = tuple[str, ...]
MirroredParameters: TypeAlias = Mapping[ParameterPath, str]
"""Paths of parameters, and the names of their headers without the prefix."""


def encode_header_value(value: str) -> str:
    """Return a value as it is sent in a header, in Base64 where plain text would not survive."""
    if _SAFE.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode(errors='surrogatepass')).decode()}?="


def decode_header_value(value: str) -> str | None:
    """Return the value of a header; None if its Base64 is malformed."""
    match = _ENCODED.fullmatch(value)
    if match is None:
        return value
    try:
        content = base64.b64decode(match[1], validate=True)
        return content.decode() if base64.b64encode(content).decode() == match[1] else None
    except (binascii.Error, ValueError):
        return None


def mirrored_parameters(schema: Any) -> MirroredParameters:
    """Return the parameters of an input schema that are mirrored as headers. Raises `ValueError` for invalid ones."""
    found: dict[ParameterPath, str] = {}
    names: set[str] = set()
    for path, position in _schema_positions(schema):
        if _ANNOTATION not in position:
            continue
        name = position[_ANNOTATION]
        if not path:
            raise ValueError(f"{_ANNOTATION} is at a place that is not reached through 'properties' alone")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"{_ANNOTATION} of {'.'.join(path)[:100]} is not the name of a header")
        if position.get("type") not in _PRIMITIVES:
            raise ValueError(f"{_ANNOTATION} of {'.'.join(path)[:100]} needs the type string, integer or boolean")
        if name.lower() in names:
            raise ValueError(f"{_ANNOTATION} {name[:100]} is used twice")
        names.add(name.lower())
        found[path] = name
    return found


def parameter_headers(mirrored: MirroredParameters, arguments: Any) -> dict[str, str]:
    """Return the `Mcp-Param-` headers of a call's arguments; absent values and null have none."""
    headers = {}
    for path, name in mirrored.items():
        value = arguments
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if (text := header_text(value)) is not None:
            headers[PARAMETER_HEADER_PREFIX + name] = encode_header_value(text)
    return headers


def header_text(value: Any) -> str | None:
    """Return a value as the text of a header; None if it cannot be one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) <= MAX_SAFE_INTEGER):
        return str(value)
    return None


def _schema_positions(schema: Any) -> Iterator[tuple[ParameterPath | None, dict[str, Any]]]:
    """Yield each part of a schema, with its path if it is reached through `properties` alone."""
    left: list[tuple[ParameterPath | None, Any]] = [((), schema)]
    while left:
        path, position = left.pop()
        if isinstance(position, list):
            left += [(None, each) for each in position]
        if not isinstance(position, dict):
            continue
        yield path, position
        for keyword, value in position.items():
            if keyword == "properties" and isinstance(value, dict):
                left += [(None if path is None else (*path, name), each) for name, each in value.items()]
            elif keyword in _SCHEMA_KEYWORDS:
                left.append((None, value))
            elif keyword in _SCHEMA_MAPS and isinstance(value, dict):
                left += [(None, each) for each in value.values()]

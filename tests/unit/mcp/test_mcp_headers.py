"""Header values and mirrored parameters of the MCP specification."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paddock.mcp.protocol.headers import (
    decode_header_value,
    encode_header_value,
    mirrored_parameters,
    parameter_headers,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_values_are_encoded_as_in_the_specification(value: str, encoded: str) -> None:
    assert encode_header_value(value) == encoded
    assert decode_header_value(encoded) == value


@given(some.text(alphabet=some.characters(exclude_categories=["Cs"])))
def test_every_text_survives_a_header(value: str) -> None:
    encoded = encode_header_value(value)
    assert encoded.isascii() and encoded == encoded.strip() and "\n" not in encoded
    assert decode_header_value(encoded) == value


@pytest.mark.parametrize("malformed", ["=?base64?%%%?=", "=?base64?/w==?=", "=?base64?QR==?=", "=?base64?QQ=?="])
def test_malformed_base64_is_nothing(malformed: str) -> None:
    assert decode_header_value(malformed) is None


def test_nested_parameters_are_mirrored() -> None:
    nested = {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}}
    schema = {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}, "at": nested}}
    mirrored = mirrored_parameters(schema)
    assert parameter_headers(mirrored, {"on": True, "at": {"zone": -7}}) == {
        "Mcp-Param-On": "true",
        "Mcp-Param-Zone": "-7",
    }
    assert parameter_headers(mirrored, {"on": None, "at": "text"}) == {}
    assert parameter_headers(mirrored, ["not", "an", "object"]) == {}
    assert parameter_headers(mirrored, {"at": {"zone": 2**53}}) == {}


def _annotated(**position: Any) -> dict[str, Any]:
    return {"properties": {"a": {"type": "string", "x-mcp-header": "A"} | position}}


@pytest.mark.parametrize(
    "schema",
    [
        _annotated(**{"x-mcp-header": ""}),
        _annotated(**{"x-mcp-header": "a b"}),
        _annotated(**{"x-mcp-header": "a\r\nEvil: 1"}),
        _annotated(**{"x-mcp-header": 5}),
        _annotated(type="number"),
        _annotated(type=["string", "null"]),
        {"x-mcp-header": "Root", "type": "string"},
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [_annotated()]},
        {"$defs": {"a": _annotated()}},
        {"properties": _annotated()["properties"] | {"b": {"type": "string", "x-mcp-header": "a"}}},
    ],
)
def test_invalid_annotations_are_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        mirrored_parameters(schema)


def test_data_is_not_mistaken_for_an_annotation() -> None:
    data = {"x-mcp-header": "A"}
    assert mirrored_parameters({"properties": {"a": {"type": "object", "default": data, "enum": [data]}}}) == {}
    assert mirrored_parameters(None) == {}

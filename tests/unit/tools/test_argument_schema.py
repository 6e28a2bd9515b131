"""Arguments are validated against a tool's schema, with one-line errors."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.inside.tools.argument_schema import validate_tool_arguments
from paddock.inside.tools.tool_result import ToolError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 100},
        "scale": {"type": "number", "default": 1},
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "deep": {"type": "boolean", "default": False},
        "way": {"type": "string", "enum": ["up", "down"]},
        "keys": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "region": {
            "type": "object",
            "properties": {"width": {"type": "integer"}},
            "required": ["width"],
            "additionalProperties": False,
        },
        "either": {"type": ["integer", "string"]},
    },
    "required": ["x"],
    "additionalProperties": False,
}


def test_only_defaults_are_added() -> None:
    assert validate_tool_arguments({"x": 1}, SCHEMA) == {"x": 1, "scale": 1, "deep": False}


def test_null_counts_as_absent() -> None:
    assert validate_tool_arguments({"x": 1, "scale": None, "name": None}, SCHEMA) == {"x": 1, "scale": 1, "deep": False}


def test_integral_float_is_accepted_as_integer() -> None:
    assert validate_tool_arguments({"x": 7.0, "either": 2.0}, SCHEMA) == {
        "x": 7,
        "either": 2,
        "scale": 1,
        "deep": False,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the arguments must be an object, not a list"),
        ({}, "the argument 'x' is missing"),
        ({"x": None}, "the argument 'x' is missing"),
        ({"x": "5"}, "'x' must be a whole number, not the text '5'"),
        ({"x": True}, "'x' must be a whole number, not true"),
        ({"x": 1.5}, "'x' must be a whole number, not 1.5"),
        ({"x": 101}, "'x' must be 0 to 100, not 101"),
        ({"x": 1, "scale": float("nan")}, "'scale' must be"),
        ({"x": 1, "name": ""}, "'name' must be 1 to 5 characters long, not 0"),
        ({"x": 1, "name": "longer"}, "'name' must be 1 to 5 characters long, not 6"),
        ({"x": 1, "name": ["a"]}, "'name' must be text, not a list"),
        ({"x": 1, "deep": 1}, "'deep' must be true or false, not 1"),
        ({"x": 1, "way": "left"}, "'way' must be one of up, down, not the text 'left'"),
        ({"x": 1, "keys": "a"}, "'keys' must be a list, not the text 'a'"),
        ({"x": 1, "keys": ["a", 2]}, "'keys[1]' must be text, not 2"),
        ({"x": 1, "keys": ["a", "b", "c"]}, "'keys' must be at most 2 items long, not 3"),
        ({"x": 1, "region": {}}, "the argument 'region.width' is missing"),
        ({"x": 1, "region": {"width": "w"}}, "'region.width' must be a whole number"),
        ({"x": 1, "region": {"width": 1, "depth": 2}}, "unknown argument 'region.depth'; the tool takes: width"),
        ({"x": 1, "either": 1.5}, "'either' must be a whole number or text, not 1.5"),
        ({"x": 1, "y": 2}, "unknown argument 'y'; the tool takes: x, scale, name"),
    ],
)
def test_argument_errors_are_one_line(arguments: object, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        validate_tool_arguments(arguments, SCHEMA)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_long_values_are_not_repeated_in_full() -> None:
    with pytest.raises(ToolError) as caught:
        validate_tool_arguments({"x": "9" * 10_000}, SCHEMA)
    assert len(str(caught.value)) < 200

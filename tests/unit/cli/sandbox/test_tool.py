from __future__ import annotations

from typing import Any

import pytest

from paddock.cli.output.errors import UsageError
from paddock.cli.sandbox.tool_commands import parse_tool_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "x": {"type": "integer"},
        "deep": {"type": "boolean"},
        "keys": {"type": "array"},
        "either": {"type": ["string", "integer"]},
        "free": {},
    },
}


def test_arguments_are_parsed_by_the_tool_schema() -> None:
    given = {"text": "12", "x": "12", "deep": "true", "keys": '["a", 1]', "either": "12", "free": "1", "other": "2"}
    assert parse_tool_arguments(given, SCHEMA) == {
        "text": "12",
        "x": 12,
        "deep": True,
        "keys": ["a", 1],
        "either": "12",
        "free": "1",
        "other": "2",
    }


@pytest.mark.parametrize(("name", "text", "wanted"), [("x", "ten", "a whole number"), ("deep", "yes", "true or false")])
def test_an_argument_of_the_wrong_type_is_named(name: str, text: str, wanted: str) -> None:
    with pytest.raises(UsageError, match=f"{name}={text}: must be {wanted}"):
        parse_tool_arguments({name: text}, SCHEMA)


def test_a_list_argument_error_shows_a_shell_example() -> None:
    with pytest.raises(UsageError) as raised:
        parse_tool_arguments({"keys": "Extra Large"}, SCHEMA)
    assert raised.value.message == """keys=Extra Large: must be JSON, for example keys='["Extra Large"]'"""


def test_a_tool_without_a_schema_gets_text() -> None:
    assert parse_tool_arguments({"a": "1"}, {}) == {"a": "1"}

from __future__ import annotations

from typing import Any

import pytest

from paddock.cli.failure import UsageProblem
from paddock.cli.tool import read_arguments

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


def test_arguments_are_read_by_what_the_tool_takes() -> None:
    given = {"text": "12", "x": "12", "deep": "true", "keys": '["a", 1]', "either": "12", "free": "1", "other": "2"}
    assert read_arguments(given, SCHEMA) == {
        "text": "12",
        "x": 12,
        "deep": True,
        "keys": ["a", 1],
        "either": "12",
        "free": "1",
        "other": "2",
    }


@pytest.mark.parametrize(("name", "text", "wanted"), [("x", "ten", "a whole number"), ("deep", "yes", "true or false")])
def test_what_cannot_be_read_is_named(name: str, text: str, wanted: str) -> None:
    with pytest.raises(UsageProblem, match=f"{name}={text}: must be {wanted}"):
        read_arguments({name: text}, SCHEMA)


def test_a_list_is_explained_as_it_is_written_in_a_shell() -> None:
    with pytest.raises(UsageProblem) as raised:
        read_arguments({"keys": "Extra Large"}, SCHEMA)
    assert raised.value.message == """keys=Extra Large: must be JSON, as in keys='["Extra Large"]'"""


def test_a_tool_that_says_nothing_of_its_arguments_gets_text() -> None:
    assert read_arguments({"a": "1"}, {}) == {"a": "1"}

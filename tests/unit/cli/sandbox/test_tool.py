from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import UsageError
from paddock.cli.sandbox import tool_commands
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


class InputClient:
    """Server of a sandbox with tools that a person controls."""

    def __init__(self, holder: dict[str, str] | None) -> None:
        self.answers: dict[str, Any] = {
            "/v1/sandboxes/3f2a/input": {"holder": holder} if holder else {},
            "/v1/sandboxes/3f2a/tools": {
                "items": [{"name": "press_keys", "input": True}, {"name": "read_file", "input": False}]
            },
        }

    async def get(self, path: str, **_: Any) -> Any:
        return self.answers[path]


@pytest.mark.parametrize(
    ("holder", "tool", "seconds", "noticed"),
    [
        ({"name": "Ann"}, "press_keys", 0.1, True),
        ({"name": "Ann"}, "press_keys", 0.0, False),
        ({"name": "Ann"}, "read_file", 0.1, False),
        (None, "press_keys", 0.1, False),
    ],
)
def test_call_that_waits_for_a_person_says_so(
    holder: dict[str, str] | None,
    tool: str,
    seconds: float,
    noticed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tool_commands, "_NOTICE_SECONDS", 0.01)
    client = cast(ServerClient, InputClient(holder))

    async def call() -> None:
        async with tool_commands._notice_of_takeover(client, "desk", "3f2a", tool):
            await asyncio.sleep(seconds)

    asyncio.run(call())
    waiting = "waiting: a person has control of desk; press Ctrl-C to stop\n"
    assert capsys.readouterr().err == (waiting if noticed else "")

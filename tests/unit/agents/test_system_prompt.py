"""The system prompt of sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from paddock.agents.tools.system_prompt import write_system_prompt
from paddock.fleet.kinds import BROWSER, CODE, LINUX
from paddock.model.sessions import Session

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def session(**changes: Any) -> Session:
    made = {"id": "ses-1", "tenant": "t", "agent": "langgraph", "engine": "langgraph", "model": "m"}
    return Session.model_validate({**made, "created_at": NOW, "changed_at": NOW, **changes})


def test_every_kind_is_told_of_with_what_it_is_good_for() -> None:
    told = write_system_prompt(session(), [CODE, LINUX, BROWSER])
    for kind in (CODE, LINUX, BROWSER):
        assert f"**{kind.name}**" in told and kind.description in told
    for word in ("/workspace", "/shared", "move_between_sandboxes", "ask_user", "update_plan", "approval"):
        assert word in told, word


def test_nothing_is_told_of_that_is_not_there() -> None:
    one = write_system_prompt(session(), [CODE])
    assert "move_between_sandboxes" not in one and "# Screens" not in one and "**linux**" not in one
    none = write_system_prompt(session(), [])
    assert "no sandboxes" in none and "/workspace" not in none


def test_instructions_of_the_user_come_last() -> None:
    told = write_system_prompt(session(instructions="  Speak like a pirate.\n"), [CODE])
    assert told.endswith("Speak like a pirate.")
    assert "Instructions" not in write_system_prompt(session(instructions="  "), [CODE])


def test_what_changes_within_a_turn_does_not_change_the_prompt() -> None:
    before = session()
    after = session(
        state="running", turn=3, sandboxes={"code": "sb-1"}, plan=[{"title": "x"}], changed_at=datetime.now(UTC)
    )
    assert write_system_prompt(before, [CODE]) == write_system_prompt(after, [CODE])

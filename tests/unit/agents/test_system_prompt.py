"""The system prompt of sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from paddock.agents.tools.system_prompt import build_system_prompt
from paddock.fleet.kinds import BROWSER, CODE, LINUX
from paddock.model.sessions import Session

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_session(**changes: Any) -> Session:
    defaults = {"id": "ses-1", "tenant": "t", "agent": "langgraph", "engine": "langgraph", "model": "m"}
    return Session.model_validate({**defaults, "created_at": NOW, "changed_at": NOW, **changes})


def test_every_kind_is_described() -> None:
    prompt = build_system_prompt(make_session(), [CODE, LINUX, BROWSER])
    for kind in (CODE, LINUX, BROWSER):
        assert f"**{kind.name}**" in prompt and kind.description in prompt
    for word in ("/workspace", "/shared", "move_between_sandboxes", "ask_user", "update_plan", "approval"):
        assert word in prompt, word


def test_missing_features_are_not_mentioned() -> None:
    one = build_system_prompt(make_session(), [CODE])
    assert "move_between_sandboxes" not in one and "# Screens" not in one and "**linux**" not in one
    none = build_system_prompt(make_session(), [])
    assert "no sandboxes" in none and "/workspace" not in none


def test_user_instructions_come_last() -> None:
    prompt = build_system_prompt(make_session(instructions="  Speak like a pirate.\n"), [CODE])
    assert prompt.endswith("Speak like a pirate.")
    assert "Instructions" not in build_system_prompt(make_session(instructions="  "), [CODE])


def test_prompt_is_stable_within_a_turn() -> None:
    before = make_session()
    after = make_session(
        state="running", turn=3, sandboxes={"code": "sb-1"}, plan=[{"title": "x"}], changed_at=datetime.now(UTC)
    )
    assert build_system_prompt(before, [CODE]) == build_system_prompt(after, [CODE])

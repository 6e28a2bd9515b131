"""The checks of engines pass for one that keeps the contract, and fail for those that break it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import ClassVar
from unittest import SkipTest

import pytest
from tests.unit.agents import plain_engine
from tests.unit.agents.plain_engine import PlainEngine

from paddock.agents.engines.base import Engine
from paddock.agents.engines.conformance import Cast, EngineConformance
from paddock.agents.engines.conformance.stage import Stage

CHECKS = [name for name in dir(EngineConformance) if name.startswith("test_")]
BROKEN: list[tuple[Callable[[], PlainEngine], set[str]]] = [
    (
        plain_engine.Sequential,
        {"test_calls_of_one_answer_run_at_the_same_time"},
    ),
    (plain_engine.Deaf, {"test_what_is_written_meanwhile_is_read_before_the_next_question"}),
    (plain_engine.Forgetful, {"test_it_remembers", "test_a_session_that_begins_with_messages"}),
    (plain_engine.Hasty, {"test_killed_with_a_message_unread"}),
    (plain_engine.Saveless, {"test_killed_with_a_message_unread"}),
    (plain_engine.Immortal, {"test_cancelled_within_an_answer", "test_killed_after_any_change"}),
    (plain_engine.Renaming, {"test_killed_after_any_change", "test_what_waits_survives_a_restart"}),
    (plain_engine.Blind, {"test_pictures_in_results_are_named"}),
    (plain_engine.Careless, {"test_a_call_and_its_result", "test_answered"}),
    (plain_engine.Leaving, {"test_approved", "test_edited", "test_rejected", "test_what_waits_survives_a_restart"}),
]


@pytest.fixture
def engine() -> PlainEngine:
    return PlainEngine()


class TestPlainEngine(EngineConformance):
    """Every check."""


@pytest.mark.parametrize(("broken", "check"), [(kind, check) for kind, checks in BROKEN for check in sorted(checks)])
def test_a_broken_engine_fails(broken: Callable[[], PlainEngine], check: str) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        getattr(EngineConformance(), check)(broken())


class OwnTools(PlainEngine):
    own_tools: ClassVar[bool] = True


def test_engines_with_their_own_tools_skip_what_is_about_ours() -> None:
    skipped = [check for check in CHECKS if _skips(check, OwnTools())]
    assert "test_a_plain_answer" not in skipped
    assert "test_released_twice" not in skipped
    assert len(skipped) > len(CHECKS) / 2


class Players(Cast):
    """Somebody who plays, as far as the checks can see."""


def test_with_a_cast_they_skip_only_what_cannot_concern_them() -> None:
    assert {check for check in CHECKS if _skips(check, Players(OwnTools()))} == {
        "test_answered",
        "test_edited",
        "test_pictures_in_results_are_named",
        "test_pictures_of_persons_are_named",
        "test_the_limit_of_steps_ends_the_turn",
    }


class Rare(Cast):
    every: ClassVar[int] = 5


def test_deaths_may_be_fewer_and_differ_between_checks() -> None:
    rare = Stage(Rare(PlainEngine()))
    assert [list(islice(rare.deaths(shift), 3)) for shift in (0, 1, 6)] == [[1, 6, 11], [2, 7, 12], [2, 7, 12]]
    assert list(islice(Stage(Cast(PlainEngine())).deaths(4), 3)) == [1, 2, 3]


def _skips(check: str, engine: Engine | Cast) -> bool:
    try:
        getattr(EngineConformance(), check)(engine)
    except SkipTest as skip:
        return "brings its own tools" in str(skip)
    return False

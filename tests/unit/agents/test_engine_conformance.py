"""The conformance suite passes for a correct engine, and fails for broken ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import ClassVar
from unittest import SkipTest

import pytest

from paddock.agents.engines.base import Engine
from paddock.testing.engines import EngineConformance, ScriptPlayer
from paddock.testing.engines.conformance_harness import EngineConformanceHarness
from tests.unit.agents import sample_engines
from tests.unit.agents.sample_engines import PlainEngine

CHECKS = [name for name in dir(EngineConformance) if name.startswith("test_")]
BROKEN: list[tuple[Callable[[], PlainEngine], set[str]]] = [
    (
        sample_engines.SequentialEngine,
        {"test_calls_of_one_reply_run_concurrently"},
    ),
    (sample_engines.NeverReadsEngine, {"test_new_messages_are_read_before_next_question"}),
    (sample_engines.ForgetsHistoryEngine, {"test_earlier_turns_are_remembered", "test_session_with_history_only"}),
    (sample_engines.SavesTooLateEngine, {"test_killed_with_unread_message"}),
    (sample_engines.NeverSavesEngine, {"test_killed_with_unread_message"}),
    (sample_engines.SwallowsKillEngine, {"test_turn_cancelled_during_reply", "test_killed_after_any_change"}),
    (sample_engines.RenamesCallsEngine, {"test_killed_after_any_change", "test_pending_approval_survives_restart"}),
    (sample_engines.IgnoresImagesEngine, {"test_result_images_are_references"}),
    (sample_engines.ReportsFailuresOnlyEngine, {"test_call_and_its_result", "test_answer_is_the_result"}),
    (
        sample_engines.GivesUpCallsEngine,
        {
            "test_approved_call_runs_once",
            "test_edited_arguments_are_used",
            "test_rejected_call_is_not_run",
            "test_pending_approval_survives_restart",
        },
    ),
]


@pytest.fixture
def engine() -> PlainEngine:
    return PlainEngine()


class TestPlainEngine(EngineConformance):
    """Every check."""


@pytest.mark.parametrize(("broken", "check"), [(kind, check) for kind, checks in BROKEN for check in sorted(checks)])
def test_broken_engine_fails(broken: Callable[[], PlainEngine], check: str) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        getattr(EngineConformance(), check)(broken())


class OwnToolsEngine(PlainEngine):
    has_own_tools: ClassVar[bool] = True


def test_engines_with_own_tools_skip_checks_of_paddock_tools() -> None:
    skipped = [check for check in CHECKS if _skips(check, OwnToolsEngine())]
    assert "test_plain_reply" not in skipped
    assert "test_release_is_idempotent" not in skipped
    assert len(skipped) > len(CHECKS) / 2


class PlainScriptPlayer(ScriptPlayer):
    """A script player that adds nothing to the base class."""


def test_script_player_skips_only_inapplicable_checks() -> None:
    assert {check for check in CHECKS if _skips(check, PlainScriptPlayer(OwnToolsEngine()))} == {
        "test_answer_is_the_result",
        "test_edited_arguments_are_used",
        "test_result_images_are_references",
        "test_user_images_are_references",
        "test_step_limit_ends_the_turn",
    }


class EveryFifthKill(ScriptPlayer):
    kill_every: ClassVar[int] = 5


def test_kill_points_can_be_fewer_and_differ_between_checks() -> None:
    rare = EngineConformanceHarness(EveryFifthKill(PlainEngine()))
    assert [list(islice(rare.kill_points(shift), 3)) for shift in (0, 1, 6)] == [[1, 6, 11], [2, 7, 12], [2, 7, 12]]
    assert list(islice(EngineConformanceHarness(ScriptPlayer(PlainEngine())).kill_points(4), 3)) == [1, 2, 3]


def _skips(check: str, engine: Engine | ScriptPlayer) -> bool:
    try:
        getattr(EngineConformance(), check)(engine)
    except SkipTest as skip:
        return "has its own tools" in str(skip)
    return False

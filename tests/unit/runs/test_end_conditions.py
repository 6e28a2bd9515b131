"""When the work of a run is over, and as what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.model.runs import EndedBy, ModelUsage, RunState
from paddock.model.task import TaskModel
from paddock.runs.execution.build_progress_filter import BuildProgressFilter
from paddock.runs.execution.end_conditions import (
    CancelRequest,
    EntrypointExit,
    budget_verdict,
    judge_exit,
    limit_reason_length,
    silence_seconds,
)
from paddock.runs.output.output_logs import OutputLog
from paddock.runs.output.pattern_search import MAX_LINE, LineSplitter, PatternSearch
from paddock.sandbox.images import BuildProgress

pytestmark = pytest.mark.anyio
ANY = TaskModel()


@pytest.mark.parametrize(
    ("exit", "traffic", "state", "ended_by", "words"),
    [
        ({"code": 0}, {}, RunState.SUCCEEDED, EndedBy.EXIT, "exit code 0"),
        ({"code": 0, "uses_model": True}, {"requests": 1}, RunState.SUCCEEDED, EndedBy.EXIT, "exit code 0"),
        (
            {"code": 0, "uses_model": True, "produced_events": False},
            {},
            RunState.FAILED,
            EndedBy.EXIT,
            "without a request",
        ),
        (
            {"code": 0, "uses_model": True, "produced_events": False},
            {"requests": 2},
            RunState.SUCCEEDED,
            EndedBy.EXIT,
            "exit code 0",
        ),
        (
            {"code": 0, "uses_model": True},
            {"requests": 2, "failed": 2, "last_error": "upstream is down"},
            RunState.FAILED,
            EndedBy.AGENT_ERROR,
            "upstream is down",
        ),
        (
            {"code": 0, "uses_model": True},
            {"requests": 3, "failed": 2},
            RunState.SUCCEEDED,
            EndedBy.EXIT,
            "exit code 0",
        ),
        ({"code": 0, "error": "quota"}, {}, RunState.FAILED, EndedBy.AGENT_ERROR, "quota"),
        ({"code": 1, "error": "quota"}, {"last_error": "529"}, RunState.FAILED, EndedBy.AGENT_ERROR, "529"),
        ({"code": 2, "last_line": "oh no"}, {}, RunState.FAILED, EndedBy.EXIT, "oh no"),
        ({"code": 127, "exit_message": "claude: No such file"}, {}, RunState.FAILED, EndedBy.EXIT, "No such file"),
        ({"code": 124, "exit_message": "timed out after 9 ms"}, {}, RunState.TIMED_OUT, EndedBy.TIMEOUT, "9 ms"),
        ({"code": 137, "out_of_memory_kills": 1}, {}, RunState.FAILED, EndedBy.OUT_OF_MEMORY, "memory"),
        ({"code": 0, "out_of_memory_kills": 1}, {}, RunState.SUCCEEDED, EndedBy.EXIT, "exit code 0"),
        (
            {"code": 137, "full_disk": {"used": 9, "limit": 5}},
            {},
            RunState.FAILED,
            EndedBy.DISK_FULL,
            "9 bytes written, 5",
        ),
        (
            {"code": 137, "out_of_memory_kills": 1, "full_disk": {"used": 9}},
            {},
            RunState.FAILED,
            EndedBy.DISK_FULL,
            "disk is full",
        ),
    ],
)
def test_what_an_exit_means(
    exit: dict[str, Any], traffic: dict[str, Any], state: RunState, ended_by: EndedBy, words: str
) -> None:
    verdict = judge_exit(EntrypointExit(**exit), ANY, ModelUsage(**traffic))
    assert (verdict.state, verdict.ended_by) == (state, ended_by)
    assert words in verdict.reason


@pytest.mark.parametrize(
    ("error", "answer", "reason"),
    [
        ("There is no model.", "There is no model.", "the agent failed: There is no model. (exit code 1)"),
        ("API Error: 404 Gone.", "404  Gone.", "the agent failed: API Error: 404 Gone. (exit code 1)"),
        ("Gone", "404 Gone.", "the agent failed: 404 Gone. (exit code 1)"),
        ("x" * 900, "x" * 900, f"the agent failed: {'x' * 300}… (exit code 1)"),
        ("no", "529", "the agent failed: no (exit code 1); the last answer of the model: 529"),
    ],
)
def test_what_an_agent_passes_on_is_told_once(error: str, answer: str, reason: str) -> None:
    assert judge_exit(EntrypointExit(code=1, error=error), ANY, ModelUsage(last_error=answer)).reason == reason


def test_long_reasons_keep_their_beginning_and_their_end() -> None:
    assert limit_reason_length("short") == "short"
    told = limit_reason_length(f"it began {'.' * 5000} the log is in here")
    assert told.startswith("it began") and told.endswith("the log is in here") and len(told) <= 610


def test_a_build_tells_each_step_at_once_and_how_far_it_is_now_and_then() -> None:
    steps = BuildProgressFilter()
    signs = [("debian", 0.0, 0), ("debian", 0.1, 1), ("debian", 0.1, 6), ("debian", 0.1, 60), ("apt", 0.1, 61)]
    signs += [("debian", 0.0, 62), ("debian", 0.5, 66), ("debian", 0.6, 68)]
    news = [(step, at) for step, fraction, at in signs if steps.should_report(BuildProgress(step, fraction), at)]
    assert news == [("debian", 0), ("debian", 6), ("apt", 61), ("debian", 62), ("debian", 68)]


def test_an_agent_that_fails_because_its_budget_is_spent_is_over_budget() -> None:
    traffic = ModelUsage(
        requests=3, failed=1, last_error="This key has made the 2 requests of its budget; use another."
    )
    verdict = judge_exit(EntrypointExit(code=1, error="429"), TaskModel(requests=2), traffic)
    assert (verdict.state, verdict.ended_by) == (RunState.OVER_BUDGET, EndedBy.BUDGET)


@pytest.mark.parametrize(
    ("bounds", "traffic", "over"),
    [
        ({}, {"requests": 10**6, "input_tokens": 10**9, "cost": 1e6}, False),
        ({}, {"failed": 1, "last_error": "the budget of the upstream is spent"}, False),
        ({"requests": 2}, {"requests": 2}, False),
        ({"requests": 2}, {"requests": 3}, True),
        ({"tokens": 10}, {"input_tokens": 6, "output_tokens": 4}, False),
        ({"tokens": 10}, {"input_tokens": 6, "output_tokens": 5}, True),
        ({"cost": 1}, {"cost": None}, False),
        ({"cost": 1}, {"cost": 1.01}, True),
        ({"cost": 1}, {"failed": 1, "last_error": "This key has spent 1.0 US dollars, and its budget is 1"}, True),
    ],
)
def test_what_is_just_used_up_may_still_be_enough(bounds: dict[str, Any], traffic: dict[str, Any], over: bool) -> None:
    assert (budget_verdict(TaskModel(**bounds), ModelUsage(**traffic)) is not None) is over


def test_silence_is_without_output_and_without_requests() -> None:
    assert silence_seconds(100, 40, ModelUsage()) == 60
    assert silence_seconds(100, 40, ModelUsage(last_at=90)) == 10
    assert silence_seconds(100, 95, ModelUsage(last_at=90)) == 5
    assert silence_seconds(100, 40, ModelUsage(last_at=50, under_way=1)) == 0


def test_lines_come_out_whole_however_they_are_cut() -> None:
    text = "one\r\ntwo äö\n\nthree".encode()
    for cut in range(len(text)):
        lines = LineSplitter()
        assert [*lines.feed(text[:cut]), *lines.feed(text[cut:])] == ["one", "two äö", ""]
        assert lines.unfinished == "three"


def test_of_an_endless_line_only_the_end_is_kept() -> None:
    lines = LineSplitter()
    for _ in range(100):
        lines.feed(b"x" * MAX_LINE)
    assert len(lines.unfinished) <= 4 * MAX_LINE
    assert lines.feed(b"end\n")[0].endswith("xend")


@pytest.mark.parametrize(
    ("pattern", "texts", "found"),
    [
        ("done", ["not yet", "all done"], "all done"),
        ("^done$", ["all done"], None),
        ("^done$", ["all\ndone\n"], "all\ndone\n"),
        (r"(\d+) passed", ["3 failed", "12 passed"], "12 passed"),
        ("a+b", ["", "xaaab"], "xaaab"),
        ("a|b", ["c", "b"], "b"),
    ],
)
async def test_patterns_are_found(pattern: str, texts: list[str], found: str | None) -> None:
    search = PatternSearch(pattern)
    assert await search.find_first_match(texts) == found
    assert await search.find_first_match(["no"]) is None
    await search.close()


async def test_a_pattern_that_explodes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.runs.output.pattern_search.SEARCH_TIMEOUT", 0.5)
    search = PatternSearch("(a+)+$")
    assert await search.find_first_match(["a" * 50 + "b"]) is None
    assert search.timeouts == 1
    assert await search.find_first_match(["aaa"]) == "aaa"
    for _ in range(2):
        await search.find_first_match(["a" * 50 + "b"])
    assert await search.find_first_match(["aaa"]) is None
    assert search.timeouts == 3
    await search.close()


def test_a_log_keeps_the_beginning_and_the_end(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log", 80)
    stream = "".join(f"{number:09}\n" for number in range(1000)).encode()
    for place in range(0, len(stream), 7):
        log.write_at(stream[place : place + 7], place)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 80
    assert log.tail(20) == stream[-20:]
    log.finish()
    head, _, tail = (tmp_path / "log").read_bytes().partition(b"\n[paddock: ")
    assert head == stream[:40]
    left_out, _, tail = tail.partition(b" bytes are left out here]\n")
    assert stream.endswith(tail)
    assert len(tail) >= 20
    assert 40 + int(left_out) + len(tail) == len(stream)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("size", [30, 75, 500])
def test_a_log_goes_on_where_its_files_end(tmp_path: Path, size: int) -> None:
    stream = bytes(index % 251 for index in range(size))
    whole = OutputLog(tmp_path / "whole", 80)
    whole.write_at(stream, 0)
    whole.finish()
    for cut in range(0, size, 11):
        directory = tmp_path / str(cut)
        first = OutputLog(directory / "log", 80)
        first.write_at(stream[:cut], 0)
        first.close()
        for place in (max(0, cut - 13), 0):
            again = OutputLog(directory / "log", 80)
            again.write_at(stream[place:], place)
            again.finish()
        assert (directory / "log").read_bytes() == (tmp_path / "whole").read_bytes()


async def test_asking_again_can_only_make_it_harder() -> None:
    cancel = CancelRequest()
    assert not cancel.requested
    cancel.request("first")
    cancel.request("second", hard=True)
    await cancel.wait()
    assert cancel.reason == "first"
    assert cancel.hard.is_set()

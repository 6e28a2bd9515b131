"""End conditions of runs, output logs and pattern search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.model.runs import EndedBy, ModelUsage, RunReasonCode, RunState
from paddock.model.task import TaskModel
from paddock.runs.execution.build_progress_filter import BuildProgressFilter
from paddock.runs.execution.end_conditions import (
    EntrypointExit,
    RunCancellation,
    budget_verdict,
    exit_verdict,
    shorten_reason_middle,
    silence_seconds,
    unreached_verdict,
)
from paddock.runs.output.output_logs import OutputLog
from paddock.runs.output.pattern_search import MAX_LINE_CHARACTERS, LineSplitter, PatternSearch
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
def test_exit_verdict_by_exit_code_and_evidence(
    exit: dict[str, Any], traffic: dict[str, Any], state: RunState, ended_by: EndedBy, words: str
) -> None:
    verdict = exit_verdict(EntrypointExit(**exit), ANY, ModelUsage(**traffic))
    assert (verdict.state, verdict.ended_by) == (state, ended_by)
    assert words in verdict.reason


@pytest.mark.parametrize(("uses_model", "subject"), [(True, "the agent"), (False, "the program")])
def test_reason_names_an_agent_only_if_there_is_one(uses_model: bool, subject: str) -> None:
    for facts, words in (
        ({"code": 0}, "finished (exit code 0)"),
        ({"code": 2, "last_line": "oh no"}, "ended with exit code 2; its last line: oh no"),
        ({"code": 124, "exit_message": "timed out after 9 ms"}, "timed out after 9 ms"),
    ):
        verdict = exit_verdict(EntrypointExit(uses_model=uses_model, **facts), ANY, ModelUsage(requests=1))
        assert verdict.reason == f"{subject} {words}"


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
def test_reason_quotes_a_repeated_model_error_once(error: str, answer: str, reason: str) -> None:
    assert exit_verdict(EntrypointExit(code=1, error=error), ANY, ModelUsage(last_error=answer)).reason == reason


REFUSED_KEY = "provider acme refused the key it is configured with (status 401); check ACME_KEY and restart the server"


@pytest.mark.parametrize(
    "exit",
    [
        {"code": 0, "uses_model": True},
        {"code": 1, "uses_model": True, "error": f"API Error: 401 {REFUSED_KEY}"},
        {"code": 1, "uses_model": True, "last_line": "unauthorized"},
    ],
)
def test_refused_key_of_the_provider_is_the_reason_of_a_failed_agent(exit: dict[str, Any]) -> None:
    traffic = ModelUsage(requests=2, failed=2, last_error=REFUSED_KEY)
    verdict = exit_verdict(EntrypointExit(**exit), ANY, traffic)
    assert (verdict.state, verdict.ended_by) == (RunState.FAILED, EndedBy.AGENT_ERROR)
    assert verdict.code == RunReasonCode.PROVIDER_KEY_REFUSED
    assert (verdict.params["provider"], verdict.params["key_setting"]) == ("acme", "ACME_KEY")
    assert REFUSED_KEY in verdict.reason


def test_refused_key_is_not_the_reason_if_other_requests_were_answered_or_the_program_succeeded() -> None:
    failed = EntrypointExit(code=1, uses_model=True, error="tests fail")
    answered = exit_verdict(failed, ANY, ModelUsage(requests=3, failed=2, last_error=REFUSED_KEY))
    assert answered.code == RunReasonCode.AGENT_FAILED
    succeeded = exit_verdict(EntrypointExit(code=0), ANY, ModelUsage(requests=1, failed=1, last_error=REFUSED_KEY))
    assert (succeeded.state, succeeded.code) == (RunState.SUCCEEDED, RunReasonCode.EXITED)


UNKNOWN_HOST = "provider acme: the upstream's host name is unknown"


def unreached(failed: int, **more: Any) -> ModelUsage:
    return ModelUsage(
        **{
            "requests": failed,
            "failed": failed,
            "failing": failed,
            "unreached": failed,
            "failing_since": 100.0,
            "last_error": UNKNOWN_HOST,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("traffic", "now", "ends"),
    [
        (unreached(2), 101.0, False),
        (unreached(2), 161.0, True),
        (unreached(8), 101.0, True),
        (unreached(8, under_way=1), 101.0, False),
        (unreached(1), 161.0, False),
        (unreached(8, requests=9), 161.0, False),
        (unreached(8, unreached=0), 161.0, False),
        (ModelUsage(), 161.0, False),
    ],
    ids=["retrying", "a minute", "many", "active", "one", "answered before", "refused", "none"],
)
def test_run_ends_whose_provider_has_answered_no_request(traffic: ModelUsage, now: float, ends: bool) -> None:
    verdict = unreached_verdict(traffic, now)
    assert (verdict is not None) == ends
    if verdict is not None:
        assert (verdict.state, verdict.ended_by) == (RunState.FAILED, EndedBy.MODEL)
        assert verdict.code == RunReasonCode.PROVIDER_UNREACHED
        assert UNKNOWN_HOST in verdict.reason


@pytest.mark.parametrize("code", [0, 1])
def test_unreachable_provider_is_the_only_reason_of_an_agent_that_gave_up(code: int) -> None:
    exit = EntrypointExit(code=code, uses_model=True, error="API Error: 502. Check status.example.com.")
    verdict = exit_verdict(exit, ANY, unreached(3))
    assert verdict.code == RunReasonCode.PROVIDER_UNREACHED
    assert verdict.reason == f"none of its 3 requests to the model was answered: {UNKNOWN_HOST}"


def test_long_reasons_keep_their_beginning_and_their_end() -> None:
    assert shorten_reason_middle("short") == "short"
    reason = shorten_reason_middle(f"it began {'.' * 5000} the log is in here")
    assert reason.startswith("it began") and reason.endswith("the log is in here") and len(reason) <= 610


def test_build_progress_events_are_rate_limited_per_step() -> None:
    progress_filter = BuildProgressFilter()
    progress = [("debian", 0.0, 0), ("debian", 0.1, 1), ("debian", 0.1, 6), ("debian", 0.1, 60), ("apt", 0.1, 61)]
    progress += [("debian", 0.0, 62), ("debian", 0.5, 66), ("debian", 0.6, 68)]
    reported = [
        (step, at)
        for step, fraction, at in progress
        if progress_filter.should_report(BuildProgress(step, fraction), at)
    ]
    assert reported == [("debian", 0), ("debian", 6), ("apt", 61), ("debian", 62), ("debian", 68)]


def test_agent_failure_caused_by_a_spent_budget_is_over_budget() -> None:
    traffic = ModelUsage(
        requests=3, failed=1, last_error="This key has made the 2 requests of its budget; use another."
    )
    verdict = exit_verdict(EntrypointExit(code=1, error="429"), TaskModel(requests=2), traffic)
    assert (verdict.state, verdict.ended_by) == (RunState.OVER_BUDGET, EndedBy.BUDGET)


@pytest.mark.parametrize(
    ("limits", "traffic", "exceeded"),
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
def test_usage_equal_to_the_limit_is_allowed(limits: dict[str, Any], traffic: dict[str, Any], exceeded: bool) -> None:
    assert (budget_verdict(TaskModel(**limits), ModelUsage(**traffic)) is not None) is exceeded


def test_silence_counts_from_the_last_output_or_request() -> None:
    assert silence_seconds(100, 40, ModelUsage()) == 60
    assert silence_seconds(100, 40, ModelUsage(last_at=90)) == 10
    assert silence_seconds(100, 95, ModelUsage(last_at=90)) == 5
    assert silence_seconds(100, 40, ModelUsage(last_at=50, under_way=1)) == 0


def test_lines_are_independent_of_chunk_boundaries() -> None:
    text = "one\r\ntwo äö\n\nthree".encode()
    for cut in range(len(text)):
        lines = LineSplitter()
        assert [*lines.feed(text[:cut]), *lines.feed(text[cut:])] == ["one", "two äö", ""]
        assert lines.unfinished == "three"


def test_only_the_end_of_an_endless_line_is_kept() -> None:
    lines = LineSplitter()
    for _ in range(100):
        lines.feed(b"x" * MAX_LINE_CHARACTERS)
    assert len(lines.unfinished) <= 4 * MAX_LINE_CHARACTERS
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


async def test_exponential_pattern_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_log_keeps_its_beginning_and_end(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log", 80)
    stream = "".join(f"{number:09}\n" for number in range(1000)).encode()
    for position in range(0, len(stream), 7):
        log.write_at(stream[position : position + 7], position)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 80
    assert log.tail(20) == stream[-20:]
    log.finish()
    head, _, tail = (tmp_path / "log").read_bytes().partition(b"\n[paddock: ")
    assert head == stream[:40]
    omitted, _, tail = tail.partition(b" bytes are left out here]\n")
    assert stream.endswith(tail)
    assert len(tail) >= 20
    assert 40 + int(omitted) + len(tail) == len(stream)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("size", [30, 75, 500])
def test_reopened_log_continues_at_its_end(tmp_path: Path, size: int) -> None:
    stream = bytes(index % 251 for index in range(size))
    whole = OutputLog(tmp_path / "whole", 80)
    whole.write_at(stream, 0)
    whole.finish()
    for cut in range(0, size, 11):
        directory = tmp_path / str(cut)
        first = OutputLog(directory / "log", 80)
        first.write_at(stream[:cut], 0)
        first.close()
        for position in (max(0, cut - 13), 0):
            again = OutputLog(directory / "log", 80)
            again.write_at(stream[position:], position)
            again.finish()
        assert (directory / "log").read_bytes() == (tmp_path / "whole").read_bytes()


async def test_second_request_can_only_harden_the_cancellation() -> None:
    cancel = RunCancellation()
    assert not cancel.requested
    cancel.request("first")
    cancel.request("second", hard=True)
    await cancel.wait()
    assert cancel.reason == "first"
    assert cancel.hard.is_set()

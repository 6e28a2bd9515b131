"""Progress views of runs, fed with events."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paddock.cli.output.agent_text import clean_terminal_line, clean_terminal_text, summarize_tool_arguments
from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.run.deliverable_download import local_deliverable_path
from paddock.cli.run.progress_views import JsonRunView, PlainRunView, RunsTableView, SingleRunView
from paddock.cli.run.run_planning import (
    apply_task_changes,
    check_agent_preset,
    format_skipped_script_files,
    parse_task_options,
    separate_model_scripts,
)
from paddock.cli.run.run_progress import RunProgressState
from paddock.cli.run.run_render import choose_visible_runs, format_run_duration, shorten_reason
from paddock.cli.run.run_summary import print_file_content, print_run_summary, print_runs_table
from paddock.model.task import Task

BEGAN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HOSTILE = "a\x1b[31mred\x1b[0m \x1b]0;title\x07b\x9b2Jc\x1b[2J\x07\u202ed\x1b"


def event(number: int, kind: str, after: float = 0.0, **data: Any) -> dict[str, Any]:
    at = (BEGAN + timedelta(seconds=after)).isoformat()
    return {"number": number, "type": f"run.{kind}", "at": at, "data": data}


STORY = [
    event(1, "queued", name="hello"),
    event(2, "stage", 0.1, stage="admit"),
    event(3, "started", 0.2, attempt=1, model="claude-test", scripted=False),
    event(4, "stage", 0.2, stage="sandbox"),
    event(5, "stage", 0.7, stage="watch"),
    event(6, "thinking", 1, text="What is there to do?"),
    event(7, "text", 2, text="I will write\na report."),
    event(8, "tool_call", 3, id="1", name="Write", arguments={"content": "# Report", "file_path": "/workspace/r.md"}),
    event(9, "tool_result", 3, id="1", text="written", failed=False),
    event(10, "usage", 4, turns=2, requests=2, input_tokens=12_345, output_tokens=678, cost=0.0345),
    event(11, "stage", 10.7, stage="collect"),
    event(12, "ended", 11, state="succeeded", ended_by="exit", reason="the entrypoint exited"),
]


def progress_after(events: Iterable[dict[str, Any]], name: str = "hello") -> RunProgressState:
    run = RunProgressState(name, "run-1")
    for each in events:
        run.apply_event(each)
    return run


def drawn(view: SingleRunView | RunsTableView, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, height=24, highlight=False, markup=False)
    view.console = console
    console.print(view.render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_events_update_the_progress_of_a_run() -> None:
    run = progress_after(STORY[:10])
    assert (run.state, run.stage, run.model, run.turns, run.cost) == ("running", "watch", "claude-test", 2, 0.0345)
    assert (run.input_tokens, run.output_tokens) == (12_345, 678)
    assert run.stages == {"admit": pytest.approx(0.1), "sandbox": pytest.approx(0.5)}
    assert run.elapsed_seconds(BEGAN + timedelta(seconds=5)) == 5
    assert run.last_line == "written"


def test_duration_of_an_ended_run_is_constant() -> None:
    run = progress_after(STORY)
    assert run.has_ended and run.stage == "" and run.reason == "the entrypoint exited"
    assert run.stages["watch"] == pytest.approx(10) and run.stages["collect"] == pytest.approx(0.3)
    assert run.elapsed_seconds(BEGAN + timedelta(days=1)) == 11


def test_a_retry_resets_the_progress() -> None:
    retrying = event(11, "retrying", 11, state="lost", reason="the sandbox died", wait=5)
    run = progress_after(STORY[:10])
    assert [line.text for line in run.apply_event(retrying)] == ["lost: the sandbox died; retrying in 5 s"]
    assert run.state == "queued"
    run.apply_event(event(12, "started", 16, attempt=2, model="claude-test"))
    run.apply_event(event(13, "stage", 16, stage="sandbox"))
    assert (run.attempt, run.stages) == (2, {})


def test_the_steps_of_building_an_image_are_one_stage() -> None:
    run = progress_after([event(1, "queued"), event(2, "stage", 1, stage="admit", step="packages", fraction=0.25)])
    assert (run.stage, run.step) == ("image", "packages, 25%")
    run.apply_event(event(3, "stage", 31, stage="admit", step="files", fraction=None, step_number=3, step_count=5))
    assert run.step == "files, step 3 of 5"
    run.apply_event(event(4, "stage", 61, stage="sandbox"))
    assert (run.step, run.stages) == ("", {"image": 60})


def test_streamed_text_is_shown_line_by_line() -> None:
    run = RunProgressState("hello")
    pieces = ["I wi", "ll.\nAnd th", "en"]
    lines = [
        line.text
        for i, text in enumerate(pieces, 1)
        for line in run.apply_event(event(i, "text", text=text, join=True))
    ]
    assert lines == ["I will."]
    assert [line.text for line in run.apply_event(event(4, "usage", turns=1))] == ["And then"]


@pytest.mark.parametrize("text", [HOSTILE, "\x1b[31", "\x1b]8;;http://evil", "\x1bP$q\x1b\\", "\x9b", "\x00\x08\x7f"])
def test_control_characters_of_agents_are_removed(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in clean_terminal_text(text))
    run = RunProgressState("hello", "run-1")
    view, many = SingleRunView(_console(file := io.StringIO())), RunsTableView(_console(file))
    view.add_run(run)
    many.add_run(run)
    happenings: dict[str, dict[str, Any]] = {
        "text": {"text": text},
        "thinking": {"text": text},
        "tool_call": {"name": text, "arguments": {"a": text}},
        "tool_result": {"text": text, "failed": True},
        "output": {"text": text},
        "error": {"message": text},
        "checked": {"name": text},
        "missing": {"path": text, "reason": text},
        "usage": {"model": text, "turns": 1},
        "ended": {"state": "failed", "reason": text},
    }
    for kind, data in happenings.items():
        happened = event(1, kind, **data)
        lines = run.apply_event(happened)
        view.show_event(run, happened, lines)
        many.show_event(run, happened, lines)
    for each in (view, many):
        each.console.print(each.render())
    assert not set(file.getvalue()) & set("\x1b\x07\x9b\x00\x08\x7f\u202e")


def _console(file: io.StringIO) -> Console:
    return Console(file=file, width=80, height=24, highlight=False, markup=False, color_system=None)


def test_colours_are_removed_and_text_is_kept() -> None:
    assert clean_terminal_text("a \x1b[1;31mred\x1b[0m word") == "a red word"
    assert clean_terminal_text("10%\r50%\r100%\ndone\r\n") == "100%\ndone\n"
    assert clean_terminal_line(" a\n\tb ") == "a b"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"content": "# Report", "file_path": "/workspace/r.md"}, "/workspace/r.md"),
        ({"command": "ls -l\necho"}, "ls -l echo"),
        ({"depth": 3, "deep": {"a": [1]}}, 'depth=3 deep={"a": [1]}'),
        ('{"path": "a.txt"}', "a.txt"),
        ("not json", "not json"),
        (None, ""),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_call_is_shown_by_its_most_descriptive_argument(arguments: object, shown: str) -> None:
    assert summarize_tool_arguments(arguments) == shown


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_panel_of_one_run_fits_its_terminal(width: int) -> None:
    view = SingleRunView(Console(file=io.StringIO()))
    view.add_run(progress_after(STORY[:10]))
    render = drawn(view, width)
    assert all(len(line) <= width for line in render.splitlines())
    assert len(render.splitlines()) == 4
    assert "hello" in render and "✓ sandbox 0.5s" in render
    if width >= 80:
        assert "claude-test · 2 turns · 12k in, 678 out · $0.0345" in render and "verify" in render


def test_a_scripted_model_is_labelled() -> None:
    run = progress_after([*STORY[:2], event(3, "started", attempt=1, model="script-run-1", scripted=True)])
    view = SingleRunView(Console(file=io.StringIO()))
    view.add_run(run)
    render = drawn(view, 80)
    assert "scripted model; no real model is used" in render and "script-run-1" not in render
    many = RunsTableView(Console(file=io.StringIO()))
    many.add_run(run)
    assert "no real model is used" in drawn(many, 120)


def test_progress_lines_scroll_above_the_panel() -> None:
    file = io.StringIO()
    view = SingleRunView(Console(file=file, width=40, highlight=False, markup=False, color_system=None))
    run = RunProgressState("hello")
    view.add_run(run)
    for each in [*STORY, event(13, "output", stream="stdout", text="x" * 100)]:
        view.show_event(run, each, run.apply_event(each))
    assert file.getvalue().splitlines() == [
        "· What is there to do?",
        "● I will write",
        "  a report.",
        "→ Write /workspace/r.md",
        "← written",
        f"│ {'x' * 37}…",
    ]


@pytest.mark.parametrize("width", [80, 140])
def test_several_runs_are_rows_with_a_total_line(width: int) -> None:
    view = RunsTableView(Console(file=io.StringIO()))
    view.add_run(progress_after(STORY, "first"))
    view.add_run(progress_after(STORY[:10], "second"))
    view.add_run(RunProgressState("third"))
    failed = event(11, "ended", 9, state="timed_out", ended_by="timeout", reason="its time was up")
    view.add_run(progress_after([*STORY[:10], failed], "fourth"))
    render = drawn(view, width)
    assert all(len(line) <= width for line in render.splitlines())
    rows = render.splitlines()
    assert rows[1].startswith("first") and "✓ succeeded" in rows[1]
    assert rows[2].startswith("second") and "watch" in rows[2] and "written" in rows[2]
    assert rows[3].split() == ["third", "queued"]
    assert "✗ timed out" in rows[4] and "its time was up" in rows[4]
    about = " ".join(rows[5:])
    assert about.startswith("2 of 4 done · 1 queued · 1 running · 1 succeeded · 1 timed out · 39k tokens · ")
    assert "$0.10" in about


def test_running_runs_are_preferred_if_not_all_fit() -> None:
    runs = [progress_after(STORY, f"done-{i}") for i in range(50)]
    runs += [progress_after(STORY[:10], f"now-{i}") for i in range(3)]
    runs += [RunProgressState(f"later-{i}") for i in range(50)]
    shown = [run.name for run in choose_visible_runs(runs, 5)]
    assert shown == ["done-48", "done-49", "now-0", "now-1", "now-2"]
    view = RunsTableView(Console(file=io.StringIO()))
    for run in runs:
        view.add_run(run)
    render = drawn(view, 100)
    assert "… and 84 more" in render and len(render.splitlines()) < 24


def test_piped_progress_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainRunView(CommandOutput(as_json=False))
    run, other = RunProgressState("hello", "run-1"), RunProgressState("a-longer-name", "run-2")
    view.add_run(run)
    view.add_run(other)
    for each in STORY:
        view.show_event(run, each, run.apply_event(each))
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("hello" + " " * 10) for line in lines)
    assert [line[13:22].strip() for line in lines][:4] == ["0.1s", "0.2s", "0.7s", "1.0s"]
    texts = [line[24:].lstrip() for line in lines]
    assert texts == [
        "= admit",
        "= sandbox",
        "= watch",
        "· What is there to do?",
        "● I will write",
        "a report.",
        "→ Write /workspace/r.md",
        "← written",
        "= collect",
        "✓ succeeded",
    ]


def test_the_end_of_a_single_run_is_only_in_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    view, run = PlainRunView(CommandOutput(as_json=False)), RunProgressState("hello", "run-1")
    view.add_run(run)
    for each in STORY:
        view.show_event(run, each, run.apply_event(each))
    assert "succeeded" not in capsys.readouterr().out


def test_image_builds_are_shown_with_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    view, run = PlainRunView(CommandOutput(as_json=False)), RunProgressState("hello", "run-1")
    view.add_run(run)
    numbers = {"step_number": 2, "step_count": 6}
    step = event(1, "stage", stage="admit", image="agent-codex", step="packages", fraction=0.25, **numbers)
    view.show_event(run, step, run.apply_event(step))
    assert capsys.readouterr().out.endswith("= building image agent-codex: packages, step 2 of 6, 25%\n")


def test_later_lines_of_a_message_are_indented_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    view, run = PlainRunView(CommandOutput(as_json=False)), RunProgressState("hello", "run-1")
    view.add_run(run)
    story = [
        event(1, "text", text="First.\nSecond."),
        event(2, "text", text="Third.\nFour", join=True),
        event(3, "text", text="th.\n", join=True),
        event(4, "usage"),
        event(5, "text", text="Fifth."),
    ]
    for each in story:
        view.show_event(run, each, run.apply_event(each))
    lines = [line.partition("s  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["● First.", "  Second.", "● Third.", "  Fourth.", "● Fifth."]


def test_json_progress_is_one_line_per_event(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonRunView(CommandOutput(as_json=True))
    run = RunProgressState("hello", "run-1")
    for each in STORY:
        view.show_event(run, each, run.apply_event(each))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"run": "run-1", "name": "hello", **each} for each in STORY]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m 00s"), (125, "2m 05s"), (3600, "1h 00m"), (9000, "2h 30m")],
)
def test_run_duration_format(seconds: float, shown: str) -> None:
    assert format_run_duration(seconds) == shown


RUN: dict[str, Any] = {
    "id": "run-1",
    "name": "hello",
    "state": "failed",
    "attempt": 2,
    "model": "claude-test",
    "result": {
        "state": "failed",
        "endedBy": "exit",
        "reason": "a required check failed",
        "exitCode": 0,
        "turns": 3,
        "seconds": 11.2,
        "score": 0.5,
        "stages": {"watch": 10.0, "sandbox": 0.5},
        "traffic": {"requests": 4, "inputTokens": 12_345, "outputTokens": 678, "cost": 0.5, "model": "claude-test"},
        "deliverables": [{"path": "r.md", "size": 2048, "sha256": "0"}],
        "missing": [{"path": "chart.png", "required": True, "reason": "nothing is there"}],
        "checks": [
            {"name": "tests", "passed": False, "required": True, "exitCode": 1, "seconds": 1, "output": "E\n1 failed"},
            {"name": "style", "passed": True, "required": True, "exitCode": 0, "seconds": 2, "output": ""},
        ],
        "evidence": {"last_output": f"so far {HOSTILE}"},
    },
}


def test_a_summary_shows_reason_and_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "deliverables").mkdir()
    (tmp_path / "deliverables" / "r.md").write_text("# Report")
    print_run_summary(RUN, folder=tmp_path)
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == "✗ hello failed after 11s: a required check failed"
    for part in (
        "exit, exit code 0",
        "0.5, 1 of 2 checks",
        "✗ tests 1.0s (exit code 1)",
        "1 failed",
        "✓ style 2.0s",
        "claude-test; 3 turns, 4 requests, 12,345 tokens in, 678 out, $0.50",
        "sandbox 0.5s, watch 10s",
        f"2.0 KiB  {tmp_path}/deliverables/r.md",
        "chart.png: nothing is there",
        "last output",
        f"folder        {tmp_path}",
    ):
        assert part in text
    assert not set(text) & set("\x1b\x07\x9b\u202e")


def test_remote_deliverables_show_the_download_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_run_summary(RUN)
    assert "r.md  (paddock runs get run-1)" in capsys.readouterr().out


def test_many_results_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_runs_table([RUN, {**RUN, "id": "run-2", "state": "succeeded"}], 3)
    text = capsys.readouterr().out
    assert text.splitlines()[1].split()[:3] == ["hello", "failed", "3"]
    assert text.splitlines()[1].endswith("run-1  a required check failed")
    assert text.splitlines()[-1] == "1 of 3 succeeded"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_on_a_terminal_cuts_names_and_never_ids(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _narrow(monkeypatch, width)
    ids = [f"run-{i:016x}" for i in range(2)]
    runs = [{**RUN, "id": each, "name": "a-long-name-" * 8} for each in ids]
    print_runs_table([*runs, {**RUN, "id": "run-3", "state": "succeeded"}], 3)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    assert [line.split()[-1] for line in lines] == ["RUN", ids[0], "failed", ids[1], "failed", "run-3", "succeeded"]
    assert lines[2] == "  a required check failed" and "…" in lines[1] and " failed " in lines[1]


def test_the_table_is_followed_by_output_directories(capsys: pytest.CaptureFixture[str]) -> None:
    print_runs_table([RUN, RUN], 2, [Path("out/hello"), Path("out/hello-2")])
    assert capsys.readouterr().out.splitlines()[-3:] == ["output files:", "  out/hello", "  out/hello-2"]


def _narrow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(
        "paddock.cli.run.run_summary.open_rich_console",
        lambda: Console(file=sys.stdout, width=width, highlight=False, markup=False, color_system=None),
    )


def test_paths_are_not_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _narrow(monkeypatch, 40)
    name = "a report with a long name.md"
    (tmp_path / "deliverables").mkdir()
    (tmp_path / "deliverables" / name).write_text("x")
    print_run_summary(_with(deliverables=[{"path": name, "size": 1, "sha256": "0"}]), folder=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert f"  deliverables  1 B  {tmp_path}/deliverables/{name}" in lines and f"  folder        {tmp_path}" in lines


def _with(agent: str | None = None, **result: Any) -> dict[str, Any]:
    return {**RUN, "agent": agent, "result": {**RUN["result"], **result}}


def test_evidence_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = {
        "deliverables": ["a was left out", "b was left out"],
        "disk": {"used": 3 * 2**30, "limit": 2**30},
        "missed_bytes": 2048,
        "message": "a required check failed",
    }
    print_run_summary(_with(evidence=evidence))
    text = capsys.readouterr().out
    assert "  notes         a was left out\n                b was left out\n" in text
    assert "used 3.0 GiB, limit 1.0 GiB" in text and "missed bytes  2.0 KiB" in text
    assert text.count("a required check failed") == 1 and "[" not in text


def test_the_last_message_of_an_agent_is_shown_without_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    output = {"stdout": '{"type": "text"}\n', "stderr": "warning: old\n"}
    failed = _with("claude-code", reason="the agent gave up: no key is there", evidence={"last_output": output})
    run = progress_after([*STORY[:7], event(8, "error", message="no key is there")])
    assert run.final_messages == ("no key is there", "I will write\na report.")
    print_run_summary(failed, final_messages=run.final_messages)
    text = capsys.readouterr().out
    assert "  last words    I will write\n                a report.\n" in text
    assert text.count("no key is there") == 1 and "type" not in text
    print_run_summary(failed)
    text = capsys.readouterr().out
    assert "  last output   warning: old\n" in text and "type" not in text


def test_the_last_lines_of_an_entrypoint_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_run_summary(_with(evidence={"last_output": {"stdout": "".join(f"line {i}\n" for i in range(20))}}))
    text = capsys.readouterr().out
    assert "  last output   line 14\n" in text and "line 19" in text and "line 13" not in text
    quoted = _with(
        reason="it ended; its last line: no", evidence={"last_output": {"stdout": "yes\n", "stderr": "no\n"}}
    )
    print_run_summary(quoted)
    assert "  last output   yes\n" in (text := capsys.readouterr().out) and text.count("no\n") == 1


def test_singular_forms_and_ends_without_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    print_run_summary(_with(endedBy="file", exitCode=143, turns=1, traffic={"requests": 1, "model": "m"}))
    text = capsys.readouterr().out
    assert "m; 1 turn, 1 request, 0 tokens in" in text and "143" not in text


def test_a_short_deliverable_is_printed_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_file_content(CommandOutput(as_json=False), "r.md", f"# Report\n{HOSTILE}\n")
    text = capsys.readouterr().out
    assert text.startswith("--- r.md ---\n# Report\n") and "\x1b" not in text


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a\0b"])
def test_deliverable_paths_outside_the_directory_are_rejected(path: str, tmp_path: Path) -> None:
    with pytest.raises(CliError, match="leads outside the target directory"):
        local_deliverable_path(tmp_path, path)


def test_deliverables_are_not_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path)
    with pytest.raises(CliError, match="is a symbolic link"):
        local_deliverable_path(tmp_path / "out", "a/b")
    assert local_deliverable_path(tmp_path / "out", "b/c") == tmp_path / "out/b/c"


def task(**fields: Any) -> Task:
    return Task.model_validate({"name": "hello", "goal": "Say hello.", "entrypoint": "true", **fields})


def test_flags_change_a_task() -> None:
    before = task(inputs=[{"content": "x", "target": "x.txt"}])
    after = apply_task_changes(
        before, parse_task_options(["end.timeout=5m", "env.A=b", "priority=3"], "fast", "script")
    )
    assert (after.end.timeout, after.env, after.priority) == (300, {"A": "b"}, 3)
    assert (after.llm.model, after.agent, after.inputs) == ("fast", "script", before.inputs)


def test_an_explicit_agent_or_model_replaces_the_matrix() -> None:
    whole = task(matrix={"agents": ["script"], "models": ["a", "b"]})
    one = apply_task_changes(whole, parse_task_options([], "fast", None))
    assert one.matrix is not None and one.matrix.models == () and one.matrix.agents == ("script",)
    assert apply_task_changes(whole, parse_task_options([], "fast", "script")).matrix is None


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("timeout", "write FIELD=VALUE"),
        ("=1", "write FIELD=VALUE"),
        ("end.timeot=1", "did you mean 'timeout'"),
        ("end.timeout=soon", "end.timeout"),
        ("goal.x=1", "goal has no fields"),
        ("inputs=x", "cannot change inputs"),
        ("env=[1", "invalid YAML value"),
    ],
)
def test_invalid_changes_are_rejected(setting: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        apply_task_changes(task(), parse_task_options([setting], None, None))


@pytest.mark.parametrize(("agent", "near"), [("cluade", "claude-code"), ("codx", "codex")])
def test_a_misspelt_agent_gets_a_suggestion(agent: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean {near}"):
        check_agent_preset(agent, ["claude-code", "codex", "qwen-code"])
    check_agent_preset(agent, None)
    check_agent_preset(near, [near])


def test_script_files_are_separated_from_tasks(tmp_path: Path) -> None:
    one, script = tmp_path / "one.yaml", tmp_path / "one.script.yaml"
    one.touch()
    assert separate_model_scripts([script, one]) == ([one], [script])
    assert f"skipped {script}" in format_skipped_script_files([script]) and format_skipped_script_files([]) == ""
    with pytest.raises(CliError, match="is a scripted-model file") as raised:
        separate_model_scripts([script])
    assert str(one) in str(raised.value.hint)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"state": "succeeded", "endedBy": "exit", "reason": "the agent finished (exit code 0)"}, "finished"),
        (
            {"state": "failed", "endedBy": "exit", "reason": "the agent ended with exit code 1: no key"},
            "exit code 1: no key",
        ),
        (
            {"state": "failed", "endedBy": "exit", "reason": "the program ended with exit code 1: no key"},
            "exit code 1: no key",
        ),
        (
            {"state": "failed", "endedBy": "exit", "reason": "the entrypoint ended with exit code 1: no key"},
            "exit code 1: no key",
        ),
        (
            {
                "state": "failed",
                "endedBy": "exit",
                "reason": "the agent finished (exit code 0) before any end condition was met",
            },
            "exit code 0 before any end condition was met",
        ),
        (
            {"state": "timed_out", "endedBy": "timeout", "reason": "the agent timed out after 10m"},
            "timed out after 10m",
        ),
        (
            {"state": "failed", "endedBy": "exit", "reason": "deliverables are missing: a.txt (none)"},
            "missing: a.txt (none)",
        ),
        ({"state": "cancelled", "endedBy": "cancel", "reason": "it was cancelled: enough"}, "enough"),
        ({}, ""),
    ],
)
def test_reasons_are_shortened_in_lists(result: dict[str, str], shown: str) -> None:
    assert shorten_reason(result) == shown

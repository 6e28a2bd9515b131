"""Renders runs for the terminal: stages, figures, table rows and progress lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from paddock.cli.output.agent_text import clean_terminal_line
from paddock.cli.output.formatting import format_cost, format_count
from paddock.cli.run.run_progress import RUN_STAGES, SUCCEEDED_STATE, ProgressLine, RunProgressState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

SCRIPTED_NOTE = "scripted model; no real model is used"
REFRESH_PER_SECOND = 8
_GAP = 2
LINE_MARKS = {
    "said": "●",
    "thought": "·",
    "call": "→",
    "result": "←",
    "failure": "✗",
    "output": "│",
    "error": "✗",
    "note": "!",
    "passed": "✓",
}
_STYLES = {
    "said": "",
    "thought": "dim italic",
    "call": "cyan",
    "result": "dim",
    "failure": "red",
    "output": "dim",
    "error": "red",
    "note": "yellow",
    "passed": "green",
}
_SHORT_REASONS = (
    ("the agent ended with exit code ", "exit code "),
    ("the agent finished (exit code 0)", "exit code 0"),
    ("the agent failed: ", ""),
    ("the agent timed out", "timed out"),
    ("the program ended with exit code ", "exit code "),
    ("the program finished (exit code 0)", "exit code 0"),
    ("the program timed out", "timed out"),
    ("the entrypoint ended with exit code ", "exit code "),  # Of runs before version 0.2.
    ("the entrypoint ", ""),
    ("it was cancelled: ", ""),
    ("deliverables are missing: ", "missing: "),
    ("checks did not pass: ", "failed checks: "),
    ("the sandbox ended: ", "sandbox ended: "),
)
"""Common beginnings of reasons and their short forms in lists."""
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
STATE_STYLES = {
    "queued": "dim",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "timed_out": "red",
    "cancelled": "yellow",
    "lost": "red",
    "over_budget": "red",
}


def shorten_reason(result: Mapping[str, Any]) -> str:
    """Return a short reason why a run ended: `finished`, `exit code 1`, `timed out after 10m`."""
    reason = " ".join(str(result.get("reason") or "").split())
    if result.get("state") == SUCCEEDED_STATE and result.get("endedBy") == "exit":
        return "finished"
    for beginning, short in _SHORT_REASONS:
        if reason.startswith(beginning):
            return f"{short}{reason.removeprefix(beginning)}"
    return reason


def format_run_duration(seconds: float) -> str:
    """Format seconds as `0.4s`, `12s`, `3m 05s` or `2h 07m`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def choose_visible_runs(runs: Sequence[RunProgressState], count: int) -> list[RunProgressState]:
    """Choose at most `count` runs, preferring running, then ended, then queued ones; keep their order."""
    if len(runs) <= count:
        return list(runs)
    running = [run for run in runs if run.state == "running"]
    ended = [run for run in runs if run.has_ended]
    waiting = [run for run in runs if run.state == "queued"]
    visible = {id(run) for run in [*running, *reversed(ended), *waiting][:count]}
    return [run for run in runs if id(run) in visible]


def render_runs_table(runs: Sequence[RunProgressState], now: datetime, width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    wide = width >= 100
    name = min(max([len("NAME"), *(len(run.name) for run in runs)]), max(12, width // 3))
    widths = {"NAME": name, "STAGE": 13 if wide else 11, "TURNS": 5, "TOKENS": 6, "COST": 8, "TIME": 7}
    if not wide:
        del widths["COST"]
    # Fixed column widths keep the table from jumping while values change.
    widths["LAST"] = max(10, width - sum(widths.values()) - _GAP * len(widths))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for title, each in widths.items():
        right = title in ("TURNS", "TOKENS", "COST", "TIME")
        table.add_column(title, width=each, no_wrap=True, overflow="ellipsis", justify="right" if right else "left")
    for run in runs:
        mark = {"queued": " ", "running": spinner_frame(now)}.get(
            run.state, "✓" if run.state == SUCCEEDED_STATE else "✗"
        )
        tokens = run.input_tokens + run.output_tokens
        cells = {
            "NAME": Text(clean_terminal_line(run.name)),
            "STAGE": Text(f"{mark} {run.stage or format_run_state(run.state)}", style=STATE_STYLES.get(run.state, "")),
            "TURNS": Text(str(run.turns or "")),
            "TOKENS": Text(format_count(tokens) if tokens else ""),
            "COST": Text(format_cost(run.cost)),
            "TIME": Text(format_run_duration(run.elapsed_seconds(now)) if run.started_at else ""),
            "LAST": Text(_latest_text(run)[: width * 2], style="dim"),
        }
        table.add_row(*(cells[title] for title in widths))
    return table


def _latest_text(run: RunProgressState) -> str:
    if run.has_ended and run.state != SUCCEEDED_STATE:
        return run.reason
    return run.image_build_status or run.last_line


def render_run_totals(runs: Sequence[RunProgressState], now: datetime) -> Text:
    """Render a line with the totals of all runs."""
    from rich.text import Text

    counted = {state: sum(run.state == state for run in runs) for state in STATE_STYLES}
    text = Text(f"{sum(run.has_ended for run in runs)} of {len(runs)} done", style="bold")
    for state, number in counted.items():
        if number:
            text.append(" · ", style="dim").append(f"{number} {format_run_state(state)}", style=STATE_STYLES[state])
    tokens = sum(run.input_tokens + run.output_tokens for run in runs)
    costs = [run.cost for run in runs if run.cost is not None]
    began = min((run.started_at for run in runs if run.started_at), default=None)
    ended = [run.ended_at for run in runs if run.ended_at]
    until = max(ended) if len(ended) == len(runs) and ended else now
    more = [f"{format_count(tokens)} tokens" if tokens else "", format_cost(sum(costs)) if costs else ""]
    more.append(format_run_duration((until - began).total_seconds()) if began else "")
    for each in filter(None, more):
        text.append(" · ", style="dim").append(each, style="")
    if any(run.scripted for run in runs):
        text.append(" · ", style="dim").append("scripted models; no real model is used", style="yellow")
    return text


def render_run_stages(run: RunProgressState, now: datetime, width: int) -> Text:
    """Render finished and current stages with their seconds, and future ones if they fit."""
    from rich.text import Text

    text = Text()
    for stage in RUN_STAGES:
        if stage == run.stage:
            since = (now - run.stage_started_at).total_seconds() if run.stage_started_at else 0.0
            piece = Text.assemble(
                (f"{spinner_frame(now)} ", "cyan"), (stage, "bold"), (f" {format_run_duration(since)}", "cyan")
            )
        elif stage in run.stages:
            if stage == "admit" and run.stages[stage] < 0.5:
                continue
            piece = Text.assemble(("✓ ", "green"), stage, (f" {format_run_duration(run.stages[stage])}", "dim"))
        elif stage in ("admit", "image", "release") or run.has_ended:
            continue
        else:
            piece = Text(stage, style="dim")
        gap = 2 if text else 0
        if text.cell_len + gap + piece.cell_len > width and stage not in (run.stage, *run.stages):
            break
        text.append(" " * gap).append_text(piece)
    return text or Text("waiting", style="dim")


def render_run_figures(run: RunProgressState, now: datetime) -> Text:
    """Render model, turns, tokens, cost and time on one line."""
    from rich.text import Text

    tokens = run.input_tokens + run.output_tokens
    parts = [
        f"attempt {run.attempt}" if run.attempt > 1 else "",
        clean_terminal_line(run.model) if not run.scripted else "",
        format_quantity(run.turns, "turn") if run.turns else "",
        f"{format_count(run.input_tokens)} in, {format_count(run.output_tokens)} out" if tokens else "",
        format_cost(run.cost),
        format_run_duration(run.elapsed_seconds(now)),
    ]
    return Text(" · ".join(part for part in parts if part))


def format_quantity(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_run_state(state: str) -> str:
    """Return a state in words: `timed_out` becomes `timed out`."""
    return state.replace("_", " ")


def spinner_frame(now: datetime) -> str:
    return _SPINNER[int(now.timestamp() * REFRESH_PER_SECOND) % len(_SPINNER)]


def render_progress_line(line: ProgressLine, console: Console) -> Text:
    """Render a progress line: agent messages are wrapped, all other lines cut to the terminal's width."""
    from rich.text import Text

    style = _STYLES[line.kind]
    mark = Text(f"{LINE_MARKS[line.kind]} ", style="green" if line.kind == "said" else style)
    if line.kind == "said":
        wrapped = Text(line.text).wrap(console, max(20, console.width - 2))
        return Text("\n").join(
            (Text("  ") if index or line.continues else mark) + each for index, each in enumerate(wrapped)
        )
    text = Text(line.title, style=style) + Text(f" {line.text}" if line.title else line.text, style="dim")
    if line.kind in ("failure", "error", "note", "passed"):
        text = Text(line.text, style=style)
    rendered = mark + text
    rendered.truncate(console.width, overflow="ellipsis")
    return rendered

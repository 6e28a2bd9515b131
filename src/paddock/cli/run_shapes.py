"""How runs are drawn: their stages, figures and words, alone and in rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from paddock.cli.llm_words import count, money
from paddock.cli.run_progress import STAGES, SUCCEEDED, Line, Progress, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

SCRIPTED = "a script answers; no model was asked"
REFRESH = 8
_GAP = 2
MARKS = {
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
_SHORT = (
    ("the entrypoint ended with exit code ", "exit code "),
    ("the entrypoint ", ""),
    ("the agent failed: ", ""),
    ("the agent ended with exit code 0 ", "exit code 0 "),
    ("the agent ended with exit code 0, but ", "exit code 0, but "),
    ("it was cancelled: ", ""),
    ("deliverables are missing: ", "missing: "),
    ("checks did not pass: ", "failed checks: "),
    ("the sandbox ended: ", "sandbox ended: "),
)
"""Beginnings that many reasons share, and what lists show instead."""
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


def short_reason(result: Mapping[str, Any]) -> str:
    """Why a run ended, in as few words as tell it from others: `finished`, `exit code 1`, `timed out after 10m`."""
    reason = " ".join(str(result.get("reason") or "").split())
    if result.get("state") == SUCCEEDED and result.get("endedBy") == "exit":
        return "finished"
    for beginning, short in _SHORT:
        if reason.startswith(beginning):
            return f"{short}{reason.removeprefix(beginning)}"
    return reason


def took(seconds: float) -> str:
    """`0.4s`, `12s`, `3m 05s`, `2h 07m`: with as much as one wants to know while waiting."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def chosen(runs: Sequence[Progress], room: int) -> list[Progress]:
    """As many as there is room for, in their order: under way before ended before waiting."""
    if len(runs) <= room:
        return list(runs)
    running = [run for run in runs if run.state == "running"]
    ended = [run for run in runs if run.over]
    waiting = [run for run in runs if run.state == "queued"]
    kept = {id(run) for run in [*running, *reversed(ended), *waiting][:room]}
    return [run for run in runs if id(run) in kept]


def table(runs: Sequence[Progress], now: datetime, width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    wide = width >= 100
    name = min(max([len("NAME"), *(len(run.name) for run in runs)]), max(12, width // 3))
    widths = {"NAME": name, "STAGE": 13 if wide else 11, "TURNS": 5, "TOKENS": 6, "COST": 8, "TIME": 7}
    if not wide:
        del widths["COST"]
    # Every column has its own width, so that nothing moves while numbers and words change.
    widths["LAST"] = max(10, width - sum(widths.values()) - _GAP * len(widths))
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for title, each in widths.items():
        right = title in ("TURNS", "TOKENS", "COST", "TIME")
        made.add_column(title, width=each, no_wrap=True, overflow="ellipsis", justify="right" if right else "left")
    for run in runs:
        mark = {"queued": " ", "running": spin(now)}.get(run.state, "✓" if run.state == SUCCEEDED else "✗")
        tokens = run.input_tokens + run.output_tokens
        cells = {
            "NAME": Text(one_line(run.name)),
            "STAGE": Text(f"{mark} {run.stage or words(run.state)}", style=STATE_STYLES.get(run.state, "")),
            "TURNS": Text(str(run.turns or "")),
            "TOKENS": Text(count(tokens) if tokens else ""),
            "COST": Text(money(run.cost)),
            "TIME": Text(took(run.elapsed(now)) if run.began else ""),
            "LAST": Text(_latest(run)[: width * 2], style="dim"),
        }
        made.add_row(*(cells[title] for title in widths))
    return made


def _latest(run: Progress) -> str:
    if run.over and run.state != SUCCEEDED:
        return run.reason
    return run.building or run.last


def totals(runs: Sequence[Progress], now: datetime) -> Text:
    """One line about all of them."""
    from rich.text import Text

    counted = {state: sum(run.state == state for run in runs) for state in STATE_STYLES}
    said = Text(f"{sum(run.over for run in runs)} of {len(runs)} done", style="bold")
    for state, number in counted.items():
        if number:
            said.append(" · ", style="dim").append(f"{number} {words(state)}", style=STATE_STYLES[state])
    tokens = sum(run.input_tokens + run.output_tokens for run in runs)
    costs = [run.cost for run in runs if run.cost is not None]
    began = min((run.began for run in runs if run.began), default=None)
    ended = [run.ended for run in runs if run.ended]
    until = max(ended) if len(ended) == len(runs) and ended else now
    more = [f"{count(tokens)} tokens" if tokens else "", money(sum(costs)) if costs else ""]
    more.append(took((until - began).total_seconds()) if began else "")
    for each in filter(None, more):
        said.append(" · ", style="dim").append(each, style="")
    if any(run.scripted for run in runs):
        said.append(" · ", style="dim").append("scripts answer; no model was asked", style="yellow")
    return said


def stages(run: Progress, now: datetime, width: int) -> Text:
    """The stages with ticks and seconds; those to come as far as there is room."""
    from rich.text import Text

    said = Text()
    for stage in STAGES:
        if stage == run.stage:
            since = (now - run.stage_began).total_seconds() if run.stage_began else 0.0
            piece = Text.assemble((f"{spin(now)} ", "cyan"), (stage, "bold"), (f" {took(since)}", "cyan"))
        elif stage in run.stages:
            if stage == "admit" and run.stages[stage] < 0.5:
                continue
            piece = Text.assemble(("✓ ", "green"), stage, (f" {took(run.stages[stage])}", "dim"))
        elif stage in ("admit", "release") or run.over:
            continue
        else:
            piece = Text(stage, style="dim")
        gap = 2 if said else 0
        if said.cell_len + gap + piece.cell_len > width and stage not in (run.stage, *run.stages):
            break
        said.append(" " * gap).append_text(piece)
    return said or Text("waiting", style="dim")


def facts(run: Progress, now: datetime) -> Text:
    """Model, turns, tokens, cost and time on one line."""
    from rich.text import Text

    tokens = run.input_tokens + run.output_tokens
    parts = [
        f"attempt {run.attempt}" if run.attempt > 1 else "",
        one_line(run.model) if not run.scripted else "",
        number_of(run.turns, "turn") if run.turns else "",
        f"{count(run.input_tokens)} in, {count(run.output_tokens)} out" if tokens else "",
        money(run.cost),
        took(run.elapsed(now)),
    ]
    return Text(" · ".join(part for part in parts if part))


def number_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def words(state: str) -> str:
    """`timed_out` as people write it."""
    return state.replace("_", " ")


def spin(now: datetime) -> str:
    return _SPINNER[int(now.timestamp() * REFRESH) % len(_SPINNER)]


def shown(line: Line, console: Console) -> Text:
    """A line as it goes by: the agent's words whole, all else cut to the terminal's width."""
    from rich.text import Text

    style = _STYLES[line.sort]
    mark = Text(f"{MARKS[line.sort]} ", style="green" if line.sort == "said" else style)
    if line.sort == "said":
        wrapped = Text(line.text).wrap(console, max(20, console.width - 2))
        return Text("\n").join((Text("  ") if place else mark) + each for place, each in enumerate(wrapped))
    text = Text(line.title, style=style) + Text(f" {line.text}" if line.title else line.text, style="dim")
    if line.sort in ("failure", "error", "note", "passed"):
        text = Text(line.text, style=style)
    made = mark + text
    made.truncate(console.width, overflow="ellipsis")
    return made

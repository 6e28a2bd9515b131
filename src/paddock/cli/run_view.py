"""Runs as they go on: live on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from paddock.cli.failure import wants_colour
from paddock.cli.llm_words import count, money
from paddock.cli.output import Output, plain
from paddock.cli.run_progress import STAGES, SUCCEEDED, Line, Progress, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

SCRIPTED = "a script answers; no model was asked"
_REFRESH = 8
_GAP = 2
_MARKS = {
    "said": "●",
    "thought": "·",
    "call": "→",
    "result": "←",
    "failure": "✗",
    "output": "│",
    "error": "✗",
    "note": "!",
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
}
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


class View(Protocol):
    """What shows runs. Opened with `with`, before anything happens."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def add(self, run: Progress) -> None:
        """There is another run."""

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        """Something happened to a run, which knows of it already."""

    def note(self, text: str) -> None:
        """Something that concerns all of them."""

    def status(self, text: str) -> None:
        """What is being done before there is any run."""


def view_for(out: Output, runs: int) -> View:
    """The view that fits where the output goes to."""
    if out.as_json:
        return JsonView(out)
    if not sys.stdout.isatty():
        return LinesView(out)
    return OneView() if runs == 1 else ManyView()


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


class JsonView:
    """Every event as a line of JSON."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, run: Progress) -> None:
        pass

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        self._out.event({"run": run.id, "name": run.name, **event})

    def note(self, text: str) -> None:
        sys.stderr.write(f"{plain(text)}\n")

    def status(self, text: str) -> None:
        pass


class LinesView:
    """Every stage and everything said or done on a line of its own, behind the run's name."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._width = 0
        self._scripted: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, run: Progress) -> None:
        self._width = max(self._width, len(run.name))

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        if run.scripted and run.id not in self._scripted:
            self._scripted.add(run.id)
            self._line(run, "!", SCRIPTED)
        if event.get("type") == "run.stage":
            self._line(run, "=", f"{run.stage}: {run.step}" if run.step else run.stage)
        elif event.get("type") == "run.ended":
            self._line(run, "✓" if run.state == SUCCEEDED else "✗", f"{words(run.state)}: {run.reason}")
        for line in lines:
            for each in line.text.splitlines() or [""]:
                self._line(run, _MARKS[line.sort], f"{line.title} {each}".strip())

    def note(self, text: str) -> None:
        self._out.line(one_line(text))

    def status(self, text: str) -> None:
        self._out.line(one_line(text))

    def _line(self, run: Progress, mark: str, text: str) -> None:
        after = took(run.elapsed(run.at or datetime.now(UTC)))
        self._out.line(f"{run.name:<{self._width}}  {after:>7}  {mark} {text}")


class _Live:
    """A terminal whose last lines are drawn again and again, while what is said goes by above them."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
        self._live: Live | None = None
        self._status = ""

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(
            console=self.console,
            get_renderable=self.picture,
            refresh_per_second=_REFRESH,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def picture(self) -> RenderableType:
        raise NotImplementedError

    def note(self, text: str) -> None:
        from rich.text import Text

        self.console.print(Text(one_line(text), style="yellow"))

    def status(self, text: str) -> None:
        self._status = one_line(text)

    def waiting(self, now: datetime) -> RenderableType:
        from rich.text import Text

        return Text.assemble((f"{_spin(now)} ", "cyan"), self._status) if self._status else Text("")


class OneView(_Live):
    """One run: what it says and does goes by above a panel with how far it is."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._run: Progress | None = None

    def add(self, run: Progress) -> None:
        self._run = run

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        for line in lines:
            self.console.print(_shown(line, self.console))

    def picture(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        run, now = self._run, datetime.now(UTC)
        if run is None:
            return self.waiting(now)
        inner = max(20, self.console.width - 4)
        rows = [stages(run, now, inner), facts(run, now)]
        if run.step:
            rows.append(Text(f"building its image: {run.step}", style="cyan"))
        if run.scripted:
            rows.append(Text(SCRIPTED, style="yellow"))
        for row in rows:
            row.truncate(inner, overflow="ellipsis")
        title = Text(one_line(run.name), style="bold")
        title.truncate(inner)
        return Panel(Group(*rows), title=title, title_align="left", box=box.ROUNDED, border_style="dim")


class ManyView(_Live):
    """Many runs: a row for each, those that are under way first where there is no room for all."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._runs: list[Progress] = []

    def add(self, run: Progress) -> None:
        self._runs.append(run)

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        from rich.text import Text

        if event.get("type") == "run.ended" and run.state != SUCCEEDED:
            text = Text(f"✗ {one_line(run.name)} {words(run.state)}: {run.reason}", style="red")
            text.truncate(self.console.width, overflow="ellipsis")
            self.console.print(text)

    def picture(self) -> RenderableType:
        from rich.console import Group

        now = datetime.now(UTC)
        runs = list(self._runs)
        if not runs:
            return self.waiting(now)
        room = max(3, self.console.height - 5)
        shown = chosen(runs, room)
        rows: list[RenderableType] = [table(shown, now, self.console.width)]
        if len(shown) < len(runs):
            from rich.text import Text

            rows.append(Text(f"… and {len(runs) - len(shown)} more", style="dim"))
        return Group(*rows, totals(runs, now))


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
        mark = {"queued": " ", "running": _spin(now)}.get(run.state, "✓" if run.state == SUCCEEDED else "✗")
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
    return f"building its image: {run.step}" if run.step else run.last


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
            piece = Text.assemble((f"{_spin(now)} ", "cyan"), (stage, "bold"), (f" {took(since)}", "cyan"))
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
        f"{run.turns} turn{'s' if run.turns != 1 else ''}" if run.turns else "",
        f"{count(run.input_tokens)} in, {count(run.output_tokens)} out" if tokens else "",
        money(run.cost),
        took(run.elapsed(now)),
    ]
    return Text(" · ".join(part for part in parts if part))


def words(state: str) -> str:
    """`timed_out` as people write it."""
    return state.replace("_", " ")


def _spin(now: datetime) -> str:
    return _SPINNER[int(now.timestamp() * _REFRESH) % len(_SPINNER)]


def _shown(line: Line, console: Console) -> Text:
    """A line as it goes by: the agent's words whole, all else cut to the terminal's width."""
    from rich.text import Text

    style = _STYLES[line.sort]
    mark = Text(f"{_MARKS[line.sort]} ", style="green" if line.sort == "said" else style)
    if line.sort == "said":
        wrapped = Text(line.text).wrap(console, max(20, console.width - 2))
        return Text("\n").join((Text("  ") if place else mark) + each for place, each in enumerate(wrapped))
    text = Text(line.title, style=style) + Text(f" {line.text}" if line.title else line.text, style="dim")
    if line.sort in ("failure", "error", "note"):
        text = Text(line.text, style=style)
    made = mark + text
    made.truncate(console.width, overflow="ellipsis")
    return made


def colours() -> bool:
    return wants_colour(sys.stdout)

"""Views of running tasks: live display on a terminal, lines in a pipe, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from paddock.cli.output.agent_text import clean_terminal_line
from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.formatting import sanitize_text
from paddock.cli.run.run_progress import SUCCEEDED_STATE, ProgressLine, RunProgressState
from paddock.cli.run.run_render import (
    LINE_MARKS,
    REFRESH_PER_SECOND,
    SCRIPTED_NOTE,
    choose_visible_runs,
    format_run_duration,
    format_run_state,
    render_progress_line,
    render_run_figures,
    render_run_stages,
    render_run_totals,
    render_runs_table,
    spinner_frame,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


class RunView(Protocol):
    """Shows the progress of runs. Use as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def add_run(self, run: RunProgressState) -> None:
        """Add a run to the view."""

    def show_event(self, run: RunProgressState, event: Mapping[str, Any], lines: Sequence[ProgressLine]) -> None:
        """Show an event that was already applied to `run`."""

    def print_note(self, text: str) -> None:
        """Print a note about all runs."""

    def show_status(self, text: str) -> None:
        """Show a status before the first run is added."""


def choose_run_view(out: CommandOutput, runs: int) -> RunView:
    """Return the view that suits the output: JSON, pipe or terminal."""
    if out.as_json:
        return HangupTolerantView(JsonRunView(out))
    if not sys.stdout.isatty():
        return HangupTolerantView(PlainRunView(out))
    return HangupTolerantView(SingleRunView() if runs == 1 else RunsTableView())


class HangupTolerantView:
    """A view that keeps working after the terminal has been closed, so that runs are still supervised."""

    def __init__(self, view: RunView) -> None:
        self._view = view

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _discard_output_after_hangup():
            self._view.__exit__(kind, error, traceback)

    def add_run(self, run: RunProgressState) -> None:
        with _discard_output_after_hangup():
            self._view.add_run(run)

    def show_event(self, run: RunProgressState, event: Mapping[str, Any], lines: Sequence[ProgressLine]) -> None:
        with _discard_output_after_hangup():
            self._view.show_event(run, event, lines)

    def print_note(self, text: str) -> None:
        with _discard_output_after_hangup():
            self._view.print_note(text)

    def show_status(self, text: str) -> None:
        with _discard_output_after_hangup():
            self._view.show_status(text)


@contextmanager
def _discard_output_after_hangup() -> Iterator[None]:
    """Redirect standard output and error to /dev/null once writing to them fails."""
    try:
        yield
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        try:
            os.write(2, b"")
        except OSError:
            os.dup2(nowhere, 2)
        os.close(nowhere)


class JsonRunView:
    """Prints every event as a line of JSON."""

    def __init__(self, out: CommandOutput) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_run(self, run: RunProgressState) -> None:
        pass

    def show_event(self, run: RunProgressState, event: Mapping[str, Any], lines: Sequence[ProgressLine]) -> None:
        self._out.print_json_line({"run": run.id, "name": run.name, **event})

    def print_note(self, text: str) -> None:
        sys.stderr.write(f"{sanitize_text(text)}\n")

    def show_status(self, text: str) -> None:
        pass


class PlainRunView:
    """Prints a line with the run's name for every stage, message, call and result."""

    def __init__(self, out: CommandOutput) -> None:
        self._out = out
        self._width = 0
        self._runs = 0
        self._scripted: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_run(self, run: RunProgressState) -> None:
        self._runs += 1
        self._width = max(self._width, len(run.name))

    def show_event(self, run: RunProgressState, event: Mapping[str, Any], lines: Sequence[ProgressLine]) -> None:
        if run.scripted and run.id not in self._scripted:
            self._scripted.add(run.id)
            self._line(run, "!", SCRIPTED_NOTE)
        if event.get("type") == "run.stage":
            self._line(run, "=", run.image_build_status or run.stage)
        elif event.get("type") == "run.ended" and self._runs > 1:
            # The reason is part of the summary, which follows immediately for a single run.
            self._line(run, "✓" if run.state == SUCCEEDED_STATE else "✗", format_run_state(run.state))
        for line in lines:
            for index, each in enumerate(line.text.splitlines() or [""]):
                if index or line.continues:
                    self._line(run, " ", each)
                else:
                    self._line(run, LINE_MARKS[line.kind], f"{line.title} {each}".strip())

    def print_note(self, text: str) -> None:
        self._out.print_line(clean_terminal_line(text))

    def show_status(self, text: str) -> None:
        self._out.print_line(clean_terminal_line(text))

    def _line(self, run: RunProgressState, mark: str, text: str) -> None:
        after = format_run_duration(run.elapsed_seconds(run.last_event_at or datetime.now(UTC)))
        self._out.print_line(f"{run.name:<{self._width}}  {after:>7}  {mark} {text}")


def _is_foreground() -> bool:
    """Return whether this process is in the foreground; changing the terminal from the background would stop it."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _without_echo() -> Iterator[None]:
    """Turn off echo, because typed characters, including `^C`, would disturb the live display."""
    import termios

    if not _is_foreground():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # The terminal may have been closed.
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class _LiveView:
    """A terminal with a live area at the bottom and scrolling output above it."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
        self._live: Live | None = None
        self._status = ""
        self._echo = _without_echo()

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(
            console=self.console,
            get_renderable=self.render,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._echo.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._echo.__exit__(None, None, None)

    def render(self) -> RenderableType:
        raise NotImplementedError

    def print_note(self, text: str) -> None:
        from rich.text import Text

        self.console.print(Text(clean_terminal_line(text), style="yellow"))

    def show_status(self, text: str) -> None:
        self._status = clean_terminal_line(text)

    def render_status(self, now: datetime) -> RenderableType:
        from rich.text import Text

        return Text.assemble((f"{spinner_frame(now)} ", "cyan"), self._status) if self._status else Text("")


class SingleRunView(_LiveView):
    """Shows one run: progress lines scroll above a panel with the run's state."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._run: RunProgressState | None = None

    def add_run(self, run: RunProgressState) -> None:
        self._run = run

    def show_event(self, run: RunProgressState, event: Mapping[str, Any], lines: Sequence[ProgressLine]) -> None:
        for line in lines:
            self.console.print(render_progress_line(line, self.console))

    def render(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        run, now = self._run, datetime.now(UTC)
        if run is None:
            return self.render_status(now)
        inner = max(20, self.console.width - 4)
        rows = [render_run_stages(run, now, inner), render_run_figures(run, now)]
        if run.step:
            rows.append(Text(run.image_build_status, style="cyan"))
        if run.scripted:
            rows.append(Text(SCRIPTED_NOTE, style="yellow"))
        for row in rows:
            row.truncate(inner, overflow="ellipsis")
        title = Text(clean_terminal_line(run.name), style="bold")
        title.truncate(inner)
        return Panel(Group(*rows), title=title, title_align="left", box=box.ROUNDED, border_style="dim")


class RunsTableView(_LiveView):
    """Shows several runs as a table; if not all fit, running ones are preferred."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._runs: list[RunProgressState] = []

    def add_run(self, run: RunProgressState) -> None:
        self._runs.append(run)

    def show_event(self, run: RunProgressState, event: Mapping[str, Any], lines: Sequence[ProgressLine]) -> None:
        from rich.text import Text

        if event.get("type") == "run.ended" and run.state != SUCCEEDED_STATE:
            text = Text(f"✗ {clean_terminal_line(run.name)} {format_run_state(run.state)}", style="red")
            text.truncate(self.console.width, overflow="ellipsis")
            self.console.print(text)

    def render(self) -> RenderableType:
        from rich.console import Group

        now = datetime.now(UTC)
        runs = list(self._runs)
        if not runs:
            return self.render_status(now)
        max_rows = max(3, self.console.height - 5)
        visible = choose_visible_runs(runs, max_rows)
        rows: list[RenderableType] = [render_runs_table(visible, now, self.console.width)]
        if len(visible) < len(runs):
            from rich.text import Text

            rows.append(Text(f"… and {len(runs) - len(visible)} more", style="dim"))
        return Group(*rows, render_run_totals(runs, now))

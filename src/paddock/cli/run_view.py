"""Runs as they go on: live on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from paddock.cli.output import Output, plain
from paddock.cli.run_progress import SUCCEEDED, Line, Progress, one_line
from paddock.cli.run_shapes import (
    MARKS,
    REFRESH,
    SCRIPTED,
    chosen,
    facts,
    shown,
    spin,
    stages,
    table,
    took,
    totals,
    words,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


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
        return Enduring(JsonView(out))
    if not sys.stdout.isatty():
        return Enduring(LinesView(out))
    return Enduring(OneView() if runs == 1 else ManyView())


class Enduring:
    """A view that outlives who looks at it: runs must be seen to, also when the terminal has been closed."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _unseen():
            self._view.__exit__(kind, error, traceback)

    def add(self, run: Progress) -> None:
        with _unseen():
            self._view.add(run)

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        with _unseen():
            self._view.tell(run, event, lines)

    def note(self, text: str) -> None:
        with _unseen():
            self._view.note(text)

    def status(self, text: str) -> None:
        with _unseen():
            self._view.status(text)


@contextmanager
def _unseen() -> Iterator[None]:
    """When nobody can read any more what is written, let all of it go nowhere from then on."""
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
        self._runs = 0
        self._scripted: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, run: Progress) -> None:
        self._runs += 1
        self._width = max(self._width, len(run.name))

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        if run.scripted and run.id not in self._scripted:
            self._scripted.add(run.id)
            self._line(run, "!", SCRIPTED)
        if event.get("type") == "run.stage":
            self._line(run, "=", run.building or run.stage)
        elif event.get("type") == "run.ended" and self._runs > 1:
            # Why it ended stands in the summary, and of a single run that comes at once.
            self._line(run, "✓" if run.state == SUCCEEDED else "✗", words(run.state))
        for line in lines:
            for each in line.text.splitlines() or [""]:
                self._line(run, MARKS[line.sort], f"{line.title} {each}".strip())

    def note(self, text: str) -> None:
        self._out.line(one_line(text))

    def status(self, text: str) -> None:
        self._out.line(one_line(text))

    def _line(self, run: Progress, mark: str, text: str) -> None:
        after = took(run.elapsed(run.at or datetime.now(UTC)))
        self._out.line(f"{run.name:<{self._width}}  {after:>7}  {mark} {text}")


def _in_front() -> bool:
    """Whether the terminal is ours to change; doing that from the background would stop us."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _without_echo() -> Iterator[None]:
    """What is typed, `^C` too, would push what is drawn out of its place."""
    import termios

    if not _in_front():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # It may have been closed.
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class _Live:
    """A terminal whose last lines are drawn again and again, while what is said goes by above them."""

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
            get_renderable=self.picture,
            refresh_per_second=REFRESH,
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

    def picture(self) -> RenderableType:
        raise NotImplementedError

    def note(self, text: str) -> None:
        from rich.text import Text

        self.console.print(Text(one_line(text), style="yellow"))

    def status(self, text: str) -> None:
        self._status = one_line(text)

    def waiting(self, now: datetime) -> RenderableType:
        from rich.text import Text

        return Text.assemble((f"{spin(now)} ", "cyan"), self._status) if self._status else Text("")


class OneView(_Live):
    """One run: what it says and does goes by above a panel with how far it is."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._run: Progress | None = None

    def add(self, run: Progress) -> None:
        self._run = run

    def tell(self, run: Progress, event: Mapping[str, Any], lines: Sequence[Line]) -> None:
        for line in lines:
            self.console.print(shown(line, self.console))

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
            rows.append(Text(run.building, style="cyan"))
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
            text = Text(f"✗ {one_line(run.name)} {words(run.state)}", style="red")
            text.truncate(self.console.width, overflow="ellipsis")
            self.console.print(text)

    def picture(self) -> RenderableType:
        from rich.console import Group

        now = datetime.now(UTC)
        runs = list(self._runs)
        if not runs:
            return self.waiting(now)
        room = max(3, self.console.height - 5)
        few = chosen(runs, room)
        rows: list[RenderableType] = [table(few, now, self.console.width)]
        if len(few) < len(runs):
            from rich.text import Text

            rows.append(Text(f"… and {len(runs) - len(few)} more", style="dim"))
        return Group(*rows, totals(runs, now))

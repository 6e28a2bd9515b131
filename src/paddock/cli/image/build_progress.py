"""Shows the progress of an image build: live on a terminal, as lines, or as JSON."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.formatting import format_build_step, format_elapsed, sanitize_text

if TYPE_CHECKING:
    from paddock.sandbox.images import BuildProgress

ShowProgress = Callable[["BuildProgress"], None]


@contextmanager
def note_when_stopped() -> Iterator[None]:
    """On Ctrl-C, print that the build was stopped and cleaned up."""
    try:
        yield
    except asyncio.CancelledError:
        sys.stderr.write("build stopped; its partial result was removed\n")
        raise


@contextmanager
def show_build_progress(out: CommandOutput, name: str) -> Iterator[ShowProgress]:
    """Show a build's progress: live on a terminal, a line per step in a pipe, or JSON lines."""
    if out.as_json:
        yield _progress_as_json(out, name)
    elif sys.stdout.isatty():
        with _live_progress(name) as watch:
            yield watch
    else:
        yield _progress_as_lines(out.print_line, name)


@contextmanager
def show_build_progress_on_stderr(name: str) -> Iterator[ShowProgress]:
    """Show a build's progress on standard error, for commands that print something else."""
    if sys.stderr.isatty():
        with _live_progress(name, stderr=True) as watch:
            yield watch
    else:
        yield _progress_as_lines(lambda text: print(sanitize_text(text), file=sys.stderr, flush=True), name)  # noqa: T201


def _progress_as_json(out: CommandOutput, name: str) -> ShowProgress:
    def watch(now: BuildProgress) -> None:
        document: dict[str, Any] = {
            "image": name,
            "event": "progress",
            "step": now.step,
            "fraction": now.fraction,
            "step_number": now.step_number,
            "step_count": now.step_count,
        }
        out.print_json_line(document | ({"line": now.line} if now.line else {}))

    return watch


def _progress_as_lines(say: Callable[[str], object], name: str) -> ShowProgress:
    began = time.monotonic()
    last = ""

    def watch(now: BuildProgress) -> None:
        nonlocal last
        if now.step != last:
            last = now.step
            say(f"{name}  {format_elapsed(time.monotonic() - began):>5}  {now.step}")

    return watch


@contextmanager
def _live_progress(name: str, stderr: bool = False) -> Iterator[ShowProgress]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    console = Console(highlight=False, stderr=stderr)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(22),
        TimeElapsedColumn(),
        console=console,
        expand=False,
    )
    task = bar.add_task(name, total=None)
    below = Text("", style="dim", no_wrap=True, overflow="ellipsis")
    with Live(Group(bar, below), console=console, transient=True, refresh_per_second=8):

        def watch(now: BuildProgress) -> None:
            bar.update(
                task,
                description=f"{name}: {format_build_step(vars(now) | {'fraction': None}, now.step)}"[:47].ljust(47),
                total=None if now.fraction is None else 1.0,
                completed=now.fraction or 0.0,
            )
            below.plain = f"  {sanitize_text(now.line)}"

        yield watch

"""What a build looks like while it goes on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paddock.cli.output import Output, plain, span

if TYPE_CHECKING:
    from paddock.sandbox.images import Progress

Watch = Callable[["Progress"], None]


@contextmanager
def told_when_stopped() -> Iterator[None]:
    """Say what Ctrl-C leaves of a build."""
    try:
        yield
    except asyncio.CancelledError:
        sys.stderr.write("stopped; nothing of it is left\n")
        raise


@contextmanager
def watching(out: Output, name: str) -> Iterator[Watch]:
    """Show a build's progress: live on a terminal, a line for every step elsewhere, JSON lines for programs."""
    if out.as_json:
        yield _as_events(out, name)
    elif sys.stdout.isatty():
        with _live(name) as watch:
            yield watch
    else:
        yield _as_lines(out.line, name)


@contextmanager
def watching_aside(name: str) -> Iterator[Watch]:
    """The same on standard error, for a command whose output is something else."""
    if sys.stderr.isatty():
        with _live(name, stderr=True) as watch:
            yield watch
    else:
        yield _as_lines(lambda text: print(plain(text), file=sys.stderr, flush=True), name)  # noqa: T201


def _as_events(out: Output, name: str) -> Watch:
    def watch(now: Progress) -> None:
        document: dict[str, Any] = {"image": name, "event": "progress", "step": now.step, "fraction": now.fraction}
        out.event(document | ({"line": now.line} if now.line else {}))

    return watch


def _as_lines(say: Callable[[str], object], name: str) -> Watch:
    began = time.monotonic()
    last = ""

    def watch(now: Progress) -> None:
        nonlocal last
        if now.step != last:
            last = now.step
            say(f"{name}  {span(time.monotonic() - began):>5}  {now.step}")

    return watch


@contextmanager
def _live(name: str, stderr: bool = False) -> Iterator[Watch]:
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

        def watch(now: Progress) -> None:
            bar.update(
                task,
                description=f"{name}: {now.step}"[:47].ljust(47),
                total=None if now.fraction is None else 1.0,
                completed=now.fraction or 0.0,
            )
            below.plain = f"  {plain(now.line)}"

        yield watch

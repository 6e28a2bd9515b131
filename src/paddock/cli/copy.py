"""`paddock sandbox cp`: files and directories in and out of a sandbox, and from one to another."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import UsageProblem, warn
from paddock.cli.output import size

Report = Callable[[int, int | None], None]
DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def register(boxes: typer.Typer) -> None:
    command(
        boxes,
        "cp",
        server=True,
        examples="""
            paddock sandbox cp report.pdf 3f2a:/workspace/
            paddock sandbox cp src 3f2a:/workspace/src
            paddock sandbox cp 3f2a:/workspace/out results
            paddock sandbox cp 3f2a:/workspace/. .
            paddock sandbox cp 3f2a:/workspace/data.csv 77b1:/workspace/
            paddock sandbox cp 'win:C:\\report.txt' .
        """,
    )(copy)


@dataclass(frozen=True)
class Place:
    """One side of a copy."""

    sandbox: str | None
    path: str


def parse_place(text: str) -> Place:
    """`SANDBOX:/path`, or a path here; a path with a colon before its first slash is written `./a:b`.

    Where Windows programs run, `SANDBOX:C:\\path` is a place too.
    """
    sandbox, colon, path = text.partition(":")
    if not colon or "/" in sandbox or sandbox in ("", ".", ".."):
        return Place(None, text)
    if not path.startswith("/") and not DRIVE.match(path):
        like = f"/home/agent{path[1:]}" if path.startswith("~/") else "/workspace"
        raise UsageProblem(f"{text!r}: write an absolute path behind the colon, as in {sandbox}:{like}")
    return Place(sandbox, path)


async def copy(
    cli: Cli,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="SANDBOX:/PATH, or a path here.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The same, the other side.", show_default=False)],
    skip_unsafe: Annotated[
        bool, typer.Option("--skip-unsafe", help="Leave out what could harm this machine instead of refusing all.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Copy files and directories into a sandbox, out of it, or from one to another.

    A target that is a directory gets the source inside it; SOURCE/. stands for a directory's content. Modes are kept,
    owners are not. What comes out of a sandbox is checked: links that lead elsewhere, devices and the like are refused.
    """
    from paddock.cli import transfer
    from paddock.cli.find import find

    origin, goal = parse_place(source), parse_place(target)
    if origin.sandbox is None and goal.sandbox is None:
        raise UsageProblem("one of SOURCE and TARGET must be SANDBOX:/PATH")
    if origin.sandbox is not None and goal.sandbox is not None:
        return await _between(cli, origin, goal, quiet)
    if origin.sandbox is None:
        transfer.check_source(origin.path)
    async with cli.client() as client:
        sandbox_id = await find(client, origin.sandbox or goal.sandbox or "")
        with _progress(f"{source} → {target}", quiet or cli.as_json) as report:
            if origin.sandbox is None:
                path = await transfer.plain_path(client, sandbox_id, goal.path)
                count = await transfer.upload(client, sandbox_id, origin.path, path, report)
                place = goal.path
            else:
                path = await transfer.plain_path(client, sandbox_id, origin.path)
                count, place = await transfer.download(
                    client, sandbox_id, path, goal.path, report, skip_unsafe=skip_unsafe, skipped=warn
                )
    if cli.as_json:
        cli.out.document({"source": source, "target": target, "bytes": count, "path": place})
    elif cli.out.for_people and not quiet:
        where = place if goal.sandbox is None else f"{goal.sandbox}:{place}"
        cli.out.line(f"copied {size(count)} to {where}")
    return None


async def _between(cli: Cli, origin: Place, goal: Place, quiet: bool) -> None:
    """From one sandbox to another; the bytes pass through the server and never come here."""
    from paddock.cli import transfer
    from paddock.cli.find import find

    async with cli.client() as client:
        source, target = await find(client, origin.sandbox or ""), await find(client, goal.sandbox or "")
        with _progress(f"{origin.sandbox}:{origin.path} → {goal.sandbox}:{goal.path}", quiet or cli.as_json) as report:
            moved = await transfer.between(client, source, origin.path, target, goal.path, report)
    if cli.as_json:
        cli.out.document(moved)
    elif cli.out.for_people and not quiet:
        cli.out.line(f"copied {size(moved['size'])} to {goal.sandbox}:{moved['destinationPath']}")


@contextmanager
def _progress(title: str, quiet: bool) -> Iterator[Report]:
    """A line on standard error that counts bytes, where somebody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda count, total: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    console = Console(stderr=True, highlight=False)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        DownloadColumn(True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        width = max(20, console.width - 40)
        task = progress.add_task(title if len(title) <= width else f"…{title[-width:]}", total=None)
        yield lambda count, total: progress.update(task, completed=count, total=total)

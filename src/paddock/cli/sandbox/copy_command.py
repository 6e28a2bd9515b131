"""`paddock sandbox cp`: copies files into, out of and between sandboxes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import UsageError, print_warning
from paddock.cli.output.formatting import format_size

ReportProgress = Callable[[int, int | None], None]
WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
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
    )(copy_files)


@dataclass(frozen=True)
class CopyEndpoint:
    """Source or target of a copy; `sandbox` is None for a local path."""

    sandbox: str | None
    path: str


def parse_copy_endpoint(text: str) -> CopyEndpoint:
    """Parse `SANDBOX:/path` or a local path; a local path with an early colon is written `./a:b`.

    In sandboxes with Windows programs, `SANDBOX:C:\\path` works too.
    """
    sandbox, colon, path = text.partition(":")
    if not colon or "/" in sandbox or sandbox in ("", ".", ".."):
        return CopyEndpoint(None, text)
    if not path.startswith("/") and not WINDOWS_DRIVE.match(path):
        like = f"/home/agent{path[1:]}" if path.startswith("~/") else "/workspace"
        raise UsageError(f"{text!r}: write an absolute path after the colon, for example {sandbox}:{like}")
    return CopyEndpoint(sandbox, path)


async def copy_files(
    cli: CliContext,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="SANDBOX:/PATH, or a local path.", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="SANDBOX:/PATH, or a local path.", show_default=False)
    ],
    skip_unsafe: Annotated[
        bool, typer.Option("--skip-unsafe", help="Skip unsafe archive entries instead of failing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
) -> None:
    """Copy files and directories into a sandbox, out of it, or from one to another.

    If TARGET is a directory, the source is copied into it; SOURCE/. means a directory's content. Modes are kept, owners
    are not. Files from a sandbox are checked: links that point outside, devices and the like are rejected.
    """
    from paddock.cli.sandbox import file_transfer
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    origin, goal = parse_copy_endpoint(source), parse_copy_endpoint(target)
    if origin.sandbox is None and goal.sandbox is None:
        raise UsageError("one of SOURCE and TARGET must be SANDBOX:/PATH")
    if origin.sandbox is not None and goal.sandbox is not None:
        return await _copy_between_sandboxes(cli, origin, goal, quiet)
    if origin.sandbox is None:
        file_transfer.check_local_source_exists(origin.path)
    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, origin.sandbox or goal.sandbox or "")
        with _show_copy_progress(f"{source} → {target}", quiet or cli.as_json) as report:
            if origin.sandbox is None:
                path = await file_transfer.to_linux_path(client, sandbox_id, goal.path)
                count = await file_transfer.upload_files(client, sandbox_id, origin.path, path, report)
                result_path = goal.path
            else:
                path = await file_transfer.to_linux_path(client, sandbox_id, origin.path)
                count, result_path = await file_transfer.download_files(
                    client, sandbox_id, path, goal.path, report, skip_unsafe=skip_unsafe, skipped=print_warning
                )
    if cli.as_json:
        cli.out.print_json({"source": source, "target": target, "bytes": count, "path": result_path})
    elif cli.out.is_interactive and not quiet:
        where = result_path if goal.sandbox is None else f"{goal.sandbox}:{result_path}"
        cli.out.print_line(f"copied {format_size(count)} to {where}")
    return None


async def _copy_between_sandboxes(cli: CliContext, origin: CopyEndpoint, goal: CopyEndpoint, quiet: bool) -> None:
    """Copy from one sandbox to another within the server, without a local copy."""
    from paddock.cli.sandbox import file_transfer
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        source, target = (
            await find_sandbox(client, origin.sandbox or ""),
            await find_sandbox(client, goal.sandbox or ""),
        )
        with _show_copy_progress(
            f"{origin.sandbox}:{origin.path} → {goal.sandbox}:{goal.path}", quiet or cli.as_json
        ) as report:
            moved = await file_transfer.copy_between_sandboxes(client, source, origin.path, target, goal.path, report)
    if cli.as_json:
        cli.out.print_json(moved)
    elif cli.out.is_interactive and not quiet:
        cli.out.print_line(f"copied {format_size(moved['size'])} to {goal.sandbox}:{moved['destinationPath']}")


@contextmanager
def _show_copy_progress(title: str, quiet: bool) -> Iterator[ReportProgress]:
    """Show the number of copied bytes on standard error if it is a terminal."""
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

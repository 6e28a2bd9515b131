"""`paddock runs cancel`, `retry`, `rm` and `get`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.framework.sharing_commands import register_sharing_commands
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_size, sanitize_text
from paddock.cli.run.runs_commands import RunArgument, find_run_path

RunsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN", help="IDs, ID prefixes, or names.", show_default=False)
]


def register_commands(runs: typer.Typer) -> None:
    register_command(
        runs, "cancel", server=True, examples="paddock runs cancel run-3f2a\npaddock runs cancel hello --hard"
    )(cancel_runs)
    register_command(
        runs,
        "retry",
        server=True,
        examples="paddock runs retry run-3f2a\npaddock runs watch $(paddock runs retry hello)",
    )(retry_runs)
    register_sharing_commands(runs, "runs", "runs", CliContext.open_client, find_run_path)
    register_command(runs, "rm", server=True, examples="paddock runs rm run-3f2a run-77b1")(remove_runs)
    register_command(
        runs,
        "get",
        server=True,
        examples="""
            paddock runs get hello
            paddock runs get run-3f2a -o results
            paddock runs get run-3f2a --archive run.tar
        """,
    )(get_deliverables)


async def cancel_runs(
    cli: CliContext,
    runs: RunsArgument,
    hard: Annotated[bool, typer.Option("--hard", help="Cancel immediately, without partial results.")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason, stored with the run.")] = None,
) -> None:
    """Cancel runs. Partial results are collected unless you pass --hard."""
    from paddock.cli.run.run_progress import ENDED_STATES
    from paddock.cli.run.run_render import format_run_state

    body = {"hard": hard} | ({"reason": reason} if reason else {})
    done = []
    async with cli.open_client() as client:
        for run in runs:
            path = await find_run_path(client, run)
            found = await client.get(path)
            if found["state"] in ENDED_STATES:
                sys.stderr.write(f"{sanitize_text(run)} has already ended: {format_run_state(found['state'])}\n")
            else:
                done.append(await client.post(f"{path}/cancel", body))
    if cli.as_json:
        return cli.out.print_json(done)
    for each in done:
        cli.out.print_line(str(each["id"]))
    return None


async def retry_runs(cli: CliContext, runs: RunsArgument) -> None:
    """Start new runs with the same tasks and inputs, and print their ids."""
    done = []
    async with cli.open_client() as client:
        for run in runs:
            done.append(await client.post(f"{await find_run_path(client, run)}/retry"))
    if cli.as_json:
        return cli.out.print_json(done)
    return cli.out.print_line("\n".join(str(run["id"]) for run in done))


async def remove_runs(cli: CliContext, runs: RunsArgument) -> None:
    """Remove ended runs with their folders and deliverables."""
    from paddock.cli.connection.server_finder import open_any_server

    removed = []
    async with open_any_server(cli) as client:
        for run in runs:
            path = await find_run_path(client, run)
            await client.delete(path)
            removed.append(path.rpartition("/")[2])
    if cli.as_json:
        return cli.out.print_json({"removed": removed})
    return cli.out.print_line("\n".join(removed))


async def get_deliverables(
    cli: CliContext,
    run: RunArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the deliverables.")
    ] = Path("."),
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Download the run's whole folder instead, as .tar or .zip.")
    ] = None,
) -> None:
    """Download a run's deliverables or its whole folder."""
    from paddock.cli.run.deliverable_download import download_deliverables, download_response

    if archive is not None and archive.suffix not in (".tar", ".zip"):
        raise UsageError(f"--archive {archive}: the name must end in .tar or .zip")
    async with cli.open_read_client() as client:
        path = await find_run_path(client, run)
        if archive is not None:
            await download_response(client, f"{path}/archive?format={archive.suffix[1:]}", archive)
            downloaded = {archive.name: archive}
        else:
            found = await client.get(path)
            downloaded = await download_deliverables(client, found, output)
            if not downloaded:
                raise CliError(
                    f"{found['id']} has no deliverables", hint=f"for details: paddock runs show {found['id']}"
                )
    if cli.as_json:
        return cli.out.print_json({name: str(target) for name, target in downloaded.items()})
    for target in downloaded.values():
        # Not a table, which would cut long paths.
        cli.out.print_line(f"{format_size(target.stat().st_size):>9}  {target}")
    return None

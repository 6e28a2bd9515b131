"""`paddock runs cancel`, `retry`, `rm` and `get`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import plain, size
from paddock.cli.runs import RunArgument, path_of
from paddock.cli.sharing import register_sharing

Runs = Annotated[list[str], typer.Argument(metavar="RUN", help="Ids, beginnings of ids, names.", show_default=False)]


def register(runs: typer.Typer) -> None:
    command(runs, "cancel", server=True, examples="paddock runs cancel run-3f2a\npaddock runs cancel hello --hard")(
        cancel
    )
    command(
        runs,
        "retry",
        server=True,
        examples="paddock runs retry run-3f2a\npaddock runs watch $(paddock runs retry hello)",
    )(retry)
    register_sharing(runs, "runs", "runs", Cli.client, path_of)
    command(runs, "rm", server=True, examples="paddock runs rm run-3f2a run-77b1")(remove)
    command(
        runs,
        "get",
        server=True,
        examples="""
            paddock runs get hello
            paddock runs get run-3f2a -o results
            paddock runs get run-3f2a --archive run.tar
        """,
    )(get)


async def cancel(
    cli: Cli,
    runs: Runs,
    hard: Annotated[bool, typer.Option("--hard", help="At once, without what was made so far.")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is kept with the run.")] = None,
) -> None:
    """Cancel runs. Partial results are collected unless you pass --hard."""
    from paddock.cli.run_progress import ENDED
    from paddock.cli.run_shapes import words

    body = {"hard": hard} | ({"reason": reason} if reason else {})
    done = []
    async with cli.client() as client:
        for run in runs:
            path = await path_of(client, run)
            found = await client.get(path)
            if found["state"] in ENDED:
                sys.stderr.write(f"{plain(run)} has ended already: {words(found['state'])}\n")
            else:
                done.append(await client.post(f"{path}/cancel", body))
    if cli.as_json:
        return cli.out.document(done)
    for each in done:
        cli.out.line(str(each["id"]))
    return None


async def retry(cli: Cli, runs: Runs) -> None:
    """Make new runs of the same tasks and inputs, and print their ids."""
    done = []
    async with cli.client() as client:
        for run in runs:
            done.append(await client.post(f"{await path_of(client, run)}/retry"))
    if cli.as_json:
        return cli.out.document(done)
    return cli.out.line("\n".join(str(run["id"]) for run in done))


async def remove(cli: Cli, runs: Runs) -> None:
    """Forget runs that have ended, with their folders and what they have delivered."""
    from paddock.cli.run_server import any_server

    removed = []
    async with any_server(cli) as client:
        for run in runs:
            path = await path_of(client, run)
            await client.delete(path)
            removed.append(path.rpartition("/")[2])
    if cli.as_json:
        return cli.out.document({"removed": removed})
    return cli.out.line("\n".join(removed))


async def get(
    cli: Cli,
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to put them.")] = Path("."),
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's whole folder instead, as .tar or .zip.")
    ] = None,
) -> None:
    """Fetch what a run has delivered, or its whole folder."""
    from paddock.cli.run_fetch import download, save

    if archive is not None and archive.suffix not in (".tar", ".zip"):
        raise UsageProblem(f"--archive {archive}: its name has to end in .tar or .zip")
    async with cli.reading() as client:
        path = await path_of(client, run)
        if archive is not None:
            await save(client, f"{path}/archive?format={archive.suffix[1:]}", archive)
            placed = {archive.name: archive}
        else:
            found = await client.get(path)
            placed = await download(client, found, output)
            if not placed:
                raise CliError(f"{found['id']} has delivered nothing", hint=f"see why: paddock runs show {found['id']}")
    if cli.as_json:
        return cli.out.document({name: str(place) for name, place in placed.items()})
    for place in placed.values():
        # No table, which would cut a long path.
        cli.out.line(f"{size(place.stat().st_size):>9}  {place}")
    return None

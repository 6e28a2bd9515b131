"""`paddock runs watch` and `logs`: what runs do, and what their agents write."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import FAILED, CliError
from paddock.cli.runs import RunArgument, path_of


def register(runs: typer.Typer) -> None:
    command(runs, "watch", server=True, examples="paddock runs watch hello\npaddock runs watch run-3f2a --json")(watch)
    command(
        runs,
        "logs",
        server=True,
        examples="paddock runs logs hello --follow\npaddock runs logs run-3f2a --stderr",
    )(logs)


async def watch(cli: Cli, run: RunArgument) -> int:
    """Show a run from its beginning, and go on until it has ended. Ctrl-C leaves it running.

    The exit code is 0 when it has succeeded, and 1 if not.
    """
    from paddock.cli.run_fetch import folder_of
    from paddock.cli.run_follow import Reach
    from paddock.cli.run_follow import watch as follow
    from paddock.cli.run_progress import SUCCEEDED, Progress
    from paddock.cli.run_server import Servers
    from paddock.cli.run_summary import print_summary
    from paddock.cli.run_view import view_for

    async with cli.client() as client:
        path = await path_of(client, run)
        found = await client.get(path)
        progress = Progress(str(found["name"]), str(found["id"]))
        with view_for(cli.out, 1) as view:
            view.add(progress)
            await follow(Reach(client), progress, view)
        found = await client.get(path)
    if cli.as_json:
        cli.out.event({"type": "results", "results": [found]})
    else:
        folder = folder_of(cli.data, progress.id) if Servers(cli).local else None
        print_summary(found, folder=folder, said=progress.last_words)
    return 0 if found["state"] == SUCCEEDED else FAILED


async def logs(
    cli: Cli,
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, until the run has ended.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Standard error instead of standard output.")] = False,
    attempt: Annotated[int | None, typer.Option(metavar="N", min=1, help="An earlier attempt.")] = None,
) -> None:
    """Print the agent's raw output.

    Terminal control sequences are stripped when writing to a terminal.
    """
    import codecs

    from paddock.cli.run_progress import tidy
    from paddock.cli.run_server import any_server

    query = {"follow": "true" if follow else "false"} | ({"attempt": str(attempt)} if attempt else {})
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async with any_server(cli) if follow else cli.reading() as client:
        path = await path_of(client, run)
        if attempt is not None and attempt > (had := int((await client.get(path)).get("attempt") or 1)):
            raise CliError(f"{run} has no attempt {attempt}; the last one is {had}")
        path = f"{path}/logs/agent.{'err' if stderr else 'out'}"
        async with client.request("GET", path, params=query) as answer:
            async for piece in answer.content.iter_any():
                if sys.stdout.isatty():
                    sys.stdout.write(tidy(decoder.decode(piece)))
                    sys.stdout.flush()
                else:
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()

"""`paddock runs watch` and `logs`: shows the progress and the output of runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_FAILED, CliError
from paddock.cli.run.runs_commands import RunArgument, find_run_path

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient


def register_commands(runs: typer.Typer) -> None:
    register_command(
        runs, "watch", server=True, examples="paddock runs watch hello\npaddock runs watch run-3f2a --json"
    )(watch_run_until_end)
    register_command(
        runs,
        "logs",
        server=True,
        examples="paddock runs logs hello --follow\npaddock runs logs hello --raw\npaddock runs logs run-3f2a --stderr",
    )(print_run_logs)


async def watch_run_until_end(cli: CliContext, run: RunArgument) -> int:
    """Show a run's progress from its start until its end. Ctrl-C leaves it running.

    The exit code is 0 if the run succeeds, else 1.
    """
    from paddock.cli.connection.reconnecting_client import ReconnectingClient
    from paddock.cli.connection.server_finder import ServerFinder
    from paddock.cli.run.deliverable_download import find_run_folder
    from paddock.cli.run.progress_views import choose_run_view
    from paddock.cli.run.run_events import watch_run as follow
    from paddock.cli.run.run_progress import SUCCEEDED_STATE, RunProgressState
    from paddock.cli.run.run_summary import print_run_summary

    async with cli.open_client() as client:
        path = await find_run_path(client, run)
        found = await client.get(path)
        progress = RunProgressState(str(found["name"]), str(found["id"]))
        with choose_run_view(cli.out, 1) as view:
            view.add_run(progress)
            await follow(ReconnectingClient(client), progress, view)
        found = await client.get(path)
    if cli.as_json:
        cli.out.print_json_line({"type": "results", "results": [found]})
    else:
        folder = find_run_folder(cli.data_directory, progress.id) if ServerFinder(cli).is_local else None
        print_run_summary(found, folder=folder, final_messages=progress.final_messages)
    return 0 if found["state"] == SUCCEEDED_STATE else EXIT_FAILED


async def print_run_logs(
    cli: CliContext,
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the run ends.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the agent's output as it wrote it, often JSON.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Print standard error instead of standard output.")] = False,
    attempt: Annotated[int | None, typer.Option(metavar="N", min=1, help="Attempt to show.  [default: latest]")] = None,
) -> None:
    """Print what a run's agent said and did, or the output of a program.

    With --raw, --stderr or --json, prints the stored output. Terminal control sequences are stripped when writing to a
    terminal.
    """
    import codecs

    from paddock.cli.connection.server_finder import open_any_server
    from paddock.cli.output.agent_text import clean_terminal_text

    query = {"follow": "true" if follow else "false"} | ({"attempt": str(attempt)} if attempt else {})
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async with open_any_server(cli) if follow else cli.open_read_client() as client:
        path = await find_run_path(client, run)
        found = await client.get(path)
        latest = int(found.get("attempt") or 1)
        if attempt is not None and attempt > latest:
            raise CliError(f"{run} has no attempt {attempt}; the latest one is {latest}")
        if found.get("agent") and not (raw or stderr or cli.as_json):
            return await _print_agent_activity(cli, client, found, attempt or latest, follow=follow)
        path = f"{path}/logs/agent.{'err' if stderr else 'out'}"
        async with client.request("GET", path, params=query) as answer:
            async for piece in answer.content.iter_any():
                if sys.stdout.isatty():
                    sys.stdout.write(clean_terminal_text(decoder.decode(piece)))
                    sys.stdout.flush()
                else:
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
    return None


async def _print_agent_activity(
    cli: CliContext, client: ServerClient, run: Mapping[str, Any], attempt: int, *, follow: bool
) -> None:
    """Print the events of one attempt as `paddock run` shows them."""
    from paddock.cli.connection.reconnecting_client import ReconnectingClient
    from paddock.cli.run.progress_views import choose_run_view
    from paddock.cli.run.run_events import follow_run_events, list_run_events
    from paddock.cli.run.run_progress import RunProgressState

    progress = RunProgressState(str(run["name"]), str(run["id"]))
    events = (
        follow_run_events(ReconnectingClient(client), progress.id) if follow else list_run_events(client, progress.id)
    )
    with choose_run_view(cli.out, 1) as view:
        view.add_run(progress)
        async for event in events:
            lines = progress.apply_event(event)
            if progress.attempt == attempt:
                view.show_event(progress, event, lines)

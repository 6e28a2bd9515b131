"""`paddock run`: runs tasks from their files, start to deliverables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import FAILED, INTERRUPTED, UsageProblem

if TYPE_CHECKING:
    from paddock.cli.client import Client
    from paddock.cli.run_plan import Job


def register(app: typer.Typer) -> None:
    command(
        app,
        "run",
        server=True,
        examples="""
            paddock run tasks/hello.yaml
            paddock run tasks/*.yaml --parallel 4 -o results
            paddock run tasks/hello.yaml --agent codex --model gpt-5 --set end.timeout=10m
            paddock run tasks/hello.yaml --json | jq 'select(.type == "run.text").data.text'
        """,
    )(run)


async def run(
    cli: Cli,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Task files, YAML or JSON.", show_default=False)],
    parallel: Annotated[
        int | None, typer.Option("--parallel", "-p", metavar="N", min=1, help="Runs at a time.  [default: all]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Copy the deliverables there too.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Ask this model.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Have this agent do it.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the tasks.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print a short deliverable also into a pipe.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the runs' ids and leave.")] = False,
    warm: Annotated[
        bool, typer.Option("--warm/--no-warm", help="Keep a server of its own for the next command.")
    ] = True,
) -> int:
    """Run tasks, and bring back what comes of them.

    Where no server runs, it starts one of its own. That one stays for a minute after its last use (`runs.warm_server`)
    so that the next command is quick, and makes way for `paddock serve`. Ctrl-C cancels the runs and waits for what
    they have made so far, a second one does not wait. The exit code is 0 when all have succeeded, and 1 if not.
    """
    from paddock.cli.run_plan import check_agent, note_of, parse_changes, plan, without_scenarios

    if detach and (parallel or output or show):
        raise UsageProblem("--detach leaves at once; --parallel, --output and --show would need somebody to stay")
    presets = _presets(cli)
    check_agent(agent, presets)
    tasks, scenarios = without_scenarios(files)
    sys.stderr.write(note_of(scenarios))
    jobs = plan(tasks, parse_changes(settings or [], model, agent), presets)
    return await _detached(cli, jobs) if detach else await _attached(cli, jobs, parallel, output, show, warm)


def _presets(cli: Cli) -> list[str] | None:
    """Names of the agents there are, where that is known here."""
    if cli.names_server:
        return None
    from paddock.runs.presets import Presets

    return Presets(cli.load({}, only=["runs.presets"]).config.runs.presets).names()


async def _detached(cli: Cli, jobs: Sequence[Job]) -> int:
    from paddock.cli.run_call import Call
    from paddock.cli.run_follow import Reach
    from paddock.cli.run_server import Servers
    from paddock.cli.run_view import JsonView

    async with Servers(cli, own=False) as servers:
        client = await servers.find()
        await Call(Reach(client), jobs, JsonView(cli.out)).submit_all()
    if cli.as_json:
        cli.out.document({"runs": [job.run for job in jobs]})
    else:
        for job in jobs:
            cli.out.line(job.progress.id)
    return 0


async def _attached(
    cli: Cli, jobs: Sequence[Job], parallel: int | None, output: Path | None, show: bool, warm: bool
) -> int:
    import asyncio
    from functools import partial

    from paddock.cli.run_call import Call
    from paddock.cli.run_follow import Reach
    from paddock.cli.run_server import Servers
    from paddock.cli.run_view import view_for

    async with Servers(cli) as servers:
        try:
            with view_for(cli.out, len(jobs)) as view:
                reach = Reach(await servers.find(view.status), partial(servers.find, view.note))
                # A server that is not there, or a key that may not, is to be known before anything is sent.
                await reach.client.get("/v1/runs", pageSize=1)
                call = Call(reach, jobs, view, parallel)
                await call.see_through()
            if output is not None:
                await _copy(reach.client, jobs, output)
            await _report(cli, reach.client, jobs, cli.data if servers.local else None, show)
            if warm and not call.interrupted:
                servers.keep_warm()
        except asyncio.CancelledError:
            return INTERRUPTED
        except BaseExceptionGroup as group:
            raise _first(group) from None
    if call.interrupted:
        return INTERRUPTED
    return 0 if all(_succeeded(job) for job in jobs) else FAILED


async def _copy(client: Client, jobs: Sequence[Job], output: Path) -> None:
    from paddock.cli.run_fetch import download

    taken: dict[str, int] = {}
    for job in jobs:
        if job.run is None:
            continue
        taken[job.name] = number = taken.get(job.name, 0) + 1
        own = job.name if number == 1 else f"{job.name}-{number}"
        job.directory = output if len(jobs) == 1 else output / own.replace("/", "-")
        job.placed = await download(client, job.run, job.directory)


async def _report(cli: Cli, client: Client, jobs: Sequence[Job], data: Path | None, show: bool) -> None:
    from paddock.cli.run_fetch import folder_of, readable
    from paddock.cli.run_summary import print_content, print_summary, print_table

    made: list[dict[str, Any]] = [job.run for job in jobs if job.run is not None]
    if cli.as_json:
        placed = {
            job.progress.id: {path: str(place) for path, place in job.placed.items()} for job in jobs if job.placed
        }
        return cli.out.event({"type": "results", "results": made, **({"files": placed} if placed else {})})
    if len(jobs) > 1:
        return print_table(made, len(jobs), [place for job in jobs if (place := _place(job, data)) is not None])
    for job in jobs:
        if job.run is not None:
            folder = folder_of(data, job.progress.id) if data is not None else None
            print_summary(job.run, folder=folder, placed=job.placed, said=job.progress.last_words)
            if (show or sys.stdout.isatty()) and (found := await readable(client, job.run)) is not None:
                print_content(cli.out, *found)
    return None


def _place(job: Job, data: Path | None) -> Path | None:
    """Where what a run has made is on this machine, if it has made something."""
    from paddock.cli.run_fetch import folder_of

    if job.run is None or not (job.run.get("result") or {}).get("deliverables"):
        return None
    if job.directory is not None:
        return job.directory
    folder = folder_of(data, job.progress.id) if data is not None else None
    return folder / "deliverables" if folder is not None else None


def _succeeded(job: Job) -> bool:
    return job.run is not None and job.run.get("state") == "succeeded"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first; the others failed because of it, or of the same."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error

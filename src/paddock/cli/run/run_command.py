"""`paddock run`: runs task files and collects their output files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_FAILED, EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient
    from paddock.cli.run.run_planning import PlannedRun


def register_commands(app: typer.Typer) -> None:
    register_command(
        app,
        "run",
        server=True,
        examples="""
            paddock run hello
            paddock run tasks/hello.yaml
            paddock run tasks/*.yaml --parallel 4 -o results
            paddock run tasks/hello.yaml --agent codex --model gpt-5 --set end.timeout=10m
            paddock run tasks/hello.yaml --json | jq 'select(.type == "run.text").data.text'
        """,
    )(run_tasks)


async def run_tasks(
    cli: CliContext,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Task files, YAML or JSON, or names that `paddock task list` shows.",
            show_default=False,
        ),
    ],
    parallel: Annotated[
        int | None,
        typer.Option("--parallel", "-p", metavar="N", min=1, help="Maximum concurrent runs.  [default: all]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Also copy the deliverables to this directory.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model to use.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Agent to use.")] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="RULE", help="Network policy instead of the task's; repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Override a task field.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print a short deliverable even in a pipe.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the runs' ids and return.")] = False,
    warm: Annotated[
        bool, typer.Option("--warm/--no-warm", help="Keep the temporary server for the next command.")
    ] = True,
) -> int:
    """Run tasks and collect their output files.

    If no server is running, a temporary one is started. It stays for a minute after its last use (`runs.warm_server`),
    so that the next command starts quickly, and stops when `paddock serve` starts. Ctrl-C cancels the runs and collects
    partial results; a second Ctrl-C does not wait for them. The exit code is 0 if all runs succeed, else 1.
    """
    from paddock.cli.run.run_planning import (
        check_agent_preset,
        format_skipped_script_files,
        parse_task_options,
        plan_runs,
        separate_model_scripts,
    )
    from paddock.cli.run.task_lookup import find_task_files

    if detach and (parallel or output or show):
        raise UsageError("--detach returns at once; it cannot be combined with --parallel, --output or --show")
    presets = _agent_presets(cli)
    check_agent_preset(agent, presets)
    tasks, scripts = separate_model_scripts(find_task_files(cli, files))
    sys.stderr.write(format_skipped_script_files(scripts))
    planned_runs = plan_runs(tasks, parse_task_options(settings or [], model, agent, network), presets)
    return (
        await _run_detached(cli, planned_runs)
        if detach
        else await _run_attached(cli, planned_runs, parallel, output, show, warm)
    )


def _agent_presets(cli: CliContext) -> list[str] | None:
    """Return the names of the configured agents; None if they are known only to a named server."""
    if cli.has_named_server:
        return None
    from paddock.runs.presets import PresetLibrary

    return PresetLibrary(cli.load_config({}, only=["runs.presets"]).config.runs.presets).names()


async def _run_detached(cli: CliContext, planned_runs: Sequence[PlannedRun]) -> int:
    from paddock.cli.connection.reconnecting_client import ReconnectingClient
    from paddock.cli.connection.server_finder import ServerFinder
    from paddock.cli.run.progress_views import JsonRunView
    from paddock.cli.run.run_batch import RunBatch

    async with ServerFinder(cli, own=False) as servers:
        client = await servers.find_client()
        await RunBatch(ReconnectingClient(client), planned_runs, JsonRunView(cli.out)).submit_all()
    if cli.as_json:
        cli.out.print_json({"runs": [planned.run for planned in planned_runs]})
    else:
        for planned in planned_runs:
            cli.out.print_line(planned.progress.id)
    return 0


async def _run_attached(
    cli: CliContext,
    planned_runs: Sequence[PlannedRun],
    parallel: int | None,
    output: Path | None,
    show: bool,
    warm: bool,
) -> int:
    import asyncio
    from functools import partial

    from paddock.cli.connection.reconnecting_client import ReconnectingClient
    from paddock.cli.connection.server_finder import ServerFinder
    from paddock.cli.run.progress_views import choose_run_view
    from paddock.cli.run.run_batch import RunBatch

    async with ServerFinder(cli) as servers:
        try:
            with choose_run_view(cli.out, len(planned_runs)) as view:
                reach = ReconnectingClient(
                    await servers.find_client(view.show_status), partial(servers.find_client, view.print_note)
                )
                # Fail early if the server is unreachable or the key lacks permission.
                await reach.client.get("/v1/runs", pageSize=1)
                call = RunBatch(reach, planned_runs, view, parallel)
                await call.run_to_completion()
            if output is not None:
                await _copy_deliverables(reach.client, planned_runs, output)
            await _print_results(
                cli, reach.client, planned_runs, cli.data_directory if servers.is_local else None, show
            )
            if warm and not call.interrupted:
                servers.keep_child_running()
        except asyncio.CancelledError:
            return EXIT_INTERRUPTED
        except BaseExceptionGroup as group:
            raise _first_error(group) from None
    if call.interrupted:
        return EXIT_INTERRUPTED
    return 0 if all(_succeeded(planned) for planned in planned_runs) else EXIT_FAILED


async def _copy_deliverables(client: ServerClient, planned_runs: Sequence[PlannedRun], output: Path) -> None:
    from paddock.cli.run.deliverable_download import download_deliverables

    taken: dict[str, int] = {}
    for planned in planned_runs:
        if planned.run is None:
            continue
        taken[planned.name] = number = taken.get(planned.name, 0) + 1
        own = planned.name if number == 1 else f"{planned.name}-{number}"
        planned.directory = output if len(planned_runs) == 1 else output / own.replace("/", "-")
        planned.copied_files = await download_deliverables(client, planned.run, planned.directory)


async def _print_results(
    cli: CliContext, client: ServerClient, planned_runs: Sequence[PlannedRun], data: Path | None, show: bool
) -> None:
    from paddock.cli.run.deliverable_download import find_run_folder, find_short_text_deliverable
    from paddock.cli.run.run_summary import print_file_content, print_run_summary, print_runs_table

    results: list[dict[str, Any]] = [planned.run for planned in planned_runs if planned.run is not None]
    if cli.as_json:
        files = {
            planned.progress.id: {path: str(target) for path, target in planned.copied_files.items()}
            for planned in planned_runs
            if planned.copied_files
        }
        return cli.out.print_json_line({"type": "results", "results": results, **({"files": files} if files else {})})
    if len(planned_runs) > 1:
        return print_runs_table(
            results,
            len(planned_runs),
            [target for planned in planned_runs if (target := _deliverables_directory(planned, data)) is not None],
        )
    for planned in planned_runs:
        if planned.run is not None:
            folder = find_run_folder(data, planned.progress.id) if data is not None else None
            print_run_summary(
                planned.run,
                folder=folder,
                copied_files=planned.copied_files,
                final_messages=planned.progress.final_messages,
            )
            if (show or sys.stdout.isatty()) and (
                found := await find_short_text_deliverable(client, planned.run)
            ) is not None:
                print_file_content(cli.out, *found)
    return None


def _deliverables_directory(planned: PlannedRun, data: Path | None) -> Path | None:
    """Return the local directory of a run's deliverables, if there are any."""
    from paddock.cli.run.deliverable_download import find_run_folder

    if planned.run is None or not (planned.run.get("result") or {}).get("deliverables"):
        return None
    if planned.directory is not None:
        return planned.directory
    folder = find_run_folder(data, planned.progress.id) if data is not None else None
    return folder / "deliverables" if folder is not None else None


def _succeeded(planned: PlannedRun) -> bool:
    return planned.run is not None and planned.run.get("state") == "succeeded"


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group; the others are its consequences."""
    error = group.exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error

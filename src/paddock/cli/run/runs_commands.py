"""`paddock runs list` and `show`, and finding runs by id or name."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_age, parse_time

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="ID, ID prefix, or task name (latest run).", show_default=False)
]
_DEFAULT_LIMIT = 20
_WIDE_COLUMNS = 110
"""Terminal width at which all columns fit."""
_MIN_NAME_WIDTH = 12
_PIPED_REASON_LENGTH = 80
"""Maximum length of a reason in a pipe; `runs show` and `--json` print it in full."""


class NoSuchRun(CliError):
    """No run has this id, id prefix or name."""

    code = "NOT_FOUND"


def register_commands(app: typer.Typer) -> typer.Typer:
    runs = command_group("List, show, cancel and remove task runs.")
    app.add_typer(runs, name="runs")
    register_command(
        runs,
        "list",
        server=True,
        examples="""
            paddock runs list
            paddock runs list --state failed --name hello
        """,
    )(list_runs)
    register_command(runs, "show", server=True, examples="paddock runs show hello\npaddock runs show run-3f2a --json")(
        show_run
    )
    return runs


async def list_runs(
    cli: CliContext,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Filter by state: queued, running, succeeded, failed …")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Filter by name.")] = None,
    of_group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Filter by group.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of runs.")
    ] = _DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", help="List all runs.")] = False,
) -> None:
    """List runs, newest first."""
    from paddock.cli.output.formatting import format_cost, format_count
    from paddock.cli.run.run_render import format_run_duration, format_run_state, shorten_reason

    query = {"state": [_parse_state(each) for each in state or []], "name": name, "group": of_group}
    async with cli.open_read_client() as client:
        found, more = await _fetch_runs(client, query, None if everything else limit)
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_line(
            "No matching runs." if any(query.values()) else "No runs yet; start one with: paddock run FILE"
        )
    rows: list[list[str]] = []
    for run in found:
        result = run.get("result") or {}
        traffic = result.get("traffic") or {}
        tokens = int(traffic.get("inputTokens") or 0) + int(traffic.get("outputTokens") or 0)
        score = result.get("score")
        rows.append(
            [
                str(run["id"]),
                str(run["name"]),
                format_run_state(str(run["state"] if run["state"] != "running" else run["stage"])),
                format_age(parse_time(run["createdAt"])),
                format_run_duration(float(result["seconds"])) if result else "",
                format_count(tokens) if tokens else "",
                format_cost(traffic.get("cost")),
                "" if score is None else f"{score:.2f}",
                shorten_reason(result) or " ".join(str(run.get("cancelling") or "").split()),
            ]
        )
    if not cli.out.is_interactive:
        for row in rows:
            row[-1] = _shortened(row[-1], _PIPED_REASON_LENGTH)
    columns = ["RUN", "NAME", "STATE", "AGE", "TOOK", "TOKENS", "COST", "SCORE", "REASON"]
    width = shutil.get_terminal_size().columns
    if cli.out.is_interactive and width < _WIDE_COLUMNS:
        kept_columns = [index for index, column in enumerate(columns) if column not in ("TOKENS", "COST", "SCORE")]
        for row in rows:
            row[1] = _shortened(row[1], max(_MIN_NAME_WIDTH, width // 4))
        columns, rows = (
            [columns[index] for index in kept_columns],
            [[row[index] for index in kept_columns] for row in rows],
        )
    cli.out.print_table(columns, rows, right=("AGE", "TOOK", "TOKENS", "COST", "SCORE"))
    if more and cli.out.is_interactive:
        cli.out.print_line("\nMore runs exist; use --limit N or --all.")
    return None


def _shortened(text: str, length: int) -> str:
    """Cut text to `length` characters, ending in an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _parse_state(text: str) -> str:
    """Return the server's name of a state; `timed out` and `timed-out` mean `timed_out`."""
    from paddock.cli.run.run_progress import RUN_STATES
    from paddock.cli.run.run_render import format_run_state

    state = "_".join(text.lower().replace("-", " ").replace("_", " ").split())
    if state not in RUN_STATES:
        raise UsageError(f"--state {text!r} is unknown; use one of {', '.join(map(format_run_state, RUN_STATES))}")
    return state


async def _fetch_runs(
    client: ServerClient, query: dict[str, Any], limit: int | None
) -> tuple[list[dict[str, Any]], bool]:
    size = min(limit or 200, 200)
    pairs = [(key, each) for key, value in query.items() for each in (value if isinstance(value, list) else [value])]
    query_params = [(key, str(value)) for key, value in pairs if value is not None]
    found: list[dict[str, Any]] = []
    for page in range(1, 100_000):
        answer = await client.request_json(
            "GET", "/v1/runs", params=[*query_params, ("page", str(page)), ("pageSize", str(size))]
        )
        found += answer["items"]
        if not answer["pagination"]["hasNextPage"]:
            return found[:limit] if limit else found, bool(limit and len(found) > limit)
        if limit and len(found) >= limit:
            break
    return found[:limit] if limit else found, True


async def show_run(cli: CliContext, run: RunArgument) -> None:
    """Show a run's result: reason, tokens, cost, time per stage, checks, deliverables."""
    from paddock.cli.connection.server_finder import ServerFinder
    from paddock.cli.run.deliverable_download import find_run_folder
    from paddock.cli.run.run_events import find_final_agent_messages
    from paddock.cli.run.run_summary import print_run_summary

    async with cli.open_read_client() as client:
        found = await client.get(await find_run_path(client, run))
        final_messages = () if cli.as_json else await find_final_agent_messages(client, found)
    if cli.as_json:
        return cli.out.print_json(found)
    folder = find_run_folder(cli.data_directory, str(found["id"])) if ServerFinder(cli).is_local else None
    return print_run_summary(found, folder=folder, full=True, final_messages=final_messages)


async def find_run_path(client: ServerClient, name: str) -> str:
    """Return the API path of the run with this id, id prefix or name."""
    return f"/v1/runs/{quote(await find_run(client, name), safe='')}"


async def find_run(client: ServerClient, text: str) -> str:
    """Return the id of the run with this id or id prefix, or of the newest one with this name."""
    named = await client.get("/v1/runs", name=text, pageSize=1)
    if named["items"]:
        return str(named["items"][0]["id"])
    prefix_matches: list[str] = []
    for run in await client.list_all("/v1/runs"):
        whole = str(run["id"])
        if whole == text:
            return whole
        if text and (whole.startswith(text) or whole.partition("-")[2].startswith(text)):
            prefix_matches.append(whole)
    if not prefix_matches:
        raise NoSuchRun(f"there is no run {text}", hint="list runs: paddock runs list")
    if len(prefix_matches) > 1:
        raise CliError(
            f"{text} matches several runs: {', '.join(prefix_matches[:5])}", hint="use a longer prefix of the id"
        )
    return prefix_matches[0]

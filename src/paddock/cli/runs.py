"""`paddock runs`: runs of tasks listed and shown."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import ago, moment

if TYPE_CHECKING:
    from paddock.cli.client import Client

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="ID, ID prefix, or task name (latest run).", show_default=False)
]
_SHOWN = 20
_WIDE = 110
"""Columns of a terminal on which everything has room."""
_LEAST_NAME = 12
_PIPED_REASON = 80
"""Characters of a reason where there is no terminal; `runs show` and `--json` have all of it."""


class NoSuchRun(CliError):
    """There is no such run."""

    code = "NOT_FOUND"


def register(app: typer.Typer) -> typer.Typer:
    runs = group("List, show, stop and remove runs of tasks.")
    app.add_typer(runs, name="runs")
    command(
        runs,
        "list",
        server=True,
        examples="""
            paddock runs list
            paddock runs list --state failed --name hello
        """,
    )(list_)
    command(runs, "show", server=True, examples="paddock runs show hello\npaddock runs show run-3f2a --json")(show)
    return runs


async def list_(
    cli: Cli,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only these: queued, running, succeeded, failed …")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this name.")] = None,
    of_group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only those of this group.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = _SHOWN,
    everything: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
) -> None:
    """List runs, newest first."""
    from paddock.cli.llm_words import count, money
    from paddock.cli.run_shapes import short_reason, took, words

    query = {"state": [_state(each) for each in state or []], "name": name, "group": of_group}
    async with cli.reading() as client:
        found, more = await _found(client, query, None if everything else limit)
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.line("No runs." if any(query.values()) else "No runs yet; start one with: paddock run FILE")
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
                words(str(run["state"] if run["state"] != "running" else run["stage"])),
                ago(moment(run["createdAt"])),
                took(float(result["seconds"])) if result else "",
                count(tokens) if tokens else "",
                money(traffic.get("cost")),
                "" if score is None else f"{score:.2f}",
                short_reason(result) or " ".join(str(run.get("cancelling") or "").split()),
            ]
        )
    if not cli.out.for_people:
        for row in rows:
            row[-1] = _shortened(row[-1], _PIPED_REASON)
    columns = ["RUN", "NAME", "STATE", "AGE", "TOOK", "TOKENS", "COST", "SCORE", "REASON"]
    width = shutil.get_terminal_size().columns
    if cli.out.for_people and width < _WIDE:
        kept = [place for place, column in enumerate(columns) if column not in ("TOKENS", "COST", "SCORE")]
        for row in rows:
            row[1] = _shortened(row[1], max(_LEAST_NAME, width // 4))
        columns, rows = [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]
    cli.out.table(columns, rows, right=("AGE", "TOOK", "TOKENS", "COST", "SCORE"))
    if more and cli.out.for_people:
        cli.out.line("\nThere are more: --limit N or --all.")
    return None


def _shortened(text: str, room: int) -> str:
    """A text cut to so many letters, which shows that it was."""
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _state(text: str) -> str:
    """A state as the server has it, however its words are joined."""
    from paddock.cli.run_progress import STATES
    from paddock.cli.run_shapes import words

    state = "_".join(text.lower().replace("-", " ").replace("_", " ").split())
    if state not in STATES:
        raise UsageProblem(f"--state {text!r} is not known; write one of {', '.join(map(words, STATES))}")
    return state


async def _found(client: Client, query: dict[str, Any], limit: int | None) -> tuple[list[dict[str, Any]], bool]:
    size = min(limit or 200, 200)
    pairs = [(key, each) for key, value in query.items() for each in (value if isinstance(value, list) else [value])]
    asked = [(key, str(value)) for key, value in pairs if value is not None]
    found: list[dict[str, Any]] = []
    for page in range(1, 100_000):
        answer = await client.ask("GET", "/v1/runs", params=[*asked, ("page", str(page)), ("pageSize", str(size))])
        found += answer["items"]
        if not answer["pagination"]["hasNextPage"]:
            return found[:limit] if limit else found, bool(limit and len(found) > limit)
        if limit and len(found) >= limit:
            break
    return found[:limit] if limit else found, True


async def show(cli: Cli, run: RunArgument) -> None:
    """Show what came of a run: why it ended, tokens, cost, time per stage, checks, deliverables."""
    from paddock.cli.run_fetch import folder_of
    from paddock.cli.run_follow import last_words
    from paddock.cli.run_server import Servers
    from paddock.cli.run_summary import print_summary

    async with cli.reading() as client:
        found = await client.get(await path_of(client, run))
        said = () if cli.as_json else await last_words(client, found)
    if cli.as_json:
        return cli.out.document(found)
    folder = folder_of(cli.data, str(found["id"])) if Servers(cli).local else None
    return print_summary(found, folder=folder, full=True, said=said)


async def path_of(client: Client, wanted: str) -> str:
    """The path of the run that somebody means."""
    return f"/v1/runs/{quote(await find_run(client, wanted), safe='')}"


async def find_run(client: Client, wanted: str) -> str:
    """The id of the run with this id, a beginning of it, or of the newest one with this name."""
    named = await client.get("/v1/runs", name=wanted, pageSize=1)
    if named["items"]:
        return str(named["items"][0]["id"])
    begun: list[str] = []
    for run in await client.items("/v1/runs"):
        whole = str(run["id"])
        if whole == wanted:
            return whole
        if wanted and (whole.startswith(wanted) or whole.partition("-")[2].startswith(wanted)):
            begun.append(whole)
    if not begun:
        raise NoSuchRun(f"there is no run {wanted}", hint="see which there are: paddock runs list")
    if len(begun) > 1:
        raise CliError(f"{wanted} means more than one run: {', '.join(begun[:5])}", hint="write more of its id")
    return begun[0]

"""Options that select exchanges in `llm log`, `export` and `record`, and the API queries for them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.output.errors import CliError, RequestRefused, UsageError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

OUTCOMES = ("ok", "refused", "failed", "cut", "client_gone")
_PAGE = 200

SandboxOption = Annotated[str | None, typer.Option(metavar="SANDBOX", help="Filter by sandbox.")]
RunOption = Annotated[str | None, typer.Option(metavar="RUN", help="Filter by run.")]
SessionOption = Annotated[str | None, typer.Option(metavar="SESSION", help="Filter by session.")]
ModelOption = Annotated[
    str | None, typer.Option(metavar="MODEL", help="Filter by model: requested or provider's name.", show_default=False)
]
OutcomeOption = Annotated[
    str | None, typer.Option(metavar="OUTCOME", help="Filter by outcome: ok, refused, failed, cut or client_gone.")
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Start of the period: 2h, 3d, 2026-01-31 or 2026-01-31T12:00.")
]
UntilOption = Annotated[str | None, typer.Option(metavar="WHEN", help="End of the period.")]
SearchOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help='Filter by text: words, "phrases" or prefixes*.')
]


async def build_exchange_query(
    client: ServerClient,
    *,
    sandbox: str | None = None,
    run: str | None = None,
    session: str | None = None,
    model: str | None = None,
    outcome: str | None = None,
    since: str | None = None,
    until: str | None = None,
    search: str | None = None,
) -> dict[str, str]:
    """Build the query for `/v1/exchanges` from the options. Raises `UsageError` for invalid values."""
    if outcome is not None:
        outcome = outcome.lower().replace("-", "_")
        if outcome not in OUTCOMES:
            raise UsageError(f"--outcome {outcome!r} is unknown; use one of {', '.join(OUTCOMES)}")
    if search:
        _check_search(search)
    values = {
        "since": since and parse_time_option(since, "--since").isoformat(),
        "until": until and parse_time_option(until, "--until").isoformat(),
        "sandbox": sandbox and await find_sandbox_id(client, sandbox),
        "run": run and await find_run_id(client, run),
        "session": session,
        "model": model,
        "outcome": outcome,
        "text": search,
    }
    return {name: value for name, value in values.items() if value}


def _check_search(text: str) -> None:
    """Raise `UsageError` for an invalid search, with the server's message and the option's name."""
    from paddock.errors import InvalidInput
    from paddock.llm.archive.search_text import build_full_text_query

    try:
        build_full_text_query(text)
    except InvalidInput as error:
        raise UsageError(f"--search {text!r:.60}: {error.message.removeprefix('text: ')}") from None


async def find_sandbox_id(client: ServerClient, name: str) -> str:
    """Return the id of a sandbox, including deleted ones with archived exchanges."""
    from paddock.cli.sandbox.sandbox_lookup import AmbiguousName, NoSuchSandbox, find_sandbox

    try:
        return await find_sandbox(client, name)
    except NoSuchSandbox as error:
        # The sandbox may be deleted; look for its id in the archive.
        found = {
            str(exchange["sandbox"])
            async for exchange in list_recent_exchanges(client, {}, 1000)
            if str(exchange.get("sandbox", "")).removeprefix("sb-").startswith(name.removeprefix("sb-"))
        }
        if len(found) > 1:
            first_names = ", ".join(sorted(found)[:5])
            raise AmbiguousName(
                f"{name} matches several sandboxes: {first_names}", hint="use a longer prefix of the id"
            ) from None
        if not found:
            # Exchanges keep the id of a deleted sandbox but not its name.
            hint = "if the sandbox was deleted, use its id prefix from the SANDBOX column of: paddock llm log"
            raise NoSuchSandbox(str(error), hint=hint) from None
        return found.pop()


async def find_run_id(client: ServerClient, name: str) -> str:
    """Return the id of a run by id prefix or name, or the text itself if exchanges are labelled with it."""
    from paddock.cli.run.runs_commands import NoSuchRun, find_run

    try:
        return await find_run(client, name)
    except NoSuchRun:
        # The run may be deleted, or the label may have been set by a client.
        if not (await client.get("/v1/exchanges", run=name, limit=1))["items"]:
            raise
        return name
    except RequestRefused as error:
        if error.status != 403:
            raise
        return name  # Some keys may read exchanges but not runs.


async def list_recent_exchanges(
    client: ServerClient, query: dict[str, str], limit: int | None
) -> AsyncIterator[dict[str, Any]]:
    """Yield matching exchanges, newest first, at most `limit`."""
    remaining, cursor = limit, None
    while remaining is None or remaining > 0:
        page = await client.get(
            "/v1/exchanges", **query, limit=_PAGE if remaining is None else min(_PAGE, remaining), cursor=cursor
        )
        for exchange in page["items"]:
            yield exchange
        if remaining is not None:
            remaining -= len(page["items"])
        cursor = page.get("next")
        if not cursor:
            return


async def find_exchange_id(client: ServerClient, name: str) -> str:
    """Return the id of the exchange with this id or number; `last` is the newest."""
    if re.fullmatch(r"ex-[0-9a-f]{26}", name):
        return name
    if name == "last":
        found = [exchange async for exchange in list_recent_exchanges(client, {}, 1)]
    elif name.isascii() and name.isdigit() and len(name) < 16:
        found = (await client.get("/v1/exchanges", number=name))["items"]
    else:
        raise UsageError(f"{name!r} is not an exchange", hint="use an id, a number or `last`; see: paddock llm log")
    if not found:
        raise CliError(f"there is no exchange {name}", hint="list exchanges: paddock llm log")
    return str(found[0]["id"])


def parse_time_option(text: str, option: str) -> datetime:
    """Parse a time: an age such as `2h`, a local date, or a date and time."""
    from paddock.config.units import parse_duration

    try:
        if re.match(r"\d{4}-", text):
            return datetime.fromisoformat(text).astimezone(UTC)
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text!r} is not a time; use 2h, 3d, 2026-01-31 or 2026-01-31T12:00") from None

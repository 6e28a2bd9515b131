"""Which exchanges are meant: the options that log, export and record share, and how the server is asked for them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.failure import CliError, Refused, UsageProblem

if TYPE_CHECKING:
    from paddock.cli.client import Client

OUTCOMES = ("ok", "refused", "failed", "cut", "client_gone")
_PAGE = 200

Sandbox = Annotated[str | None, typer.Option(metavar="SANDBOX", help="Only of this sandbox.")]
Run = Annotated[str | None, typer.Option(metavar="RUN", help="Only of this run.")]
Session = Annotated[str | None, typer.Option(metavar="SESSION", help="Only of this session.")]
Model = Annotated[
    str | None, typer.Option(metavar="MODEL", help="Only for this model, by either name.", show_default=False)
]
OutcomeOption = Annotated[
    str | None, typer.Option(metavar="OUTCOME", help="Only with this end: ok, refused, failed, cut or client_gone.")
]
Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only from then on: 2h, 3d, 2026-01-31 or 2026-01-31T12:00.")
]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="Only from before then.")]
Search = Annotated[
    str | None, typer.Option(metavar="TEXT", help='Only where these words, "phrases" or begin* were said.')
]


async def query(
    client: Client,
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
    """What to ask `/v1/exchanges` for. Raises `UsageProblem` for what makes no sense."""
    if outcome is not None:
        outcome = outcome.lower().replace("-", "_")
        if outcome not in OUTCOMES:
            raise UsageProblem(f"--outcome {outcome!r} is not known; write one of {', '.join(OUTCOMES)}")
    if search:
        _check_search(search)
    given = {
        "since": since and when(since, "--since").isoformat(),
        "until": until and when(until, "--until").isoformat(),
        "sandbox": sandbox and await sandbox_id(client, sandbox),
        "run": run and await run_id(client, run),
        "session": session,
        "model": model,
        "outcome": outcome,
        "text": search,
    }
    return {name: value for name, value in given.items() if value}


def _check_search(text: str) -> None:
    """Raise `UsageProblem` for what cannot be looked for, in the words of the server but with the option's name."""
    from paddock.errors import InvalidInput
    from paddock.llm.archive.words import query

    try:
        query(text)
    except InvalidInput as error:
        raise UsageProblem(f"--search {text!r:.60}: {error.message.removeprefix('text: ')}") from None


async def sandbox_id(client: Client, wanted: str) -> str:
    """The id of a sandbox that is there, or of one that is gone, by a beginning of it; its exchanges are still kept."""
    from paddock.cli.find import Ambiguous, NoSuchSandbox, find

    try:
        return await find(client, wanted)
    except NoSuchSandbox as error:
        # Sandboxes end, what was said in them stays: look for it there.
        found = {
            str(exchange["sandbox"])
            async for exchange in recent(client, {}, 1000)
            if str(exchange.get("sandbox", "")).removeprefix("sb-").startswith(wanted.removeprefix("sb-"))
        }
        if len(found) > 1:
            some = ", ".join(sorted(found)[:5])
            raise Ambiguous(f"{wanted} means more than one sandbox: {some}", hint="write more of its id") from None
        if not found:
            # Its name ended with it; exchanges keep the id alone.
            hint = "if it has ended, write the first 8 letters of its id, which stand under SANDBOX in: paddock llm log"
            raise NoSuchSandbox(str(error), hint=hint) from None
        return found.pop()


async def run_id(client: Client, wanted: str) -> str:
    """The id of a run by its name or a beginning of its id; or else what exchanges were marked with by hand."""
    from paddock.cli.runs import NoSuchRun, find_run

    try:
        return await find_run(client, wanted)
    except NoSuchRun:
        # Runs are removed, and sandboxes marked by whoever makes them: what was said is still kept under it.
        if not (await client.get("/v1/exchanges", run=wanted, limit=1))["items"]:
            raise
        return wanted
    except Refused as error:
        if error.status != 403:
            raise
        return wanted  # Some keys may read what was said, and not which runs there are.


async def recent(client: Client, asked: dict[str, str], limit: int | None) -> AsyncIterator[dict[str, Any]]:
    """Exchanges that were asked for, newest first, so many at most."""
    left, cursor = limit, None
    while left is None or left > 0:
        page = await client.get(
            "/v1/exchanges", **asked, limit=_PAGE if left is None else min(_PAGE, left), cursor=cursor
        )
        for exchange in page["items"]:
            yield exchange
        if left is not None:
            left -= len(page["items"])
        cursor = page.get("next")
        if not cursor:
            return


async def exchange_id(client: Client, wanted: str) -> str:
    """The id of the exchange with this id or number; `last` is the newest."""
    if re.fullmatch(r"ex-[0-9a-f]{26}", wanted):
        return wanted
    if wanted == "last":
        found = [exchange async for exchange in recent(client, {}, 1)]
    elif wanted.isascii() and wanted.isdigit() and len(wanted) < 16:
        found = (await client.get("/v1/exchanges", number=wanted))["items"]
    else:
        raise UsageProblem(
            f"{wanted!r} is no exchange", hint="write its id, its number or `last`; see: paddock llm log"
        )
    if not found:
        raise CliError(f"there is no exchange {wanted}", hint="see which there are: paddock llm log")
    return str(found[0]["id"])


def when(text: str, option: str) -> datetime:
    """A time: so long ago (`2h`), a day in local time, or a day and a time."""
    from paddock.config.units import parse_duration

    try:
        if re.match(r"\d{4}-", text):
            return datetime.fromisoformat(text).astimezone(UTC)
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise UsageProblem(f"{option} {text!r} is not a time; write 2h, 3d, 2026-01-31 or 2026-01-31T12:00") from None

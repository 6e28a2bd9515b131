"""`paddock events`: what happened, and what happens."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import ConnectionLost, NoServer
from paddock.cli.output import moment, pairs

_PAGE = 1000
_RECONNECT_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    command(
        app,
        "events",
        server=True,
        examples="paddock events\npaddock events --follow --json\npaddock events --sandbox 3f2a",
    )(events)


async def events(
    cli: Cli,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    after: Annotated[int, typer.Option(metavar="N", help="Only those after this number.", min=0)] = 0,
    sandbox: Annotated[str | None, typer.Option(metavar="SANDBOX", help="Only of this sandbox.")] = None,
) -> None:
    """Show what has happened to sandboxes, snapshots, pools and runs.

    With --json, one document a line; after a break, go on with --after and the last `sequence` seen (`number` with
    --sandbox).
    """
    import asyncio

    place = "sequence" if sandbox is None else "number"
    async with cli.client() if follow else cli.reading() as client:
        path = "/v1/events" if sandbox is None else f"/v1/sandboxes/{await _found(client, sandbox)}/events"
        last_seen = time.monotonic()
        while True:
            try:
                if not follow:
                    return await _all(cli, client, path, after)
                query = {"after": str(after)}
                headers = {"Accept": "text/event-stream"}
                async with client.request("GET", path, params=query, headers=headers) as answer:
                    async for documents in client.lines(answer):
                        last_seen = time.monotonic()
                        for event in documents:
                            after = int(event.get(place, after))
                            _show(cli, event)
                            if sandbox and event.get("type") in ("sandbox.ended", "sandbox.failed"):
                                return None
                raise ConnectionLost("the server ended the stream")
            except (ConnectionLost, NoServer):
                if not follow or time.monotonic() - last_seen > _RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)


async def _found(client: Any, wanted: str) -> str:
    from paddock.cli.find import NoSuchSandbox, find

    try:
        return await find(client, wanted)
    except NoSuchSandbox as error:
        raise NoSuchSandbox(error.message, hint="what happened to one that is gone is found by its whole id") from None


async def _all(cli: Cli, client: Any, path: str, after: int) -> None:
    headers = {"Accept": "application/json"}
    while True:
        page = await client.ask("GET", path, params={"after": str(after), "limit": str(_PAGE)}, headers=headers)
        for event in page["items"]:
            _show(cli, event)
        after = page["next"]
        if len(page["items"]) < _PAGE:
            return


def _show(cli: Cli, event: dict[str, Any]) -> None:
    if cli.as_json:
        return cli.out.event(event)
    at = moment(event.get("at"))
    when = f"{at.astimezone():%m-%d %H:%M:%S}" if at else ""
    facts = {name: value for name, value in (event.get("data") or {}).items() if value not in (None, {}, "")}
    name = str(event.get("stream", "")).partition("/")[2]
    if cli.out.for_people and "sha256" in facts:
        facts["sha256"] = str(facts["sha256"])[:12]
    line = f"{when}  {event.get('type', ''):<18} {name}  {pairs(facts)}".rstrip()
    return cli.out.line(_fitted(line) if cli.out.for_people else line)


def _fitted(line: str) -> str:
    """A line that is too long for the terminal goes on below, behind the time."""
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns)
    if len(line) <= width:
        return line
    pieces = textwrap.wrap(line, width, subsequent_indent=" " * 16, break_long_words=False, break_on_hyphens=False)
    return "\n".join(pieces)

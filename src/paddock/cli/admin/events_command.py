"""`paddock events`: prints past events and follows new ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import ConnectionLost, NoServerError
from paddock.cli.output.formatting import format_pairs, parse_time

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

_PAGE = 1000
_RECONNECT_SECONDS = 60.0


def register_commands(app: typer.Typer) -> None:
    register_command(
        app,
        "events",
        server=True,
        examples="paddock events\npaddock events --follow --json\npaddock events --sandbox 3f2a",
    )(show_events)


async def show_events(
    cli: CliContext,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events.")] = False,
    after: Annotated[int, typer.Option(metavar="N", help="Show only events after this number.", min=0)] = 0,
    sandbox: Annotated[str | None, typer.Option(metavar="SANDBOX", help="Filter by sandbox.")] = None,
) -> None:
    """Show events of sandboxes, snapshots, pools and runs.

    With --json, prints one document per line; to resume later, pass the last `sequence` (with --sandbox, the last
    `number`) to --after.
    """
    import asyncio

    cursor_field = "sequence" if sandbox is None else "number"
    async with cli.open_client() if follow else cli.open_read_client() as client:
        path = "/v1/events" if sandbox is None else f"/v1/sandboxes/{await _find_event_sandbox(client, sandbox)}/events"
        last_seen = time.monotonic()
        while True:
            try:
                if not follow:
                    return await _print_past_events(cli, client, path, after)
                query = {"after": str(after)}
                headers = {"Accept": "text/event-stream"}
                async with client.request("GET", path, params=query, headers=headers) as answer:
                    async for documents in client.json_lines(answer):
                        last_seen = time.monotonic()
                        for event in documents:
                            after = int(event.get(cursor_field, after))
                            _print_event(cli, event)
                            if sandbox and event.get("type") in ("sandbox.ended", "sandbox.failed"):
                                return None
                raise ConnectionLost("the server ended the stream")
            except (ConnectionLost, NoServerError):
                if not follow or time.monotonic() - last_seen > _RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)


async def _find_event_sandbox(client: ServerClient, name: str) -> str:
    from paddock.cli.sandbox.sandbox_lookup import NoSuchSandbox, find_sandbox

    try:
        return await find_sandbox(client, name)
    except NoSuchSandbox as error:
        raise NoSuchSandbox(error.message, hint="for a deleted sandbox, give its full id") from None


async def _print_past_events(cli: CliContext, client: ServerClient, path: str, after: int) -> None:
    headers = {"Accept": "application/json"}
    while True:
        page = await client.request_json(
            "GET", path, params={"after": str(after), "limit": str(_PAGE)}, headers=headers
        )
        for event in page["items"]:
            _print_event(cli, event)
        after = page["next"]
        if len(page["items"]) < _PAGE:
            return


def _print_event(cli: CliContext, event: dict[str, Any]) -> None:
    if cli.as_json:
        return cli.out.print_json_line(event)
    at = parse_time(event.get("at"))
    when = f"{at.astimezone():%m-%d %H:%M:%S}" if at else ""
    facts = {name: value for name, value in (event.get("data") or {}).items() if value not in (None, {}, "")}
    name = str(event.get("stream", "")).partition("/")[2]
    if cli.out.is_interactive and "sha256" in facts:
        facts["sha256"] = str(facts["sha256"])[:12]
    line = f"{when}  {event.get('type', ''):<18} {name}  {format_pairs(facts)}".rstrip()
    return cli.out.print_line(_fit_to_terminal(line) if cli.out.is_interactive else line)


def _fit_to_terminal(line: str) -> str:
    """Wrap a line to the terminal's width, indenting the rest behind the time."""
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns)
    if len(line) <= width:
        return line
    pieces = textwrap.wrap(line, width, subsequent_indent=" " * 16, break_long_words=False, break_on_hyphens=False)
    return "\n".join(pieces)

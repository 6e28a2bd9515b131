"""Exchanges with models: those there were, and those there are."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated, Any

import typer

from paddock.cli import llm_filters as by
from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import ConnectionLost, NoServer

_RECONNECT_SECONDS = 60.0
_NOTHING = "Nothing was asked of a model yet. Ask something: paddock llm test MODEL"


def register(models: typer.Typer) -> None:
    command(
        models,
        "log",
        server=True,
        examples="""
            paddock llm log
            paddock llm log --sandbox 3f2a --outcome failed
            paddock llm log --since 2h --search '"permission denied"' --all
        """,
    )(log)
    command(models, "tail", server=True, examples="paddock llm tail\npaddock llm tail --sandbox 3f2a --json")(tail)


async def log(
    cli: Cli,
    sandbox: by.Sandbox = None,
    run: by.Run = None,
    session: by.Session = None,
    model: by.Model = None,
    outcome: by.OutcomeOption = None,
    since: by.Since = None,
    until: by.Until = None,
    search: by.Search = None,
    limit: Annotated[int, typer.Option(metavar="N", help="So many at most.", min=1, max=100_000)] = 20,
    everything: Annotated[bool, typer.Option("--all", help="All there are, instead of the newest.")] = False,
) -> None:
    """List what was asked of models, the newest first.

    Tokens in and out are those of the prompt and of the answer; ~ marks a guess.
    """
    from paddock.cli.llm_rows import COLUMNS, Layout, cells

    async with cli.reading() as client:
        asked = await by.query(
            client,
            sandbox=sandbox,
            run=run,
            session=session,
            model=model,
            outcome=outcome,
            since=since,
            until=until,
            search=search,
        )
        wanted = None if everything else limit + 1
        found = [exchange async for exchange in by.recent(client, asked, wanted)]
    shown = found if everything else found[:limit]
    if cli.as_json:
        return cli.out.document(shown)
    if not shown:
        if cli.out.for_people:
            cli.out.line("No exchange fits." if asked else _NOTHING)
        return None
    rows = [cells(exchange) for exchange in shown]
    layout = Layout(rows)
    _print([layout.line(COLUMNS, bold=True), *(layout.line(row) for row in rows)])
    if len(found) > len(shown) and cli.out.for_people:
        cli.out.line(
            f"\nThere are more: --limit N or --all. One of them in full: paddock llm show {shown[0]['number']}"
        )
    return None


async def tail(
    cli: Cli,
    sandbox: by.Sandbox = None,
    model: by.Model = None,
    after: Annotated[int | None, typer.Option(metavar="NO", help="Begin after this one instead of now.", min=0)] = None,
) -> None:
    """Show what is asked of models as it ends, until Ctrl-C.

    With --json, one document a line; after a break, go on with --after and the last `number` seen.
    """
    from paddock.cli.llm_rows import COLUMNS, Layout, cells

    layout = Layout(None)
    async with cli.client() as client:
        asked = {"sandbox": await by.sandbox_id(client, sandbox)} if sandbox else {}
        if cli.out.for_people:
            _print([layout.line(COLUMNS, bold=True)])
        last_seen = time.monotonic()
        while True:
            query = asked | ({"after": str(after)} if after is not None else {})
            try:
                async with client.request("GET", "/v1/exchanges/events", params=query) as answer:
                    last_seen = time.monotonic()
                    async for documents in client.lines(answer):
                        last_seen = time.monotonic()
                        for exchange in documents:
                            after = int(exchange.get("number", after or 0))
                            if model is None or model in (exchange.get("model"), exchange.get("providerModel")):
                                _show(cli, layout, cells(exchange), exchange)
                raise ConnectionLost("the server ended the stream")
            except (ConnectionLost, NoServer):
                if time.monotonic() - last_seen > _RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)


def _show(cli: Cli, layout: Any, row: list[str], exchange: dict[str, Any]) -> None:
    if cli.as_json:
        cli.out.event(exchange)
    else:
        _print([layout.line(row)])


def _print(lines: list[str]) -> None:
    # The lines bring their own colours; what they quote is plain already.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()

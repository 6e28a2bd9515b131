"""`paddock llm log` and `tail`: lists past exchanges and follows new ones."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.llm import exchange_filters
from paddock.cli.output.errors import ConnectionLost, NoServerError

if TYPE_CHECKING:
    from paddock.cli.llm.exchange_table import ExchangeTableLayout

_COUNTED = 201
"""Requests that are read to say how many there are."""
_RECONNECT_SECONDS = 60.0
_NO_EXCHANGES = "No model requests yet. Send one: paddock llm test MODEL"


def register_commands(models: typer.Typer) -> None:
    register_command(
        models,
        "log",
        server=True,
        examples="""
            paddock llm log
            paddock llm log --sandbox 3f2a --outcome failed
            paddock llm log --since 2h --search '"permission denied"' --all
        """,
    )(list_exchanges)
    register_command(models, "tail", server=True, examples="paddock llm tail\npaddock llm tail --sandbox 3f2a --json")(
        follow_exchanges
    )


async def list_exchanges(
    cli: CliContext,
    sandbox: exchange_filters.SandboxOption = None,
    run: exchange_filters.RunOption = None,
    session: exchange_filters.SessionOption = None,
    model: exchange_filters.ModelOption = None,
    outcome: exchange_filters.OutcomeOption = None,
    since: exchange_filters.SinceOption = None,
    until: exchange_filters.UntilOption = None,
    search: exchange_filters.SearchOption = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of exchanges.", min=1, max=100_000)] = 20,
    everything: Annotated[bool, typer.Option("--all", help="List all exchanges.")] = False,
) -> None:
    """List requests to models, newest first.

    FROM is the chat, the run or the sandbox of a request. IN and OUT are the tokens of prompt and answer; ~ marks
    estimates.
    """
    from paddock.cli.llm.exchange_table import EXCHANGE_COLUMNS, ExchangeTableLayout, exchange_row_cells

    async with cli.open_read_client() as client:
        query = await exchange_filters.build_exchange_query(
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
        max_count = None if everything else max(limit + 1, _COUNTED)
        found = [exchange async for exchange in exchange_filters.list_recent_exchanges(client, query, max_count)]
    shown = found if everything else found[:limit]
    if cli.as_json:
        return cli.out.print_json(shown)
    if not shown:
        if cli.out.is_interactive:
            cli.out.print_line("No matching requests." if query else _NO_EXCHANGES)
        return None
    rows = [exchange_row_cells(exchange) for exchange in shown]
    layout = ExchangeTableLayout(rows)
    _print_lines([layout.format_row(EXCHANGE_COLUMNS, bold=True), *(layout.format_row(row) for row in rows)])
    if len(found) > len(shown):
        total = f"more than {len(found) - 1}" if len(found) == max_count else str(len(found))
        note = f"{len(shown)} of {total}; use --limit N or --all. Show one: paddock llm show {shown[0]['number']}"
        # In a pipe, standard output has the rows only.
        cli.out.print_line(f"\n{note}") if cli.out.is_interactive else sys.stderr.write(f"{note}\n")
    return None


async def follow_exchanges(
    cli: CliContext,
    sandbox: exchange_filters.SandboxOption = None,
    model: exchange_filters.ModelOption = None,
    after: Annotated[
        int | None, typer.Option(metavar="NO", help="Start after this exchange instead of now.", min=0)
    ] = None,
) -> None:
    """Follow requests to models as they end, until Ctrl-C.

    With --json, prints one document per line; to resume later, pass the last `number` to --after.
    """
    from paddock.cli.llm.exchange_table import EXCHANGE_COLUMNS, ExchangeTableLayout, exchange_row_cells

    layout = ExchangeTableLayout(None)
    async with cli.open_client() as client:
        filters = {"sandbox": await exchange_filters.find_sandbox_id(client, sandbox)} if sandbox else {}
        if cli.out.is_interactive:
            _print_lines([layout.format_row(EXCHANGE_COLUMNS, bold=True)])
        last_seen = time.monotonic()
        while True:
            query = filters | ({"after": str(after)} if after is not None else {})
            try:
                async with client.request("GET", "/v1/exchanges/events", params=query) as answer:
                    last_seen = time.monotonic()
                    async for documents in client.json_lines(answer):
                        last_seen = time.monotonic()
                        for exchange in documents:
                            after = int(exchange.get("number", after or 0))
                            if model is None or model in (exchange.get("model"), exchange.get("providerModel")):
                                _print_exchange(cli, layout, exchange_row_cells(exchange), exchange)
                raise ConnectionLost("the server ended the stream")
            except (ConnectionLost, NoServerError):
                if time.monotonic() - last_seen > _RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)


def _print_exchange(cli: CliContext, layout: ExchangeTableLayout, row: list[str], exchange: dict[str, Any]) -> None:
    if cli.as_json:
        cli.out.print_json_line(exchange)
    else:
        _print_lines([layout.format_row(row)])


def _print_lines(lines: list[str]) -> None:
    # The lines are coloured and already sanitized.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()

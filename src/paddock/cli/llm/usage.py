"""`paddock llm usage`: sums up requests, tokens and cost of models."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import RequestRefused, UsageError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

_BAR_WIDTH = 24
_MAX_CHART_DAYS = 62
"""Days; in a chart of a longer period, days without requests are left out."""
_GROUPINGS = ("day", "model", "provider", "key", "sandbox", "tenant")


def register_commands(models: typer.Typer) -> None:
    register_command(
        models,
        "usage",
        server=True,
        examples="""
            paddock llm usage
            paddock llm usage --by model --since 30d
            paddock llm usage --by day,sandbox --since 2026-01-01 --until 2026-01-31 --json
        """,
    )(show_usage)


async def show_usage(
    cli: CliContext,
    by: Annotated[
        str, typer.Option(metavar="WHAT,…", help=f"Group by, comma-separated: {', '.join(_GROUPINGS)}.")
    ] = "day",
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="First day in UTC: 2026-01-31, or 7d for a week ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Last day in UTC.")] = None,
    sandbox: Annotated[str | None, typer.Option(metavar="SANDBOX", help="Filter by sandbox.")] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Filter by model.", show_default=False)] = None,
) -> None:
    """Show totals of requests, tokens and cost of models.

    ~ marks estimates, ≥ costs that are only partly known.
    """
    groupings = list(dict.fromkeys(name.strip().lower() for name in by.split(",") if name.strip()))
    if not groupings or any(name not in _GROUPINGS for name in groupings):
        raise UsageError(f"--by {by!r} is unknown", hint=f"use one or more of {', '.join(_GROUPINGS)}, comma-separated")
    bounds = {"since": _parse_day(since, "--since"), "until": _parse_day(until, "--until"), "model": model}
    async with cli.open_read_client() as client:
        if sandbox:
            from paddock.cli.llm.exchange_filters import find_sandbox_id

            bounds["sandbox"] = await find_sandbox_id(client, sandbox)
        found = await client.get("/v1/usage", by=",".join(groupings), **bounds)
        shows_chart = not cli.as_json and "day" not in groupings
        days = (await client.get("/v1/usage", by="day", **bounds))["items"] if shows_chart else []
        names = await _fetch_key_names(client) if "key" in groupings and not cli.as_json else {}
    if cli.as_json:
        return cli.out.print_json(found)
    items = [_with_key_name(item, names) for item in found["items"]]
    if not items:
        if cli.out.is_interactive:
            cli.out.print_line("No model requests in this period." if any(bounds.values()) else _NO_USAGE)
        return None
    _print_usage_table(cli, groupings, items, found["total"])
    if len(days) > 1:
        cli.out.print_line()
        cli.out.print_table(["DAY", "", _chart_title(days)], _daily_chart(days))
    for note in _footnotes(found["total"]):
        cli.out.print_line(note)
    return None


_NO_USAGE = "No model requests yet. Send one: paddock llm test MODEL"


async def _fetch_key_names(client: ServerClient) -> dict[str, str]:
    """Return the names of keys by id; empty if the key may not list keys."""
    try:
        return {str(key["id"]): str(key["name"]) for key in await client.list_all("/v1/keys")}
    except RequestRefused as error:
        if error.status != 403:
            raise
        return {}


def _with_key_name(item: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(str(item.get("key")))
    return {**item, "key": f"{item['key']} {name}"} if name else item


def _print_usage_table(
    cli: CliContext, groupings: list[str], items: list[dict[str, Any]], total: Mapping[str, Any]
) -> None:
    shows_chart = groupings == ["day"] and len(items) > 1
    bars = {day: bar for day, bar, _ in _daily_chart(items)} if shows_chart else {}
    rows = []
    for item in items:
        row = [str(item.get(name) or "-") for name in groupings] + _usage_cells(item)
        rows.append([*row, bars.get(str(item.get("day")), "")] if shows_chart else row)
    if len(items) > 1:
        rows.append(["total", *[""] * (len(groupings) - 1), *_usage_cells(total), *([""] if shows_chart else [])])
    columns = [name.upper() for name in groupings] + ["REQUESTS", "FAILED", "IN", "OUT", "COST"]
    named = [name.upper() for name in groupings if name != "day"]
    numbers = columns[len(groupings) :]
    # The chart shows the cost, or tokens if there is no cost.
    cli.out.print_table([*columns, *([_chart_title(items)] if shows_chart else [])], rows, wraps=named, right=numbers)


def _usage_cells(item: Mapping[str, Any]) -> list[str]:
    from paddock.cli.output.formatting import format_count

    guess = "~" if item["estimated"] else ""
    failed = str(item["errors"]) if item["errors"] else ""
    return [
        f"{item['requests']:,}",
        failed,
        guess + format_count(item["input"]),
        guess + format_count(item["output"]),
        _cost_text(item),
    ]


def _cost_text(item: Mapping[str, Any]) -> str:
    from paddock.cli.output.formatting import format_cost

    if item["unpriced"]:
        known = format_cost(item["cost"])
        return "unknown" if not item["cost"] else known if known.startswith("<") else f"≥{known}"
    return f"{'~' if item['estimated'] and item['cost'] else ''}{format_cost(item['cost'])}"


def _chart_title(items: list[dict[str, Any]]) -> str:
    return "COST BY DAY" if any(item["cost"] for item in items) else "TOKENS BY DAY"


def _daily_chart(items: list[dict[str, Any]]) -> list[list[str]]:
    """Return a bar for each day, scaled by cost, or by tokens if there is no cost."""
    from paddock.cli.output.formatting import format_cost, format_count

    costs = any(item["cost"] for item in items)
    values: dict[str, float] = {}
    for item in items:
        amount = item["cost"] if costs else item["input"] + item["output"]
        values[str(item["day"])] = values.get(str(item["day"]), 0) + amount
    first, last = (date.fromisoformat(pick(values)) for pick in (min, max))
    if (last - first).days < _MAX_CHART_DAYS:
        span = [str(first + timedelta(days=day)) for day in range((last - first).days + 1)]
        values = {day: values.get(day, 0) for day in span}
    most = max(values.values()) or 1
    label = format_cost if costs else (lambda amount: format_count(int(amount)))
    return [[day, draw_bar(amount / most), label(amount)] for day, amount in sorted(values.items())]


def draw_bar(share: float, width: int = _BAR_WIDTH) -> str:
    """Draw a bar over a share of `width`, in steps of an eighth of a character."""
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        return "#" * round(share * width)
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)  # small values stay visible
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip()


def _footnotes(total: Mapping[str, Any]) -> list[str]:
    notes = []
    if total["estimated"]:
        requests = "1 request" if total["estimated"] == 1 else f"{total['estimated']:,} requests"
        notes.append(f"~ tokens of {requests} are estimated, not reported by the provider")
    if total["unpriced"]:
        requests = "1 request" if total["unpriced"] == 1 else f"{total['unpriced']:,} requests"
        mark = "≥ " if _cost_text(total).startswith("≥") else ""
        notes.append(f"{mark}no price is configured for {requests}; set llm.prices")
    return ["", *notes] if notes else []


def _parse_day(text: str | None, option: str) -> str | None:
    from datetime import UTC

    from paddock.cli.llm.exchange_filters import parse_time_option

    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return parse_time_option(text, option).astimezone(UTC).date().isoformat()

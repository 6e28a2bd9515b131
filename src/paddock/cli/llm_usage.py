"""`paddock llm usage`: what was asked of models, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import Refused, UsageProblem

if TYPE_CHECKING:
    from paddock.cli.client import Client

_BAR = 24
_LONGEST_CHART = 62
"""Days; of a longer time only those are shown on which something was asked."""
_NAMES = ("day", "model", "provider", "key", "sandbox", "tenant")


def register(models: typer.Typer) -> None:
    command(
        models,
        "usage",
        server=True,
        examples="""
            paddock llm usage
            paddock llm usage --by model --since 30d
            paddock llm usage --by day,sandbox --since 2026-01-01 --until 2026-01-31 --json
        """,
    )(usage)


async def usage(
    cli: Cli,
    by: Annotated[
        str, typer.Option(metavar="WHAT,…", help=f"What to tell apart: {', '.join(_NAMES)}, with commas.")
    ] = "day",
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="The first day in UTC: 2026-01-31, or 7d for a week ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="The last day in UTC.")] = None,
    sandbox: Annotated[str | None, typer.Option(metavar="SANDBOX", help="Only of this sandbox.")] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Only of this model.", show_default=False)] = None,
) -> None:
    """Add up requests, tokens and cost of models.

    Guesses are marked with ~, costs of which a part is not known with ≥.
    """
    wanted = list(dict.fromkeys(name.strip().lower() for name in by.split(",") if name.strip()))
    if not wanted or any(name not in _NAMES for name in wanted):
        raise UsageProblem(f"--by {by!r} is not known", hint=f"write some of {', '.join(_NAMES)}, with commas between")
    bounds = {"since": _day(since, "--since"), "until": _day(until, "--until"), "model": model}
    async with cli.reading() as client:
        if sandbox:
            from paddock.cli.llm_filters import sandbox_id

            bounds["sandbox"] = await sandbox_id(client, sandbox)
        found = await client.get("/v1/usage", by=",".join(wanted), **bounds)
        draws = not cli.as_json and "day" not in wanted
        days = (await client.get("/v1/usage", by="day", **bounds))["items"] if draws else []
        names = await _key_names(client) if "key" in wanted and not cli.as_json else {}
    if cli.as_json:
        return cli.out.document(found)
    items = [_with_name(item, names) for item in found["items"]]
    if not items:
        if cli.out.for_people:
            cli.out.line("Nothing was asked of a model in this time." if any(bounds.values()) else _NOTHING)
        return None
    _table(cli, wanted, items, found["total"])
    if len(days) > 1:
        cli.out.line()
        cli.out.table(["DAY", "", _measured(days)], _chart(days))
    for note in _footnotes(found["total"]):
        cli.out.line(note)
    return None


_NOTHING = "Nothing was asked of a model yet. Ask something: paddock llm test MODEL"


async def _key_names(client: Client) -> dict[str, str]:
    """What keys are called, by their ids; nothing for those who may not know."""
    try:
        return {str(key["id"]): str(key["name"]) for key in await client.items("/v1/keys")}
    except Refused as error:
        if error.status != 403:
            raise
        return {}


def _with_name(item: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(str(item.get("key")))
    return {**item, "key": f"{item['key']} {name}"} if name else item


def _table(cli: Cli, wanted: list[str], items: list[dict[str, Any]], total: Mapping[str, Any]) -> None:
    draws = wanted == ["day"] and len(items) > 1
    bars = {day: bar for day, bar, _ in _chart(items)} if draws else {}
    rows = []
    for item in items:
        row = [str(item.get(name) or "-") for name in wanted] + _numbers(item)
        rows.append([*row, bars.get(str(item.get("day")), "")] if draws else row)
    if len(items) > 1:
        rows.append(["total", *[""] * (len(wanted) - 1), *_numbers(total), *([""] if draws else [])])
    columns = [name.upper() for name in wanted] + ["REQUESTS", "FAILED", "IN", "OUT", "COST"]
    named = [name.upper() for name in wanted if name != "day"]
    numbers = columns[len(wanted) :]
    # What is drawn has no name: it is the cost, or the tokens where there is none.
    cli.out.table([*columns, *([_measured(items)] if draws else [])], rows, wraps=named, right=numbers)


def _numbers(item: Mapping[str, Any]) -> list[str]:
    from paddock.cli.llm_words import count

    guess = "~" if item["estimated"] else ""
    failed = str(item["errors"]) if item["errors"] else ""
    return [f"{item['requests']:,}", failed, guess + count(item["input"]), guess + count(item["output"]), _cost(item)]


def _cost(item: Mapping[str, Any]) -> str:
    from paddock.cli.llm_words import money

    if item["unpriced"]:
        known = money(item["cost"])
        return "unknown" if not item["cost"] else known if known.startswith("<") else f"≥{known}"
    return f"{'~' if item['estimated'] and item['cost'] else ''}{money(item['cost'])}"


def _measured(items: list[dict[str, Any]]) -> str:
    return "COST BY DAY" if any(item["cost"] for item in items) else "TOKENS BY DAY"


def _chart(items: list[dict[str, Any]]) -> list[list[str]]:
    """A bar for each day, the longest for the day of most cost, or of most tokens where nothing cost anything."""
    from paddock.cli.llm_words import count, money

    costs = any(item["cost"] for item in items)
    values: dict[str, float] = {}
    for item in items:
        amount = item["cost"] if costs else item["input"] + item["output"]
        values[str(item["day"])] = values.get(str(item["day"]), 0) + amount
    first, last = (date.fromisoformat(pick(values)) for pick in (min, max))
    if (last - first).days < _LONGEST_CHART:
        span = [str(first + timedelta(days=day)) for day in range((last - first).days + 1)]
        values = {day: values.get(day, 0) for day in span}
    most = max(values.values()) or 1
    label = money if costs else (lambda amount: count(int(amount)))
    return [[day, bar(amount / most), label(amount)] for day, amount in sorted(values.items())]


def bar(share: float, width: int = _BAR) -> str:
    """A bar as long as a share of the longest, to an eighth of a letter."""
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        return "#" * round(share * width)
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)  # something is not nothing
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip()


def _footnotes(total: Mapping[str, Any]) -> list[str]:
    notes = []
    if total["estimated"]:
        requests = "1 request" if total["estimated"] == 1 else f"{total['estimated']:,} requests"
        notes.append(f"~ tokens of {requests} are a guess, because the provider did not say")
    if total["unpriced"]:
        requests = "1 request" if total["unpriced"] == 1 else f"{total['unpriced']:,} requests"
        mark = "≥ " if _cost(total).startswith("≥") else ""
        notes.append(f"{mark}no price is known for {requests}; set llm.prices")
    return ["", *notes] if notes else []


def _day(text: str | None, option: str) -> str | None:
    from datetime import UTC

    from paddock.cli.llm_filters import when

    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return when(text, option).astimezone(UTC).date().isoformat()

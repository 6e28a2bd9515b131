"""What was asked of models over time, for charts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from paddock.api.access import LlmReader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.usage import Exactly
from paddock.api.wire import Moment, Said
from paddock.errors import InvalidInput
from paddock.model.keys import Scope
from paddock.store.series import SHARES

Interval = Literal["hour", "day"]
_WIDTHS: dict[Interval, int] = {"hour": 3600, "day": 86_400}
_USUAL: dict[Interval, timedelta] = {"hour": timedelta(hours=24), "day": timedelta(days=30)}
MOST = 1000
"""Points of one answer."""


class Percentiles(Said):
    """In seconds, of requests that got a whole answer."""

    p50: float
    p90: float
    p99: float


class Point(Said):
    at: AwareDatetime
    """When it begins."""
    requests: int = 0
    errors: int = 0
    """Requests without a whole answer, those in `refused` included."""
    refused: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    """In US dollars, as far as it is known."""
    latency: Percentiles | None = None
    """Until the end of the answer."""
    first_byte: Percentiles | None = None
    """Until its beginning."""


class Series(Said):
    interval: Interval
    since: AwareDatetime
    until: AwareDatetime
    archived: bool
    """Whether exchanges are kept; without them there are no hours and no latencies."""
    items: list[Point]
    """One for each span, also where nothing was asked."""


When = Annotated[Moment | None, Query(description="With its time zone; as a rule the last day, or 30 days.")]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/usage/series", tags=["Models"])

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def get_usage_series(
        principal: LlmReader,
        interval: Interval = "hour",
        since: When = None,
        until: When = None,
        tenant: Exactly = None,
        key: Exactly = None,
        model: Exactly = None,
        provider: Exactly = None,
        sandbox: Exactly = None,
    ) -> Series:
        """Requests, errors, tokens, cost and latency by hour or by day, in UTC.

        Days are added up as they pass and stay; hours and latencies are those of exchanges that are still kept.
        """
        seen = tenant if principal.allows(Scope.ADMIN) else principal.tenant
        given = {"key_id": key, "model": model, "provider": provider, "sandbox": sandbox}
        filters = {name: value for name, value in given.items() if value is not None}
        width = _WIDTHS[interval]
        begin, end = _span(interval, since, until)
        points: dict[int, Point] = {}
        for place in range(begin, end, width):
            points[place] = Point(at=datetime.fromtimestamp(place, UTC))
        if interval == "day":
            first, last = (datetime.fromtimestamp(moment, UTC).date() for moment in (begin, end - 1))
            for row in await services.ledger.query(seen, {"day"}, first, last, filters):
                if row.day is not None:
                    at = datetime(row.day.year, row.day.month, row.day.day, tzinfo=UTC)
                    numbers = {name: getattr(row.tally, name) for name in _NUMBERS}
                    points[round(at.timestamp())] = Point(at=at, **numbers)
        else:
            for bucket in await services.series.buckets(seen, filters, begin, end, width):
                numbers = {name: getattr(bucket, name) for name in _NUMBERS}
                points[bucket.begin] = Point(at=datetime.fromtimestamp(bucket.begin, UTC), **numbers)
        for place, delays in (await services.series.delays(seen, filters, begin, end, width)).items():
            measured = {"latency": _percentiles(delays.total), "first_byte": _percentiles(delays.first_byte)}
            if place in points:
                points[place] = points[place].model_copy(update=measured)
        return Series(
            interval=interval,
            since=datetime.fromtimestamp(begin, UTC),
            until=datetime.fromtimestamp(end, UTC),
            archived=services.gateway.settings.archive.enabled,
            items=[points[place] for place in sorted(points)],
        )

    return router


_NUMBERS = ("requests", "errors", "refused", "input", "output", "cost")


def _span(interval: Interval, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Whole spans, from the one in which it begins to the one in which it ends."""
    width = _WIDTHS[interval]
    try:
        last = until or datetime.now(UTC)
        first = since or last - _USUAL[interval] + timedelta(seconds=1)
        begin, end = int(first.timestamp() // width * width), int(-(-last.timestamp() // width) * width)
        datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(end, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidInput("since and until: choose moments of this calendar") from None
    if end <= begin:
        raise InvalidInput("until: lies before since")
    if (end - begin) // width > MOST:
        raise InvalidInput(f"this would be more than {MOST} {interval}s; ask for less")
    return begin, end


def _percentiles(values: tuple[float, ...]) -> Percentiles | None:
    return Percentiles(p50=values[0], p90=values[1], p99=values[2]) if len(values) == len(SHARES) else None

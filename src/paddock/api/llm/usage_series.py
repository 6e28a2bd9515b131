"""Route for model usage over time, for charts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from paddock.api.http.authorization import LlmReader
from paddock.api.http.body_models import ResponseBody, UtcDateTime
from paddock.api.http.error_responses import openapi_errors
from paddock.api.llm.usage import ExactFilterQuery
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput
from paddock.model.keys import Scope
from paddock.store.model_exchanges.usage_series import PERCENTILES

SeriesInterval = Literal["hour", "day"]
_SPAN_SECONDS: dict[SeriesInterval, int] = {"hour": 3600, "day": 86_400}
_DEFAULT_SPANS: dict[SeriesInterval, timedelta] = {"hour": timedelta(hours=24), "day": timedelta(days=30)}
MAX_SERIES_POINTS = 1000
"""Largest number of points in one response."""


class LatencyPercentiles(ResponseBody):
    """In seconds, of completely answered requests."""

    p50: float
    p90: float
    p99: float


class UsagePoint(ResponseBody):
    at: AwareDatetime
    """Start of the span."""
    requests: int = 0
    errors: int = 0
    """Requests without a complete response, including `refused` ones."""
    refused: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    """In US dollars, as far as known."""
    latency: LatencyPercentiles | None = None
    """Until the end of the response."""
    first_byte: LatencyPercentiles | None = None
    """Until the start of the response."""


class UsageSeriesResponse(ResponseBody):
    interval: SeriesInterval
    since: AwareDatetime
    until: AwareDatetime
    archived: bool
    """Whether exchanges are stored; without them there are no hourly numbers and no latencies."""
    items: list[UsagePoint]
    """One point for each span, including spans without requests."""


OptionalTimeQuery = Annotated[
    UtcDateTime | None, Query(description="With time zone; by default the last day, or the last 30 days.")
]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/usage/series", tags=["Models"])

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def get_usage_series(
        principal: LlmReader,
        interval: SeriesInterval = "hour",
        since: OptionalTimeQuery = None,
        until: OptionalTimeQuery = None,
        tenant: ExactFilterQuery = None,
        key: ExactFilterQuery = None,
        model: ExactFilterQuery = None,
        provider: ExactFilterQuery = None,
        sandbox: ExactFilterQuery = None,
    ) -> UsageSeriesResponse:
        """Return requests, errors, tokens, cost and latency by hour or by day, in UTC.

        Daily sums are kept permanently; hours and latencies cover exchanges that are still stored.
        """
        visible_tenant = tenant if principal.allows(Scope.ADMIN) else principal.tenant
        requested = {"key_id": key, "model": model, "provider": provider, "sandbox": sandbox}
        filters = {name: value for name, value in requested.items() if value is not None}
        width = _SPAN_SECONDS[interval]
        begin, end = _align_to_spans(interval, since, until)
        points: dict[int, UsagePoint] = {}
        for begin_of_span in range(begin, end, width):
            points[begin_of_span] = UsagePoint(at=datetime.fromtimestamp(begin_of_span, UTC))
        if interval == "day":
            first, last = (datetime.fromtimestamp(moment, UTC).date() for moment in (begin, end - 1))
            for row in await services.ledger.query(visible_tenant, {"day"}, first, last, filters):
                if row.day is not None:
                    at = datetime(row.day.year, row.day.month, row.day.day, tzinfo=UTC)
                    numbers = {name: getattr(row.tally, name) for name in _NUMBERS}
                    points[round(at.timestamp())] = UsagePoint(at=at, **numbers)
        else:
            for bucket in await services.series.read_usage_buckets(visible_tenant, filters, begin, end, width):
                numbers = {name: getattr(bucket, name) for name in _NUMBERS}
                points[bucket.begin] = UsagePoint(at=datetime.fromtimestamp(bucket.begin, UTC), **numbers)
        delays_by_span = await services.series.read_response_times(visible_tenant, filters, begin, end, width)
        for begin_of_span, delays in delays_by_span.items():
            measured = {
                "latency": _latency_percentiles(delays.total),
                "first_byte": _latency_percentiles(delays.first_byte),
            }
            if begin_of_span in points:
                points[begin_of_span] = points[begin_of_span].model_copy(update=measured)
        return UsageSeriesResponse(
            interval=interval,
            since=datetime.fromtimestamp(begin, UTC),
            until=datetime.fromtimestamp(end, UTC),
            archived=services.gateway.settings.archive.enabled,
            items=[points[begin_of_span] for begin_of_span in sorted(points)],
        )

    return router


_NUMBERS = ("requests", "errors", "refused", "input", "output", "cost")


def _align_to_spans(interval: SeriesInterval, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return whole spans, from the one that contains `since` to the one that contains `until`."""
    width = _SPAN_SECONDS[interval]
    try:
        last = until or datetime.now(UTC)
        first = since or last - _DEFAULT_SPANS[interval] + timedelta(seconds=1)
        begin, end = int(first.timestamp() // width * width), int(-(-last.timestamp() // width) * width)
        datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(end, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidInput("since and until: outside the supported calendar") from None
    if end <= begin:
        raise InvalidInput("until: lies before since")
    if (end - begin) // width > MAX_SERIES_POINTS:
        raise InvalidInput(f"the range has more than {MAX_SERIES_POINTS} {interval}s; choose a shorter one")
    return begin, end


def _latency_percentiles(values: tuple[float, ...]) -> LatencyPercentiles | None:
    return LatencyPercentiles(p50=values[0], p90=values[1], p99=values[2]) if len(values) == len(PERCENTILES) else None

"""Model usage over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Integer, case, cast, func, select

from paddock.store.database import Store
from paddock.store.model_exchanges.exchange_store import smallest_exchange_id_at
from paddock.store.tables import exchanges, tenants
from paddock.store.visibility import visible_exchange_conditions

PERCENTILES = (0.5, 0.9, 0.99)
_FAILED = ("refused", "failed", "cut")
_ANSWERED = "ok"


@dataclass(frozen=True, slots=True)
class UsageBucket:
    """Usage within one interval."""

    begin: int
    """In seconds since 1970."""
    requests: int
    errors: int
    refused: int
    input: int
    output: int
    cost: float


@dataclass(frozen=True, slots=True)
class ResponseTimePercentiles:
    """Response times of complete answers in seconds: median, p90 and p99."""

    total: tuple[float, ...]
    first_byte: tuple[float, ...]
    """`None` without measured answers."""


class UsageSeriesStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def read_usage_buckets(
        self, tenant: str | None, filters: Mapping[str, str], since: float, until: float, width: int
    ) -> Sequence[UsageBucket]:
        """Return usage between two times in intervals of `width` seconds, without empty ones.

        Tenant `None` means all tenants. Filters are `key_id`, `model`, `provider` and `sandbox`.
        """
        bucket = cast(exchanges.c.at / width, Integer).label("bucket")
        statement = (
            select(
                bucket,
                func.count(),
                func.sum(case((exchanges.c.outcome.in_(_FAILED), 1), else_=0)),
                func.sum(case((exchanges.c.outcome == "refused", 1), else_=0)),
                func.coalesce(func.sum(exchanges.c.input), 0),
                func.coalesce(func.sum(exchanges.c.output), 0),
                func.coalesce(func.sum(exchanges.c.cost), 0.0),
            )
            .where(*_within(tenant, filters, since, until))
            .group_by(bucket)
            .order_by(bucket)
        )

        def work(connection: Connection) -> Sequence[UsageBucket]:
            return [UsageBucket(int(row[0]) * width, *row[1:]) for row in connection.execute(statement)]

        return await self._store.read(work)

    async def read_response_times(
        self, tenant: str | None, filters: Mapping[str, str], since: float, until: float, width: int
    ) -> Mapping[int, ResponseTimePercentiles]:
        """Return response times of complete answers, by start of the interval."""

        def work(connection: Connection) -> Mapping[int, ResponseTimePercentiles]:
            complete = _ranks(connection, exchanges.c.total, tenant, filters, since, until, width)
            first = _ranks(connection, exchanges.c.first_byte, tenant, filters, since, until, width)
            return {begin: ResponseTimePercentiles(values, first.get(begin, ())) for begin, values in complete.items()}

        return await self._store.read(work)


def _ranks(
    connection: Connection,
    column: ColumnElement[float],
    tenant: str | None,
    filters: Mapping[str, str],
    since: float,
    until: float,
    width: int,
) -> dict[int, tuple[float, ...]]:
    bucket = cast(exchanges.c.at / width, Integer).label("bucket")
    ranked = (
        select(
            bucket,
            column.label("value"),
            func.row_number().over(partition_by=bucket, order_by=column).label("rank"),
            func.count().over(partition_by=bucket).label("total"),
        )
        .where(*_within(tenant, filters, since, until), exchanges.c.outcome == _ANSWERED, column.is_not(None))
        .subquery()
    )
    shares = [func.min(case((ranked.c.rank >= share * ranked.c.total, ranked.c.value))) for share in PERCENTILES]
    statement = select(ranked.c.bucket, *shares).group_by(ranked.c.bucket)
    return {int(row[0]) * width: tuple(row[1:]) for row in connection.execute(statement)}


def _within(tenant: str | None, filters: Mapping[str, str], since: float, until: float) -> list[ColumnElement[bool]]:
    tenant_conditions = (
        [exchanges.c.tenant.in_(select(tenants.c.name))] if tenant is None else visible_exchange_conditions(tenant)
    )
    filter_conditions = [exchanges.c[name] == value for name, value in filters.items()]
    return [
        *tenant_conditions,
        exchanges.c.id >= smallest_exchange_id_at(since),
        exchanges.c.id < smallest_exchange_id_at(until),
        *filter_conditions,
    ]

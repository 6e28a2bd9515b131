"""Route for model usage and cost, grouped and summed."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query

from paddock.api.http.authorization import LlmReader
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput
from paddock.llm.metering.usage_ledger import UsageRow
from paddock.model.keys import Scope
from paddock.store.model_exchanges.usage_store import USAGE_NUMBERS, UsageTally

UsageDimension = Literal["tenant", "day", "key", "model", "provider", "sandbox"]
_DIMENSIONS: tuple[UsageDimension, ...] = get_args(UsageDimension)


class UsageTotals(ResponseBody):
    requests: int
    errors: int
    """Requests without a complete response: failed, interrupted and `refused` ones."""
    refused: int
    """Requests refused by this server; included in `errors`."""
    input: int
    """Tokens of prompts, including cached ones."""
    output: int
    """Tokens of responses, including reasoning."""
    cache_read: int
    cache_write: int
    reasoning: int
    cost: float
    """In US dollars, as far as known."""
    cost_known: bool
    """Whether the cost of all requests is known."""
    unpriced: int
    """Requests with tokens of unknown price."""
    estimated: int
    """Requests with estimated token counts, because the provider sent none."""


class UsageRowResponse(UsageTotals):
    """Dimensions that were not requested, and unknown values, are omitted."""

    tenant: str | None = None
    day: date | None = None
    key: str | None = None
    model: str | None = None
    """As requested, regardless of the model that answered. Omitted for unknown names, which are counted together."""
    provider: str | None = None
    """The provider that answered or was tried last."""
    sandbox: str | None = None

    @classmethod
    def from_row(cls, row: UsageRow) -> UsageRowResponse:
        return cls(
            **_totals_from_tally(row.tally).model_dump(),
            tenant=row.tenant,
            day=row.day,
            key=row.key_id,
            model=row.model,
            provider=row.provider,
            sandbox=row.sandbox,
        )


class UsageResponse(ResponseBody):
    items: list[UsageRowResponse]
    total: UsageTotals


GroupByQuery = Annotated[
    str,
    Query(
        max_length=100,
        description=f"Dimensions to group by, comma-separated: {', '.join(_DIMENSIONS)}.",
        examples=["day,model"],
    ),
]
SinceDayQuery = Annotated[date | None, Query(description="The first day, in UTC.", examples=["2026-01-01"])]
UntilDayQuery = Annotated[date | None, Query(description="The last day, in UTC.", examples=["2026-01-31"])]
ExactFilterQuery = Annotated[str | None, Query(max_length=200, description="Only requests with this value.")]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/usage", tags=["Models"])

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def get_usage(
        principal: LlmReader,
        by: GroupByQuery = "day",
        since: SinceDayQuery = None,
        until: UntilDayQuery = None,
        tenant: ExactFilterQuery = None,
        key: ExactFilterQuery = None,
        model: ExactFilterQuery = None,
        provider: ExactFilterQuery = None,
        sandbox: ExactFilterQuery = None,
    ) -> UsageResponse:
        """Return requests, tokens and cost, summed. Other tenants require the scope `admin`."""
        visible_tenant = tenant if principal.allows(Scope.ADMIN) else principal.tenant
        requested = {"key_id": key, "model": model, "provider": provider, "sandbox": sandbox}
        filters = {name: value for name, value in requested.items() if value is not None}
        rows = await services.ledger.query(visible_tenant, _parse_dimensions(by), since, until, filters)
        total = UsageTally()
        for row in rows:
            total.add(row.tally)
        return UsageResponse(items=[UsageRowResponse.from_row(row) for row in rows], total=_totals_from_tally(total))

    return router


def _parse_dimensions(by: str) -> set[str]:
    names = {name.strip() for name in by.split(",")} - {""}
    unknown = sorted(names.difference(_DIMENSIONS))
    if unknown:
        raise InvalidInput(f"by: there is no {unknown[0]!r}; known are: {', '.join(_DIMENSIONS)}")
    return {"key_id" if name == "key" else name for name in names}


def _totals_from_tally(tally: UsageTally) -> UsageTotals:
    numbers = {name: getattr(tally, name) for name in USAGE_NUMBERS}
    return UsageTotals(**numbers, cost_known=not tally.unpriced)

"""What was asked of models, and what it cost."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query

from paddock.api.access import LlmReader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import InvalidInput
from paddock.llm.usage import UsageRow
from paddock.model.keys import Scope
from paddock.store.usage import NUMBERS, Tally

Dimension = Literal["tenant", "day", "key", "model", "provider", "sandbox"]
_DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


class UsageNumbers(Said):
    requests: int
    errors: int
    """Requests that got no whole answer: those that failed, those that broke off, and those in `refused`."""
    refused: int
    """Requests that this server itself said no to; they count in `errors` too."""
    input: int
    """Tokens of prompts, those of caches included."""
    output: int
    """Tokens of answers, those that were thought included."""
    cache_read: int
    cache_write: int
    reasoning: int
    cost: float
    """In US dollars, as far as it is known."""
    cost_known: bool
    """Whether it is known of all requests."""
    unpriced: int
    """Requests that took tokens of which no price is known."""
    estimated: int
    """Requests whose tokens are a guess, because the provider did not tell."""


class UsageItem(UsageNumbers):
    """What was not asked for, and what is not known, is left out."""

    tenant: str | None = None
    day: date | None = None
    key: str | None = None
    model: str | None = None
    """As it was asked for, whatever answered. Left out for names that there are not, which count together."""
    provider: str | None = None
    """Who answered, or was asked last."""
    sandbox: str | None = None

    @classmethod
    def of(cls, row: UsageRow) -> UsageItem:
        return cls(
            **_numbers(row.tally).model_dump(),
            tenant=row.tenant,
            day=row.day,
            key=row.key_id,
            model=row.model,
            provider=row.provider,
            sandbox=row.sandbox,
        )


class UsageList(Said):
    items: list[UsageItem]
    total: UsageNumbers


By = Annotated[
    str,
    Query(
        max_length=100,
        description=f"What to tell apart, with commas: {', '.join(_DIMENSIONS)}.",
        examples=["day,model"],
    ),
]
Since = Annotated[date | None, Query(description="The first day, in UTC.", examples=["2026-01-01"])]
Until = Annotated[date | None, Query(description="The last day, in UTC.", examples=["2026-01-31"])]
Exactly = Annotated[str | None, Query(max_length=200, description="Only requests of this one.")]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/usage", tags=["Models"])

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def get_usage(
        principal: LlmReader,
        by: By = "day",
        since: Since = None,
        until: Until = None,
        tenant: Exactly = None,
        key: Exactly = None,
        model: Exactly = None,
        provider: Exactly = None,
        sandbox: Exactly = None,
    ) -> UsageList:
        """Requests, tokens and cost, added up. Other tenants than one's own take the scope `admin`."""
        seen = tenant if principal.allows(Scope.ADMIN) else principal.tenant
        given = {"key_id": key, "model": model, "provider": provider, "sandbox": sandbox}
        filters = {name: value for name, value in given.items() if value is not None}
        rows = await services.ledger.query(seen, _dimensions(by), since, until, filters)
        total = Tally()
        for row in rows:
            total.add(row.tally)
        return UsageList(items=[UsageItem.of(row) for row in rows], total=_numbers(total))

    return router


def _dimensions(by: str) -> set[str]:
    names = {name.strip() for name in by.split(",")} - {""}
    unknown = sorted(names.difference(_DIMENSIONS))
    if unknown:
        raise InvalidInput(f"by: there is no {unknown[0]!r}; known are: {', '.join(_DIMENSIONS)}")
    return {"key_id" if name == "key" else name for name in names}


def _numbers(tally: Tally) -> UsageNumbers:
    numbers = {name: getattr(tally, name) for name in NUMBERS}
    return UsageNumbers(**numbers, cost_known=not tally.unpriced)

"""Routes for API keys: create, list, revoke."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import KeyAdmin
from paddock.api.http.body_models import RequestBody, ResponseBody, UtcDateTime
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.auth.api_keys import check_key_grant
from paddock.errors import InvalidInput
from paddock.model.keys import (
    LABEL_PATTERN,
    MAX_BUDGET,
    MODEL_PATTERN,
    NAME_PATTERN,
    ApiKey,
    ApiKeyTerms,
    KeyBudget,
    KeyRateLimits,
    Principal,
    Scope,
)


class KeyBudgetRequest(RequestBody):
    """Total amount of model usage the key allows."""

    requests: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    tokens: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    """Tokens of prompts and responses."""
    cost: float | None = Field(default=None, gt=0, le=MAX_BUDGET, allow_inf_nan=False)
    """In US dollars."""


class KeyLimitsRequest(RequestBody):
    """Concurrent and per-minute model usage the key allows."""

    concurrency: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    requests_per_minute: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    tokens_per_minute: int | None = Field(default=None, ge=1, le=MAX_BUDGET)


class CreateKeyRequest(RequestBody):
    name: str = Field(min_length=1, max_length=100, examples=["laptop"])
    tenant: str | None = Field(default=None, pattern=NAME_PATTERN)
    """Another tenant than one's own requires the scope `admin`."""
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(default=[Scope.SANDBOXES_WRITE], min_length=1)
    expires_at: UtcDateTime | None = None
    sandbox: str | None = Field(default=None, pattern=LABEL_PATTERN)
    """A sandbox that the key works in exclusively, and with which it ends."""
    run: str | None = Field(default=None, pattern=LABEL_PATTERN)
    session: str | None = Field(default=None, pattern=LABEL_PATTERN)
    user: str | None = Field(default=None, pattern=LABEL_PATTERN)
    models: list[Annotated[str, Field(pattern=MODEL_PATTERN)]] = Field(default=[], max_length=100, examples=[["gpt-*"]])
    """Models the key may use, `*` matching any text; empty allows all."""
    budget: KeyBudgetRequest = KeyBudgetRequest()
    limits: KeyLimitsRequest = KeyLimitsRequest()

    def to_terms(self) -> ApiKeyTerms:
        return ApiKeyTerms(
            sandbox=self.sandbox,
            run=self.run,
            session=self.session,
            user=self.user,
            models=tuple(self.models),
            budget=KeyBudget(**self.budget.model_dump()),
            limits=KeyRateLimits(**self.limits.model_dump()),
        )


class KeyBudgetResponse(ResponseBody):
    requests: int | None = None
    tokens: int | None = None
    cost: float | None = None

    @classmethod
    def from_budget(cls, budget: KeyBudget | None) -> KeyBudgetResponse | None:
        if budget is None or budget == KeyBudget():
            return None
        cost = round(budget.cost, 6) if budget.cost is not None else None
        return cls(requests=budget.requests, tokens=budget.tokens, cost=cost)


class KeyLimitsResponse(ResponseBody):
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @classmethod
    def from_limits(cls, limits: KeyRateLimits) -> KeyLimitsResponse | None:
        return cls(**limits.model_dump()) if limits != KeyRateLimits() else None


class KeyResponse(ResponseBody):
    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    prefix: str
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    last_used_at: AwareDatetime | None = None
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    user: str | None = None
    models: list[str] | None = None
    budget: KeyBudgetResponse | None = None
    left: KeyBudgetResponse | None = None
    """The remaining budget."""
    limits: KeyLimitsResponse | None = None

    @classmethod
    def from_key(cls, key: ApiKey, left: KeyBudget | None = None) -> KeyResponse:
        built = {
            "scopes": sorted(key.scopes),
            "models": list(key.models) or None,
            "budget": KeyBudgetResponse.from_budget(key.budget),
            "left": KeyBudgetResponse.from_budget(left),
            "limits": KeyLimitsResponse.from_limits(key.limits),
        }
        return cls(**{**dict(key), **built})


class CreateKeyResponse(KeyResponse):
    secret: str
    """Shown here and never again."""


class KeyListResponse(ResponseBody):
    items: list[KeyResponse]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/keys", tags=["Keys"])
    keys = services.keys

    async def to_response(key: ApiKey) -> KeyResponse:
        if key.budget == KeyBudget():
            return KeyResponse.from_key(key)
        return KeyResponse.from_key(key, await services.budgets.remaining(key.id, key.budget))

    def visible_tenant(principal: Principal, tenant: str | None = None) -> str | None:
        return tenant if principal.allows(Scope.ADMIN) else principal.tenant

    @router.post("", status_code=201, responses=openapi_errors(404), response_model_exclude_none=True)
    async def create_key(body: CreateKeyRequest, principal: KeyAdmin) -> CreateKeyResponse:
        """Create a key. A key cannot grant more than its holder has.

        With `models`, a `budget` or `limits` the key restricts model usage, and needs the scope `llm:use`.
        """
        tenant = body.tenant or principal.tenant
        check_key_grant(principal, tenant, frozenset(body.scopes))
        if body.sandbox is not None and not (await services.fleet.get(tenant, body.sandbox)).state.alive:
            raise InvalidInput(f"sandbox: {body.sandbox} has ended")
        key, secret = await keys.create(
            body.name, tenant, body.scopes, body.expires_at, terms=body.to_terms(), granted_by=principal
        )
        return CreateKeyResponse(**dict(await to_response(key)), secret=secret)

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_keys(principal: KeyAdmin, tenant: str | None = None, sandbox: str | None = None) -> KeyListResponse:
        """List the tenant's keys, including revoked and expired ones; with the scope `admin`, of all tenants.

        Keys of sandboxes come and go with them: they are listed only for the requested `sandbox`.
        """
        return KeyListResponse(
            items=[await to_response(key) for key in await keys.list(visible_tenant(principal, tenant), sandbox)]
        )

    @router.get("/{key_id}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_key(key_id: str, principal: KeyAdmin) -> KeyResponse:
        """Return one key with its remaining budget, without its secret."""
        return await to_response(await keys.get(key_id, visible_tenant(principal)))

    @router.delete("/{key_id}", status_code=204, responses=openapi_errors(404))
    async def revoke_key(key_id: str, principal: KeyAdmin) -> None:
        """Revoke a key, effective immediately."""
        await keys.revoke(key_id, visible_tenant(principal))

    return router

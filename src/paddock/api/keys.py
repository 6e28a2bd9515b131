"""API keys: made, listed, revoked."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, Field

from paddock.api.access import KeyAdmin
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Asked, Moment, Said
from paddock.auth.keys import check_grant
from paddock.errors import InvalidInput
from paddock.model.keys import LABEL, MODEL, MOST, NAME, Budget, Key, Principal, Rates, Scope, Terms


class BudgetBody(Asked):
    """How much it may ask of models in all."""

    requests: int | None = Field(default=None, ge=1, le=MOST)
    tokens: int | None = Field(default=None, ge=1, le=MOST)
    """Of prompts and answers."""
    cost: float | None = Field(default=None, gt=0, le=MOST, allow_inf_nan=False)
    """In US dollars."""


class LimitsBody(Asked):
    """How much it may ask of models at once and per minute."""

    concurrency: int | None = Field(default=None, ge=1, le=MOST)
    requests_per_minute: int | None = Field(default=None, ge=1, le=MOST)
    tokens_per_minute: int | None = Field(default=None, ge=1, le=MOST)


class KeyBody(Asked):
    name: str = Field(min_length=1, max_length=100, examples=["laptop"])
    tenant: str | None = Field(default=None, pattern=NAME)
    """Another tenant than one's own takes the scope `admin`."""
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(default=[Scope.SANDBOXES_WRITE], min_length=1)
    expires_at: Moment | None = None
    sandbox: str | None = Field(default=None, pattern=LABEL)
    """A sandbox from within which alone it works, and with which it ends."""
    run: str | None = Field(default=None, pattern=LABEL)
    session: str | None = Field(default=None, pattern=LABEL)
    user: str | None = Field(default=None, pattern=LABEL)
    models: list[Annotated[str, Field(pattern=MODEL)]] = Field(default=[], max_length=100, examples=[["gpt-*"]])
    """Models it may ask for, `*` standing for anything; none allows all."""
    budget: BudgetBody = BudgetBody()
    limits: LimitsBody = LimitsBody()

    def terms(self) -> Terms:
        return Terms(
            sandbox=self.sandbox,
            run=self.run,
            session=self.session,
            user=self.user,
            models=tuple(self.models),
            budget=Budget(**self.budget.model_dump()),
            limits=Rates(**self.limits.model_dump()),
        )


class BudgetSaid(Said):
    requests: int | None = None
    tokens: int | None = None
    cost: float | None = None

    @classmethod
    def of(cls, budget: Budget | None) -> BudgetSaid | None:
        if budget is None or budget == Budget():
            return None
        cost = round(budget.cost, 6) if budget.cost is not None else None
        return cls(requests=budget.requests, tokens=budget.tokens, cost=cost)


class LimitsSaid(Said):
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @classmethod
    def of(cls, limits: Rates) -> LimitsSaid | None:
        return cls(**limits.model_dump()) if limits != Rates() else None


class KeySaid(Said):
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
    budget: BudgetSaid | None = None
    left: BudgetSaid | None = None
    """What is left of the budget."""
    limits: LimitsSaid | None = None

    @classmethod
    def of(cls, key: Key, left: Budget | None = None) -> KeySaid:
        built = {
            "scopes": sorted(key.scopes),
            "models": list(key.models) or None,
            "budget": BudgetSaid.of(key.budget),
            "left": BudgetSaid.of(left),
            "limits": LimitsSaid.of(key.limits),
        }
        return cls(**{**dict(key), **built})


class NewKey(KeySaid):
    secret: str
    """Shown here and never again."""


class KeyList(Said):
    items: list[KeySaid]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/keys", tags=["Keys"])
    keys = services.keys

    async def said(key: Key) -> KeySaid:
        if key.budget == Budget():
            return KeySaid.of(key)
        return KeySaid.of(key, await services.budgets.left(key.id, key.budget))

    def seen_by(principal: Principal, tenant: str | None = None) -> str | None:
        return tenant if principal.allows(Scope.ADMIN) else principal.tenant

    @router.post("", status_code=201, responses=documented(404), response_model_exclude_none=True)
    async def create_key(body: KeyBody, principal: KeyAdmin) -> NewKey:
        """Make a key. A key cannot grant more than its holder has.

        With `models`, a `budget` or `limits` it bounds what is asked of models with it, and takes the scope `llm:use`.
        """
        tenant = body.tenant or principal.tenant
        check_grant(principal, tenant, frozenset(body.scopes))
        if body.sandbox is not None and not (await services.fleet.get(tenant, body.sandbox)).state.alive:
            raise InvalidInput(f"sandbox: {body.sandbox} has ended")
        key, secret = await keys.create(
            body.name, tenant, body.scopes, body.expires_at, terms=body.terms(), granted_by=principal
        )
        return NewKey(**dict(await said(key)), secret=secret)

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def list_keys(principal: KeyAdmin, tenant: str | None = None, sandbox: str | None = None) -> KeyList:
        """List the tenant's keys, revoked and expired ones too; with the scope `admin`, those of all tenants.

        The keys of sandboxes come and go with them: they are listed for the `sandbox` that is asked for.
        """
        return KeyList(items=[await said(key) for key in await keys.list(seen_by(principal, tenant), sandbox)])

    @router.get("/{key_id}", responses=documented(404), response_model_exclude_none=True)
    async def get_key(key_id: str, principal: KeyAdmin) -> KeySaid:
        """One key, without its secret, and what is left of its budget."""
        return await said(await keys.get(key_id, seen_by(principal)))

    @router.delete("/{key_id}", status_code=204, responses=documented(404))
    async def revoke_key(key_id: str, principal: KeyAdmin) -> None:
        """Stop a key from working, from now on."""
        await keys.revoke(key_id, seen_by(principal))

    return router

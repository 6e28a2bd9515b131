"""API keys: made, listed, revoked."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, Field

from paddock.api.access import KeyAdmin
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Asked, Moment, Said
from paddock.errors import NotFound
from paddock.model.keys import NAME, Key, Principal, Scope


class KeyBody(Asked):
    name: str = Field(min_length=1, max_length=100, examples=["laptop"])
    tenant: str | None = Field(default=None, pattern=NAME)
    """Another tenant than one's own takes the scope `admin`."""
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(default=[Scope.SANDBOXES_WRITE], min_length=1)
    expires_at: Moment | None = None


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

    @classmethod
    def of(cls, key: Key) -> KeySaid:
        return cls(**{**key.model_dump(), "scopes": sorted(key.scopes)})


class NewKey(KeySaid):
    secret: str
    """Shown here and never again."""


class KeyList(Said):
    items: list[KeySaid]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/keys", tags=["Keys"])
    keys = services.keys

    def seen_by(principal: Principal, tenant: str | None = None) -> str | None:
        return tenant if principal.allows(Scope.ADMIN) else principal.tenant

    @router.post("", status_code=201, responses=documented(), response_model_exclude_none=True)
    async def create_key(body: KeyBody, principal: KeyAdmin) -> NewKey:
        """Make a key. A key cannot grant more than its holder has."""
        key, secret = await keys.create(
            body.name, body.tenant or principal.tenant, body.scopes, body.expires_at, granted_by=principal
        )
        return NewKey(**KeySaid.of(key).model_dump(), secret=secret)

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def list_keys(principal: KeyAdmin, tenant: str | None = None) -> KeyList:
        """List the tenant's keys, revoked and expired ones too; with the scope `admin`, those of all tenants."""
        return KeyList(items=[KeySaid.of(key) for key in await keys.list(seen_by(principal, tenant))])

    @router.get("/{key_id}", responses=documented(404), response_model_exclude_none=True)
    async def get_key(key_id: str, principal: KeyAdmin) -> KeySaid:
        """One key, without its secret."""
        for key in await keys.list(seen_by(principal)):
            if key.id == key_id:
                return KeySaid.of(key)
        raise NotFound(f"There is no key {key_id}.")

    @router.delete("/{key_id}", status_code=204, responses=documented(404))
    async def revoke_key(key_id: str, principal: KeyAdmin) -> None:
        """Stop a key from working, from now on."""
        await keys.revoke(key_id, seen_by(principal))

    return router

"""Tenants, API keys and who a request comes from."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from paddock.errors import Forbidden
from paddock.model.sandbox import Frozen

DEFAULT_TENANT = "default"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


class Scope(StrEnum):
    """What a key may do within its tenant."""

    SANDBOXES_READ = "sandboxes:read"
    SANDBOXES_WRITE = "sandboxes:write"
    """Includes reading."""
    IMAGES_WRITE = "images:write"
    KEYS_ADMIN = "keys:admin"
    ADMIN = "admin"
    """Everything, in every tenant."""


class Tenant(Frozen):
    """Someone whose sandboxes, snapshots and keys nobody else sees."""

    name: str = Field(pattern=NAME)
    created_at: AwareDatetime


class Key(Frozen):
    """An API key, without its secret, which only its owner has."""

    id: str
    name: str = Field(min_length=1, max_length=100)
    tenant: str = Field(pattern=NAME)
    scopes: frozenset[Scope]
    prefix: str
    """How the secret begins, so that its owner recognises it."""
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    last_used_at: AwareDatetime | None = None


class Principal(Frozen):
    """Who a request comes from, and what it may do."""

    tenant: str
    key_id: str
    scopes: frozenset[Scope]

    def allows(self, scope: Scope) -> bool:
        """Whether the scope is held, or included in one that is."""
        if scope == Scope.SANDBOXES_READ and Scope.SANDBOXES_WRITE in self.scopes:
            return True
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the scope is held."""
        if not self.allows(scope):
            raise Forbidden(f"This key lacks the scope {scope}; use one that has it.")

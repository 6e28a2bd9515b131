"""Tenants, API keys, and the principal of a request."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, model_validator

from paddock.errors import Forbidden
from paddock.model.owners import TenantView
from paddock.model.sandbox import FrozenModel

DEFAULT_TENANT = "default"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,99}$"
"""Pattern of foreign ids, mail addresses among them."""
MODEL_PATTERN = r"^[^\s,]{1,200}$"
SESSION_KEY = "chat session "
"""Prefix of the names of chat sessions' keys; the session id follows."""
MAX_BUDGET = 10**15
"""Upper bound of budgets; a larger budget sets no bound."""


class Scope(StrEnum):
    """Permission of a key within its tenant."""

    SANDBOXES_READ = "sandboxes:read"
    SANDBOXES_WRITE = "sandboxes:write"
    """Includes reading."""
    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    """Includes reading."""
    SESSIONS_READ = "sessions:read"
    SESSIONS_WRITE = "sessions:write"
    """Chat with agents. Includes reading."""
    IMAGES_WRITE = "images:write"
    LLM_USE = "llm:use"
    """Send requests to models."""
    LLM_READ = "llm:read"
    """Read archived exchanges and usage."""
    MCP_USE = "mcp:use"
    """Use MCP servers through the gateway."""
    MCP_WRITE = "mcp:write"
    """Add, change and remove MCP servers. Includes using them."""
    METRICS_READ = "metrics:read"
    """Read the metrics of the server, which count all tenants."""
    KEYS_ADMIN = "keys:admin"
    TENANT_ALL = "tenant:all"
    """See and use private objects of the whole tenant, within the other scopes."""
    ADMIN = "admin"
    """Everything, in every tenant."""


_INCLUDED_IN = {
    Scope.SANDBOXES_READ: Scope.SANDBOXES_WRITE,
    Scope.RUNS_READ: Scope.RUNS_WRITE,
    Scope.SESSIONS_READ: Scope.SESSIONS_WRITE,
    Scope.MCP_USE: Scope.MCP_WRITE,
}


class Tenant(FrozenModel):
    """An isolated customer: its sandboxes, snapshots and keys are invisible to other tenants."""

    name: str = Field(pattern=NAME_PATTERN)
    created_at: AwareDatetime


class KeyBudget(FrozenModel):
    """Total model usage of a key; `None` sets no bound."""

    requests: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    tokens: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    """Tokens of prompts and answers."""
    cost: float | None = Field(default=None, gt=0, le=MAX_BUDGET, allow_inf_nan=False)
    """In US dollars."""


class KeyRateLimits(FrozenModel):
    """Model requests of a key at a time and per minute; `None` sets no bound."""

    concurrency: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    requests_per_minute: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    tokens_per_minute: int | None = Field(default=None, ge=1, le=MAX_BUDGET)


class ApiKeyTerms(FrozenModel):
    """Purpose of a key and its bounds on model usage."""

    sandbox: str | None = Field(default=None, pattern=LABEL_PATTERN)
    """The key works only inside this sandbox and expires with it."""
    run: str | None = Field(default=None, pattern=LABEL_PATTERN)
    session: str | None = Field(default=None, pattern=LABEL_PATTERN)
    user: str | None = Field(default=None, pattern=LABEL_PATTERN)
    models: tuple[Annotated[str, Field(pattern=MODEL_PATTERN)], ...] = Field(default=(), max_length=100)
    """Allowed model names, with `*` as wildcard; an empty list allows all."""
    budget: KeyBudget = KeyBudget()
    limits: KeyRateLimits = KeyRateLimits()

    @property
    def bounded(self) -> bool:
        """Return whether the key has any bound on models."""
        return bool(self.models) or self.budget != KeyBudget() or self.limits != KeyRateLimits()


class ApiKey(ApiKeyTerms):
    """An API key without its secret, which is not stored."""

    id: str
    name: str = Field(min_length=1, max_length=100)
    tenant: str = Field(pattern=NAME_PATTERN)
    scopes: frozenset[Scope]
    prefix: str
    """Beginning of the secret, for recognition."""
    owner: str | None = None
    """Owner of a key that the server created for a sandbox or session."""
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    last_used_at: AwareDatetime | None = None

    @property
    def subject(self) -> str:
        """Owner of objects created with this key: its user, or the key itself."""
        return self.owner or (f"user:{self.user}" if self.user else self.id)


class BrowserLogin(FrozenModel):
    """A signed-in browser."""

    digest: str
    """Digest of the secret in the cookie."""
    key_id: str
    created_at: AwareDatetime
    used_at: AwareDatetime


class Principal(FrozenModel):
    """Caller of a request, with its permissions."""

    tenant: str
    """A `TenantView`: queries with it leave out private objects of others."""
    key_id: str
    scopes: frozenset[Scope]
    name: str = ""
    """Name of the key, as others see it."""
    subject: str = ""
    """Owner of objects it creates; the key itself if empty."""
    login: str | None = None
    """Digest of the browser login, if the request came with a cookie instead of a key."""

    @model_validator(mode="after")
    def _bound_view(self) -> Principal:
        sees_all = bool(self.scopes & {Scope.TENANT_ALL, Scope.ADMIN})
        view = TenantView(self.tenant, self.subject or self.key_id, self.name, sees_all=sees_all)
        object.__setattr__(self, "tenant", view)
        object.__setattr__(self, "subject", view.subject)
        return self

    @classmethod
    def of(cls, key: ApiKey, login: str | None = None) -> Principal:
        """Return the principal of a key or of a login made with it."""
        return cls(tenant=key.tenant, key_id=key.id, scopes=key.scopes, name=key.name, subject=key.subject, login=login)

    def allows(self, scope: Scope) -> bool:
        """Return whether a held scope is or includes the given one."""
        return bool(self.scopes & {scope, _INCLUDED_IN.get(scope, scope), Scope.ADMIN})

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the scope is held."""
        if not self.allows(scope):
            raise Forbidden(f"This key lacks the scope {scope}; use one that has it.")

"""Tenants, API keys and who a request comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, model_validator

from paddock.errors import Forbidden
from paddock.model.owners import TenantView
from paddock.model.sandbox import Frozen

DEFAULT_TENANT = "default"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,99}$"
"""Ids of others, mail addresses among them."""
MODEL = r"^[^\s,]{1,200}$"
SESSION_KEY = "chat session "
"""How the names of the keys begin that chat sessions ask models with; the id of the session follows."""
MOST = 10**15
"""Larger bounds than this are none."""


class Scope(StrEnum):
    """What a key may do within its tenant."""

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
    """Ask models."""
    LLM_READ = "llm:read"
    """Read what was asked and answered."""
    KEYS_ADMIN = "keys:admin"
    TENANT_ALL = "tenant:all"
    """See and use what others of the tenant keep private, as far as the other scopes go."""
    ADMIN = "admin"
    """Everything, in every tenant."""


_INCLUDED_IN = {
    Scope.SANDBOXES_READ: Scope.SANDBOXES_WRITE,
    Scope.RUNS_READ: Scope.RUNS_WRITE,
    Scope.SESSIONS_READ: Scope.SESSIONS_WRITE,
}


class Tenant(Frozen):
    """Someone whose sandboxes, snapshots and keys nobody else sees."""

    name: str = Field(pattern=NAME)
    created_at: AwareDatetime


class Budget(Frozen):
    """How much a key may ask of models in all; `None` sets no bound."""

    requests: int | None = Field(default=None, ge=1, le=MOST)
    tokens: int | None = Field(default=None, ge=1, le=MOST)
    """Of prompts and answers."""
    cost: float | None = Field(default=None, gt=0, le=MOST, allow_inf_nan=False)
    """In US dollars."""


class Rates(Frozen):
    """How much a key may ask of models at once and per minute; `None` sets no bound."""

    concurrency: int | None = Field(default=None, ge=1, le=MOST)
    requests_per_minute: int | None = Field(default=None, ge=1, le=MOST)
    tokens_per_minute: int | None = Field(default=None, ge=1, le=MOST)


class Terms(Frozen):
    """Whom a key is for, and what it may ask of models."""

    sandbox: str | None = Field(default=None, pattern=LABEL)
    """It works only from within this sandbox, and ends with it."""
    run: str | None = Field(default=None, pattern=LABEL)
    session: str | None = Field(default=None, pattern=LABEL)
    user: str | None = Field(default=None, pattern=LABEL)
    models: tuple[Annotated[str, Field(pattern=MODEL)], ...] = Field(default=(), max_length=100)
    """Names of models, `*` standing for anything; none allows all."""
    budget: Budget = Budget()
    limits: Rates = Rates()

    @property
    def bounded(self) -> bool:
        """Whether it may ask less than everything."""
        return bool(self.models) or self.budget != Budget() or self.limits != Rates()


class Key(Terms):
    """An API key, without its secret, which only its owner has."""

    id: str
    name: str = Field(min_length=1, max_length=100)
    tenant: str = Field(pattern=NAME)
    scopes: frozenset[Scope]
    prefix: str
    """How the secret begins, so that its owner recognises it."""
    owner: str | None = None
    """Subject of a key that the server made for somebody's sandbox or session."""
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    last_used_at: AwareDatetime | None = None

    @property
    def subject(self) -> str:
        """Owner of what is made with this key: the user it is for, or the key itself."""
        return self.owner or (f"user:{self.user}" if self.user else self.id)


class Login(Frozen):
    """A browser that a key was shown to once, and which is let in since."""

    digest: str
    """Of the secret in its cookie."""
    key_id: str
    created_at: AwareDatetime
    used_at: AwareDatetime


class Principal(Frozen):
    """Who a request comes from, and what it may do."""

    tenant: str
    """A `TenantView`: whatever is asked for with it leaves out what others keep private."""
    key_id: str
    scopes: frozenset[Scope]
    name: str = ""
    """That of the key, for others to read."""
    subject: str = ""
    """Owner of what it makes; the key itself if not given."""
    login: str | None = None
    """The digest of the login it comes by, if it is a browser that shows no key."""

    @model_validator(mode="after")
    def _bound_view(self) -> Principal:
        sees_all = bool(self.scopes & {Scope.TENANT_ALL, Scope.ADMIN})
        view = TenantView(self.tenant, self.subject or self.key_id, self.name, sees_all=sees_all)
        object.__setattr__(self, "tenant", view)
        object.__setattr__(self, "subject", view.subject)
        return self

    @classmethod
    def of(cls, key: Key, login: str | None = None) -> Principal:
        """The principal that shows a key, or a login by it."""
        return cls(tenant=key.tenant, key_id=key.id, scopes=key.scopes, name=key.name, subject=key.subject, login=login)

    def allows(self, scope: Scope) -> bool:
        """Whether the scope is held, or included in one that is."""
        return bool(self.scopes & {scope, _INCLUDED_IN.get(scope, scope), Scope.ADMIN})

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the scope is held."""
        if not self.allows(scope):
            raise Forbidden(f"This key lacks the scope {scope}; use one that has it.")

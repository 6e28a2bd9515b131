"""Owners of sessions, runs and sandboxes, and which of a tenant's objects a principal may see."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict

from paddock.errors import Conflict, Forbidden


class Visibility(StrEnum):
    """Who may see and use an object."""

    PRIVATE = "private"
    """Its owner, and keys with the scope `tenant:all` or `admin`."""
    TENANT = "tenant"
    """Every key of the tenant, as far as its scopes go."""


class Owned(BaseModel):
    """The owner of an object and who else may see it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: str | None = None
    """Stable id of the user or the key that made it; `None` for objects older than owners."""
    created_by: str | None = None
    """Name of the key that made it."""
    visibility: Visibility = Visibility.TENANT

    @property
    def ownership(self) -> Owned:
        """Owner and visibility alone, for what belongs to the object."""
        return Owned(subject=self.subject, created_by=self.created_by, visibility=self.visibility)

    @property
    def audience(self) -> str | None:
        """The only subject that sees it, while it is private."""
        return self.subject if self.visibility is Visibility.PRIVATE else None


class TenantView(str):
    """A tenant's name together with the principal that asks.

    It passes through every layer as the tenant's name; queries read `subject` from it (`may_see`, `store.visible`).
    A plain tenant name is the server's own view, which has everything of the tenant in it.
    """

    subject: str | None
    """Owner of what is created through this view."""
    name: str | None
    """Name of the key that asks."""
    sees_all: bool

    def __new__(
        cls, tenant: str, subject: str | None = None, name: str | None = None, *, sees_all: bool = True
    ) -> Self:
        view = super().__new__(cls, tenant)
        view.subject, view.name, view.sees_all = subject, name, sees_all
        return view


def bounded_to(tenant: str | None) -> str | None:
    """The only subject whose private objects a view has in it, or `None` if it has all of them."""
    return tenant.subject or "" if isinstance(tenant, TenantView) and not tenant.sees_all else None


def may_see(view: str | None, tenant: str, subject: str | None, visibility: str) -> bool:
    """Whether an object is in a view. `None` is the server's view of all tenants."""
    if view is None:
        return True
    return view == tenant and (visibility != Visibility.PRIVATE or bounded_to(view) in (None, subject))


def owner_of_new(view: str, visibility: str) -> Owned:
    """Owner of an object that is created through a view; the server's own objects are the tenant's."""
    if not isinstance(view, TenantView) or view.subject is None:
        return Owned()
    return Owned(subject=view.subject, created_by=view.name or None, visibility=Visibility(visibility))


def subject_of(view: str) -> str | None:
    """Owner of what is created through a view."""
    return view.subject if isinstance(view, TenantView) else None


def check_may_share(view: str, owned: Owned) -> None:
    """Raise `Forbidden` unless a view may change who sees an object, `Conflict` for one without an owner."""
    if bounded_to(view) not in (None, owned.subject):
        raise Forbidden("Only its owner, or a key with the scope tenant:all, can share this or make it private.")
    if owned.subject is None:
        raise Conflict("This was made before owners were recorded, so it stays visible to the whole tenant.")


def request_key_of(view: str, key: str | None) -> str | None:
    """An idempotency key as it is stored: each owner has their own."""
    subject = subject_of(view)
    return key if key is None or subject is None else f"{subject} {key}"

"""Owners and visibility of sessions, runs and sandboxes."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict

from paddock.errors import Conflict, Forbidden


class Visibility(StrEnum):
    """Audience of an object."""

    PRIVATE = "private"
    """Its owner, and keys with the scope `tenant:all` or `admin`."""
    TENANT = "tenant"
    """Every key of the tenant, as far as its scopes go."""


class Ownership(BaseModel):
    """Owner and visibility of an object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: str | None = None
    """Stable id of the user or the key that made it; `None` for objects older than owners."""
    created_by: str | None = None
    """Name of the key that made it."""
    visibility: Visibility = Visibility.TENANT

    @property
    def ownership(self) -> Ownership:
        """Owner and visibility alone, for parts of the object."""
        return Ownership(subject=self.subject, created_by=self.created_by, visibility=self.visibility)

    @property
    def audience(self) -> str | None:
        """The only subject that sees it, while it is private."""
        return self.subject if self.visibility is Visibility.PRIVATE else None


class TenantView(str):
    """A tenant's name together with the calling principal.

    It passes through every layer as the tenant's name; queries read `subject` from it (`is_visible_to_view`,
    `store.visibility`). A plain tenant name is the server's own view, which contains all objects of the tenant.
    """

    subject: str | None
    """Owner of objects created through this view."""
    name: str | None
    """Name of the caller's key."""
    sees_all: bool

    def __new__(
        cls, tenant: str, subject: str | None = None, name: str | None = None, *, sees_all: bool = True
    ) -> Self:
        view = super().__new__(cls, tenant)
        view.subject, view.name, view.sees_all = subject, name, sees_all
        return view


def private_subject_of_view(tenant: str | None) -> str | None:
    """Return the subject that limits a view to its own private objects; `None` for an unlimited view."""
    return tenant.subject or "" if isinstance(tenant, TenantView) and not tenant.sees_all else None


def is_visible_to_view(view: str | None, tenant: str, subject: str | None, visibility: str) -> bool:
    """Return whether a view contains an object. `None` is the server's view of all tenants."""
    if view is None:
        return True
    return view == tenant and (visibility != Visibility.PRIVATE or private_subject_of_view(view) in (None, subject))


def ownership_of_new_object(view: str, visibility: str) -> Ownership:
    """Return the owner of an object created through a view; the server's own objects belong to the tenant."""
    if not isinstance(view, TenantView) or view.subject is None:
        return Ownership()
    return Ownership(subject=view.subject, created_by=view.name or None, visibility=Visibility(visibility))


def owner_subject_of_view(view: str) -> str | None:
    """Return the owner of objects created through a view."""
    return view.subject if isinstance(view, TenantView) else None


def check_may_share(view: str, owned: Ownership) -> None:
    """Check that a view may change the visibility of an object.

    Raises `Forbidden` for others' objects and `Conflict` for objects without an owner.
    """
    if private_subject_of_view(view) not in (None, owned.subject):
        raise Forbidden("Only its owner, or a key with the scope tenant:all, can share this or make it private.")
    if owned.subject is None:
        raise Conflict("This was made before owners were recorded, so it stays visible to the whole tenant.")


def owner_scoped_request_key(view: str, key: str | None) -> str | None:
    """Return an idempotency key as stored: prefixed with its owner."""
    subject = owner_subject_of_view(view)
    return key if key is None or subject is None else f"{subject} {key}"

"""Conditions that keep the private objects of others out of queries."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_, or_, select

from paddock.model.owners import Visibility, bounded_to
from paddock.store.tables import exchanges, runs, sandboxes, sessions


def visible(table: Table, view: str | None) -> list[ColumnElement[bool]]:
    """Rows of a table with `tenant`, `subject` and `visibility` that are in a view; `None` leaves out nothing."""
    if view is None:
        return []
    conditions: list[ColumnElement[bool]] = [table.c.tenant == str(view)]
    subject = bounded_to(view)
    if subject is not None:
        conditions.append(or_(table.c.subject == subject, table.c.visibility != Visibility.PRIVATE))
    return conditions


def visible_exchanges(view: str | None) -> list[ColumnElement[bool]]:
    """Exchanges of the view's subject, of older keys without an owner, and of shared sessions, runs and sandboxes."""
    if view is None:
        return []
    conditions: list[ColumnElement[bool]] = [exchanges.c.tenant == str(view)]
    subject = bounded_to(view)
    if subject is not None:
        shared = [
            exchanges.c[name].in_(
                select(table.c.id).where(table.c.tenant == str(view), table.c.visibility != Visibility.PRIVATE)
            )
            for name, table in (("session", sessions), ("run", runs), ("sandbox", sandboxes))
        ]
        conditions.append(or_(exchanges.c.subject.is_(None), exchanges.c.subject == subject, *shared))
    return conditions


def same_request(table: Table, tenant: str, subject: str | None, stored: str) -> list[ColumnElement[bool]]:
    """Rows that an earlier request with this stored key made; keys of older rows do not name the owner."""
    same = table.c.request_key == stored
    if subject is not None and stored.startswith(f"{subject} "):
        older = and_(table.c.request_key == stored.removeprefix(f"{subject} "), table.c.subject.is_(None))
        same = or_(same, older)
    return [table.c.tenant == str(tenant), same]

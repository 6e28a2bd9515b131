"""Query conditions that exclude private objects of others."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_, or_, select

from paddock.model.owners import Visibility, private_subject_of_view
from paddock.store.tables import exchanges, runs, sandboxes, sessions


def visible_row_conditions(table: Table, view: str | None) -> list[ColumnElement[bool]]:
    """Return conditions on `tenant`, `subject` and `visibility` for a view; none for `None`."""
    if view is None:
        return []
    conditions: list[ColumnElement[bool]] = [table.c.tenant == str(view)]
    subject = private_subject_of_view(view)
    if subject is not None:
        conditions.append(or_(table.c.subject == subject, table.c.visibility != Visibility.PRIVATE))
    return conditions


def visible_exchange_conditions(view: str | None) -> list[ColumnElement[bool]]:
    """Return conditions for exchanges of the view's subject, of keys without an owner, and of shared objects."""
    if view is None:
        return []
    conditions: list[ColumnElement[bool]] = [exchanges.c.tenant == str(view)]
    subject = private_subject_of_view(view)
    if subject is not None:
        shared = [
            exchanges.c[name].in_(
                select(table.c.id).where(table.c.tenant == str(view), table.c.visibility != Visibility.PRIVATE)
            )
            for name, table in (("session", sessions), ("run", runs), ("sandbox", sandboxes))
        ]
        conditions.append(or_(exchanges.c.subject.is_(None), exchanges.c.subject == subject, *shared))
    return conditions


def same_request_conditions(table: Table, tenant: str, subject: str | None, stored: str) -> list[ColumnElement[bool]]:
    """Return conditions for rows created with a request key; older rows do not name the owner."""
    same = table.c.request_key == stored
    if subject is not None and stored.startswith(f"{subject} "):
        older = and_(table.c.request_key == stored.removeprefix(f"{subject} "), table.c.subject.is_(None))
        same = or_(same, older)
    return [table.c.tenant == str(tenant), same]

"""Named queries about API keys and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, RowMapping, and_, delete, func, insert, not_, or_, select, update

from paddock.errors import NotFound
from paddock.model.keys import SESSION_KEY, Key, Tenant
from paddock.store.database import Store
from paddock.store.rows import to_model, to_row
from paddock.store.tables import keys, tenants

# Persons may put a session's id on keys of their own; the name is what only the server gives.
_of_session = and_(keys.c.session.is_not(None), keys.c.name == SESSION_KEY + keys.c.session)
_of_nobody_else = and_(keys.c.sandbox.is_(None), or_(keys.c.session.is_(None), not_(_of_session)))


class KeyStore:
    """API keys by the digest of their secrets, and the tenants they belong to."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def insert(self, key: Key, digest: str) -> Key:
        """Keep a new key, and its tenant if it is the first of it."""

        def work(connection: Connection) -> Key:
            if not connection.execute(select(tenants.c.name).where(tenants.c.name == key.tenant)).first():
                connection.execute(insert(tenants), to_row(Tenant(name=key.tenant, created_at=key.created_at)))
            connection.execute(insert(keys), to_row(key) | {"digest": digest})
            return key

        # A sandbox that is starting is on disk only once it runs, and with it the key that was made for it before.
        return await self._store.write(work, flush=key.sandbox is None)

    async def by_prefix(self, prefix: str) -> Sequence[tuple[Key, str]]:
        """Keys whose secrets begin so, each with its digest."""
        statement = select(keys).where(keys.c.prefix == prefix)

        def work(connection: Connection) -> Sequence[tuple[Key, str]]:
            return [(_key(row), row["digest"]) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def get(self, key_id: str, tenant: str | None = None) -> Key:
        """Raises `NotFound`, also for what belongs to another tenant."""
        return await self._store.read(lambda connection: _known(connection, key_id, tenant))

    async def list(self, tenant: str | None = None, sandbox: str | None = None) -> Sequence[Key]:
        """Of one tenant, or of all, oldest first: those of one sandbox, or those of no sandbox and no chat session."""
        statement = select(keys).order_by(keys.c.created_at, keys.c.id)
        if tenant is not None:
            statement = statement.where(keys.c.tenant == tenant)
        statement = statement.where(_of_nobody_else if sandbox is None else keys.c.sandbox == sandbox)

        def work(connection: Connection) -> Sequence[Key]:
            return [_key(row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def count_usable(self, now: datetime) -> int:
        """How many are neither revoked nor expired, those of sandboxes and chat sessions left out."""
        usable = keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
        statement = select(func.count()).select_from(keys).where(_of_nobody_else, *usable)
        return await self._store.read(lambda connection: connection.execute(statement).scalar_one())

    async def revoke(self, key_id: str, at: datetime, tenant: str | None = None) -> Key:
        """Mark a key as revoked; the first time counts. Raises `NotFound`."""

        def work(connection: Connection) -> Key:
            _known(connection, key_id, tenant)
            connection.execute(
                update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None)).values(revoked_at=at)
            )
            return _known(connection, key_id, tenant)

        return await self._store.write(work)

    async def revoke_for_sandbox(self, sandbox: str, at: datetime) -> int:
        """Mark all keys of a sandbox as revoked, and say how many were not yet."""
        statement = update(keys).where(keys.c.sandbox == sandbox, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def revoke_for_sessions(self, at: datetime) -> int:
        """Mark all keys that chat sessions ask with as revoked, and say how many were not yet."""
        statement = update(keys).where(_of_session, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def prolong_for_sandbox(self, sandbox: str, expires_at: datetime) -> int:
        """Let all keys of a sandbox that are not revoked expire at another time, and say how many there are."""
        current = update(keys).where(keys.c.sandbox == sandbox, keys.c.revoked_at.is_(None))
        statement = current.values(expires_at=expires_at)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def sandboxes(self) -> Sequence[str]:
        """Sandboxes that have a key which is not revoked."""
        statement = select(keys.c.sandbox).distinct().where(keys.c.sandbox.is_not(None), keys.c.revoked_at.is_(None))
        return await self._store.read(lambda connection: list(connection.execute(statement).scalars()))

    async def forget_sandboxes(self, before: datetime) -> int:
        """Forget keys of sandboxes and chat sessions that were revoked before a moment, and say how many."""
        statement = delete(keys).where(or_(keys.c.sandbox.is_not(None), _of_session), keys.c.revoked_at < before)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def used(self, key_id: str, at: datetime) -> None:
        """Note when a key was last used."""
        statement = update(keys).where(keys.c.id == key_id).values(last_used_at=at)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def tenants(self) -> Sequence[Tenant]:
        """All tenants, by name."""
        statement = select(tenants).order_by(tenants.c.name)

        def work(connection: Connection) -> Sequence[Tenant]:
            return [to_model(Tenant, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)


def _key(row: RowMapping) -> Key:
    return to_model(Key, {name: value for name, value in row.items() if name != "digest"})


def _known(connection: Connection, key_id: str, tenant: str | None) -> Key:
    row = connection.execute(select(keys).where(keys.c.id == key_id)).mappings().first()
    if not row or tenant not in (None, row["tenant"]):
        raise NotFound(f"There is no key {key_id}.")
    return _key(row)

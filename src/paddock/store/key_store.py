"""Named queries about API keys and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, RowMapping, and_, delete, func, insert, not_, or_, select, update

from paddock.errors import NotFound
from paddock.model.keys import SESSION_KEY, ApiKey, Tenant
from paddock.store.database import Store
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import keys, tenants

# Persons may put a session's id on keys of their own; the name is what only the server gives.
_of_session = and_(keys.c.session.is_not(None), keys.c.name == SESSION_KEY + keys.c.session)
_user_owned = and_(keys.c.sandbox.is_(None), or_(keys.c.session.is_(None), not_(_of_session)))


class ApiKeyStore:
    """API keys by the digest of their secrets, and the tenants they belong to."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def insert(self, key: ApiKey, digest: str) -> ApiKey:
        """Insert a key, and its tenant if it is new."""

        def work(connection: Connection) -> ApiKey:
            if not connection.execute(select(tenants.c.name).where(tenants.c.name == key.tenant)).first():
                connection.execute(insert(tenants), model_to_row(Tenant(name=key.tenant, created_at=key.created_at)))
            connection.execute(insert(keys), model_to_row(key) | {"digest": digest})
            return key

        # A starting sandbox is flushed only once it runs, together with its key.
        return await self._store.write(work, flush=key.sandbox is None)

    async def find_by_prefix(self, prefix: str) -> Sequence[tuple[ApiKey, str]]:
        """Return keys by prefix, with digests."""
        statement = select(keys).where(keys.c.prefix == prefix)

        def work(connection: Connection) -> Sequence[tuple[ApiKey, str]]:
            return [(_key(row), row["digest"]) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def get(self, key_id: str, tenant: str | None = None) -> ApiKey:
        """Return the object. Raises `NotFound`, also for another tenant's."""
        return await self._store.read(lambda connection: _known(connection, key_id, tenant))

    async def list(self, tenant: str | None = None, sandbox: str | None = None) -> Sequence[ApiKey]:
        """Return keys of a tenant or all, oldest first: of one sandbox, or of no sandbox and no session."""
        statement = select(keys).order_by(keys.c.created_at, keys.c.id)
        if tenant is not None:
            statement = statement.where(keys.c.tenant == tenant)
        statement = statement.where(_user_owned if sandbox is None else keys.c.sandbox == sandbox)

        def work(connection: Connection) -> Sequence[ApiKey]:
            return [_key(row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def count_usable(self, now: datetime) -> int:
        """Count active keys, without keys of sandboxes and chat sessions."""
        usable = keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
        statement = select(func.count()).select_from(keys).where(_user_owned, *usable)
        return await self._store.read(lambda connection: connection.execute(statement).scalar_one())

    async def revoke(self, key_id: str, at: datetime, tenant: str | None = None) -> ApiKey:
        """Mark a key as revoked; the first time counts. Raises `NotFound`."""

        def work(connection: Connection) -> ApiKey:
            _known(connection, key_id, tenant)
            connection.execute(
                update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None)).values(revoked_at=at)
            )
            return _known(connection, key_id, tenant)

        return await self._store.write(work)

    async def revoke_for_sandbox(self, sandbox: str, at: datetime) -> int:
        """Revoke all keys of a sandbox; return how many were active."""
        statement = update(keys).where(keys.c.sandbox == sandbox, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def revoke_for_sessions(self, at: datetime) -> int:
        """Revoke all keys of chat sessions; return how many were active."""
        statement = update(keys).where(_of_session, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def prolong_for_sandbox(self, sandbox: str, expires_at: datetime) -> int:
        """Change the expiry of a sandbox's active keys; return their number."""
        current = update(keys).where(keys.c.sandbox == sandbox, keys.c.revoked_at.is_(None))
        statement = current.values(expires_at=expires_at)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def sandboxes(self) -> Sequence[str]:
        """Return sandboxes with an active key."""
        statement = select(keys.c.sandbox).distinct().where(keys.c.sandbox.is_not(None), keys.c.revoked_at.is_(None))
        return await self._store.read(lambda connection: list(connection.execute(statement).scalars()))

    async def delete_revoked_of_sandboxes(self, before: datetime) -> int:
        """Delete keys of sandboxes and chat sessions revoked before a time; return their number."""
        statement = delete(keys).where(or_(keys.c.sandbox.is_not(None), _of_session), keys.c.revoked_at < before)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def record_use(self, key_id: str, at: datetime) -> None:
        """Note when a key was last used."""
        statement = update(keys).where(keys.c.id == key_id).values(last_used_at=at)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def tenants(self) -> Sequence[Tenant]:
        """Return all tenants, by name."""
        statement = select(tenants).order_by(tenants.c.name)

        def work(connection: Connection) -> Sequence[Tenant]:
            return [row_to_model(Tenant, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)


def _key(row: RowMapping) -> ApiKey:
    return row_to_model(ApiKey, {name: value for name, value in row.items() if name != "digest"})


def _known(connection: Connection, key_id: str, tenant: str | None) -> ApiKey:
    row = connection.execute(select(keys).where(keys.c.id == key_id)).mappings().first()
    if not row or tenant not in (None, row["tenant"]):
        raise NotFound(f"There is no key {key_id}.")
    return _key(row)

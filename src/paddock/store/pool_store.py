"""Named queries about pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from paddock.errors import Conflict, PoolNotFound
from paddock.model.sandbox import SandboxPool, SandboxState
from paddock.store.database import Store
from paddock.store.row_mapping import fields_to_columns, model_to_row, row_to_model
from paddock.store.tables import pools, sandboxes


class PoolStore:
    """Declared pools. Names are unique per tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def insert(self, pool: SandboxPool) -> SandboxPool:
        """Keep a new pool. Raises `Conflict` if the tenant has one of that name."""

        def work(connection: Connection) -> SandboxPool:
            if _find(connection, pool.tenant, pool.name):
                raise Conflict(f"There is a pool {pool.name} already.")
            connection.execute(insert(pools), model_to_row(pool))
            return pool

        return await self._store.write(work)

    async def get(self, tenant: str, name: str) -> SandboxPool:
        """Raises `PoolNotFound`."""
        return await self._store.read(lambda connection: _known(connection, tenant, name))

    async def list(self, tenant: str | None = None) -> Sequence[SandboxPool]:
        """Return the pools of one tenant, or of all tenants, by name."""
        statement = select(pools).order_by(pools.c.name, pools.c.tenant)
        if tenant is not None:
            statement = statement.where(pools.c.tenant == tenant)

        def work(connection: Connection) -> Sequence[SandboxPool]:
            return [row_to_model(SandboxPool, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def allocated(self, tenant: str) -> Mapping[str, int]:
        """Count the living sandboxes of a tenant that came from pools, by pool."""
        alive = [state for state in SandboxState if state.alive]
        statement = (
            select(sandboxes.c.pool, func.count().label("allocated"))
            .where(sandboxes.c.tenant == tenant, sandboxes.c.state.in_(alive), sandboxes.c.pool.is_not(None))
            .group_by(sandboxes.c.pool)
        )

        def work(connection: Connection) -> Mapping[str, int]:
            return {row.pool: row.allocated for row in connection.execute(statement)}

        return await self._store.read(work)

    async def update(self, tenant: str, name: str, **fields: Any) -> SandboxPool:
        """Change fields of a pool. Raises `PoolNotFound`."""
        values = fields_to_columns(pools, fields)

        def work(connection: Connection) -> SandboxPool:
            connection.execute(update(pools).where(pools.c.tenant == tenant, pools.c.name == name).values(values))
            return _known(connection, tenant, name)

        return await self._store.write(work)

    async def delete(self, tenant: str, name: str) -> None:
        """Delete a pool. Raises `PoolNotFound`."""

        def work(connection: Connection) -> None:
            _known(connection, tenant, name)
            connection.execute(delete(pools).where(pools.c.tenant == tenant, pools.c.name == name))

        await self._store.write(work)


def _find(connection: Connection, tenant: str, name: str) -> SandboxPool | None:
    row = connection.execute(select(pools).where(pools.c.tenant == tenant, pools.c.name == name)).mappings().first()
    return row_to_model(SandboxPool, row) if row else None


def _known(connection: Connection, tenant: str, name: str) -> SandboxPool:
    pool = _find(connection, tenant, name)
    if not pool:
        raise PoolNotFound(f"There is no pool {name}.")
    return pool

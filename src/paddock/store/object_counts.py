"""Object counts for monitoring."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, func, select

from paddock.store.database import Store
from paddock.store.tables import approvals, runs, sandboxes, sessions

_COUNTED = {"sandboxes": sandboxes, "runs": runs, "sessions": sessions, "approvals": approvals}


class ObjectCounts:
    """Counts of rows by state, over all tenants."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by_state(self) -> Mapping[str, Mapping[str, int]]:
        """Return counts by state of `sandboxes`, `runs`, `sessions` and `approvals`."""

        def work(connection: Connection) -> Mapping[str, Mapping[str, int]]:
            found: dict[str, dict[str, int]] = {}
            for name, table in _COUNTED.items():
                statement = select(table.c.state, func.count()).group_by(table.c.state)
                found[name] = {str(state): count for state, count in connection.execute(statement)}
            return found

        return await self._store.read(work)

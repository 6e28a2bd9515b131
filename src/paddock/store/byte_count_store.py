"""Named queries about bytes that sandboxes and tenants have transferred."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from paddock.model.network import ByteCount, ByteCountScope
from paddock.store.database import Store
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import network_byte_counts


class ByteCountStore:
    """Byte counts by sandbox and tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, scope: ByteCountScope, owner: str) -> ByteCount | None:
        statement = select(network_byte_counts).where(
            network_byte_counts.c.scope == scope, network_byte_counts.c.owner == owner
        )

        def work(connection: Connection) -> ByteCount | None:
            row = connection.execute(statement).mappings().first()
            return None if row is None else row_to_model(ByteCount, row)

        return await self._store.read(work)

    async def replace(self, counts: Sequence[ByteCount], ended: datetime) -> None:
        """Store counts in place of earlier ones; delete counts of windows that started before `ended`."""
        rows = [model_to_row(each) for each in counts]

        def work(connection: Connection) -> None:
            if rows:
                connection.execute(insert(network_byte_counts).prefix_with("OR REPLACE"), rows)
            connection.execute(delete(network_byte_counts).where(network_byte_counts.c.started_at < ended))

        # A killed server loses nothing without a flush; a power failure may lose the last counts.
        await self._store.write(work, flush=False)

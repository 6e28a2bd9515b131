"""Named queries about snapshots."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from paddock.errors import Conflict, InvalidInput, SnapshotNotFound
from paddock.model.sandbox import SandboxSnapshot, SnapshotState
from paddock.store.database import Store
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import snapshots
from paddock.store.visibility import visible_row_conditions


class SnapshotStore:
    """Snapshots. Methods with a tenant see only that tenant's; `None` sees all."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def insert(self, snapshot: SandboxSnapshot) -> SandboxSnapshot:
        """Insert a new snapshot. Raises `Conflict` if the id is taken."""

        def work(connection: Connection) -> SandboxSnapshot:
            connection.execute(insert(snapshots), model_to_row(snapshot))
            return snapshot

        return await self._store.write(work)

    async def get(self, snapshot_id: str, tenant: str | None = None) -> SandboxSnapshot:
        """Return a snapshot. Raises `SnapshotNotFound`, also for another tenant's."""
        return await self._store.read(lambda connection: _known(connection, snapshot_id, tenant))

    async def list(
        self,
        tenant: str | None = None,
        *,
        sandbox_id: str | None = None,
        states: Collection[SnapshotState] | None = None,
        page: int = 1,
        page_size: int = 100,
    ) -> tuple[Sequence[SandboxSnapshot], int]:
        """Return a page of matching rows, newest first, and the total."""
        if page < 1 or page_size < 1:
            raise InvalidInput("Pages are counted from 1 and hold at least one snapshot.")
        conditions = visible_row_conditions(snapshots, tenant)
        if sandbox_id is not None:
            conditions.append(snapshots.c.sandbox_id == sandbox_id)
        if states is not None:
            conditions.append(snapshots.c.state.in_(list(states)))

        def work(connection: Connection) -> tuple[Sequence[SandboxSnapshot], int]:
            total = connection.execute(select(func.count()).select_from(snapshots).where(*conditions)).scalar_one()
            rows = connection.execute(
                select(snapshots)
                .where(*conditions)
                .order_by(snapshots.c.created_at.desc(), snapshots.c.id.desc())
                .limit(page_size)
                .offset((page - 1) * page_size)
            )
            return [row_to_model(SandboxSnapshot, row) for row in rows.mappings()], total

        return await self._store.read(work)

    async def transition(
        self,
        snapshot_id: str,
        from_states: Collection[SnapshotState],
        to_state: SnapshotState,
        reason: str | None = None,
        message: str | None = None,
    ) -> SandboxSnapshot:
        """Change the state if the snapshot is in one of `from_states`. Raises `Conflict`, `SnapshotNotFound`."""
        values = {"state": to_state, "reason": reason, "message": message, "changed_at": datetime.now(UTC)}

        def work(connection: Connection) -> SandboxSnapshot:
            changed = connection.execute(
                update(snapshots)
                .where(snapshots.c.id == snapshot_id, snapshots.c.state.in_(list(from_states)))
                .values(values)
            )
            snapshot = _known(connection, snapshot_id, None)
            if not changed.rowcount:
                raise Conflict(f"Snapshot {snapshot_id} is {snapshot.state}, so it cannot become {to_state}.")
            return snapshot

        return await self._store.write(work)

    async def delete(self, snapshot_id: str) -> None:
        """Delete a snapshot. Idempotent."""
        statement = delete(snapshots).where(snapshots.c.id == snapshot_id)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)


def _known(connection: Connection, snapshot_id: str, tenant: str | None) -> SandboxSnapshot:
    conditions = (snapshots.c.id == snapshot_id, *visible_row_conditions(snapshots, tenant))
    row = connection.execute(select(snapshots).where(*conditions)).mappings().first()
    if not row:
        raise SnapshotNotFound(f"There is no snapshot {snapshot_id}.")
    return row_to_model(SandboxSnapshot, row)

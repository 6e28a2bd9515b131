"""Named queries about recorded network connections of sandboxes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Tuple, case, delete, func, insert, literal, select, tuple_

from paddock.model.network import ConnectionRecord
from paddock.model.sandbox import SandboxState
from paddock.store.database import Store, Work
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import UtcTimestamp, network_connections, sandboxes

_COLUMNS = [network_connections.c[name] for name in ConnectionRecord.model_fields]
_POSITION = tuple_(network_connections.c.started_at, network_connections.c.id)
_DELETE_CHUNK = 1000
_ALIVE = [state for state in SandboxState if state.alive]


class ConnectionPosition(NamedTuple):
    """Position of a connection in the order of start times."""

    started_at: datetime
    id: str


class TargetTotals(NamedTuple):
    """Sums of the connections to one target."""

    host: str
    port: int
    connections: int
    denied: int
    sent: int
    received: int


class ConnectionStore:
    """Connections that ended or were refused. Callers check that the sandbox is visible."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def insert_work(records: Sequence[ConnectionRecord]) -> Work[frozenset[str]]:
        """Return work that inserts records and returns the ids of sandboxes that have not ended.

        Records that are stored already are left out, so the work can be repeated.
        """
        rows = [model_to_row(record) for record in records]
        ids = list({record.sandbox for record in records})

        def work(connection: Connection) -> frozenset[str]:
            connection.execute(insert(network_connections).prefix_with("OR IGNORE"), rows)
            alive = select(sandboxes.c.id).where(sandboxes.c.id.in_(ids), sandboxes.c.state.in_(_ALIVE))
            return frozenset(connection.execute(alive).scalars())

        return work

    async def list_of_sandbox(
        self,
        sandbox_id: str,
        *,
        allowed: bool | None = None,
        before: ConnectionPosition | None = None,
        limit: int = 100,
    ) -> Sequence[ConnectionRecord]:
        """Return connections of a sandbox, the one that started last first."""
        conditions = [network_connections.c.sandbox == sandbox_id]
        if allowed is not None:
            conditions.append(network_connections.c.allowed == allowed)
        if before is not None:
            conditions.append(_position_value(before) > _POSITION)
        statement = (
            select(*_COLUMNS)
            .where(*conditions)
            .order_by(network_connections.c.started_at.desc(), network_connections.c.id.desc())
            .limit(limit)
        )
        return await self._records(statement)

    async def list_in_order(
        self, sandbox_id: str, *, after: ConnectionPosition | None = None, limit: int = 1000
    ) -> Sequence[ConnectionRecord]:
        """Return connections of a sandbox in the order of their start."""
        conditions = [network_connections.c.sandbox == sandbox_id]
        if after is not None:
            conditions.append(_position_value(after) < _POSITION)
        statement = (
            select(*_COLUMNS)
            .where(*conditions)
            .order_by(network_connections.c.started_at, network_connections.c.id)
            .limit(limit)
        )
        return await self._records(statement)

    async def find(self, sandbox_id: str, connection_id: str) -> ConnectionRecord | None:
        """Return one connection of a sandbox."""
        found = await self._records(
            select(*_COLUMNS).where(
                network_connections.c.id == connection_id, network_connections.c.sandbox == sandbox_id
            )
        )
        return found[0] if found else None

    async def totals(self, sandbox_id: str, limit: int = 1000) -> Sequence[TargetTotals]:
        """Return sums by target, the most used targets first."""
        table = network_connections
        host: ColumnElement[str] = func.coalesce(table.c.name, table.c.address, "?")
        count = func.count()
        statement = (
            select(
                host,
                table.c.port,
                count,
                func.sum(case((table.c.allowed, 0), else_=1)),
                func.sum(table.c.sent),
                func.sum(table.c.received),
            )
            .where(table.c.sandbox == sandbox_id)
            .group_by(host, table.c.port)
            .order_by(count.desc(), host, table.c.port)
            .limit(limit)
        )
        return await self._store.read(lambda connection: [TargetTotals(*row) for row in connection.execute(statement)])

    async def prune(self, before: datetime) -> int:
        """Delete connections that started before a time; return their number."""
        return await self._delete(network_connections.c.started_at < before)

    async def trim(self, sandbox_id: str, keep: int) -> int:
        """Delete all but about the newest `keep` connections of a sandbox; return the number of deleted ones."""
        table = network_connections
        oldest_kept = (
            select(table.c.started_at)
            .where(table.c.sandbox == sandbox_id)
            .order_by(table.c.started_at.desc(), table.c.id.desc())
            .offset(keep - 1)
            .limit(1)
        )
        bound = await self._store.read(lambda connection: connection.execute(oldest_kept).scalar())
        if bound is None:
            return 0
        return await self._delete(table.c.sandbox == sandbox_id, table.c.started_at < bound)

    async def _delete(self, *conditions: ColumnElement[bool]) -> int:
        """Delete in small transactions, so that other writes do not wait for long."""
        table, deleted = network_connections, 0
        chunk = select(table.c.number).where(*conditions).limit(_DELETE_CHUNK)
        statement = delete(table).where(table.c.number.in_(chunk))
        while count := await self._store.write(lambda connection: connection.execute(statement).rowcount, flush=False):
            deleted += count
        return deleted

    async def _records(self, statement: Select[Any]) -> Sequence[ConnectionRecord]:
        def work(connection: Connection) -> Sequence[ConnectionRecord]:
            rows = connection.execute(statement).mappings()
            return [row_to_model(ConnectionRecord, row) for row in rows]

        return await self._store.read(work)


def _position_value(position: ConnectionPosition) -> Tuple:
    return tuple_(literal(position.started_at, UtcTimestamp), literal(position.id))

"""Named queries about records of MCP calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from paddock.model.mcp_records import McpCallOutcome, McpCallRecord
from paddock.model.owners import private_subject_of_view
from paddock.model.runs import RunState
from paddock.model.sandbox import SandboxState
from paddock.store.database import Store, Work
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import mcp_calls, runs, sandboxes

_COLUMNS = [mcp_calls.c[name] for name in McpCallRecord.model_fields]
_DELETE_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCallFilters:
    """Conditions of a list of calls; None does not restrict."""

    server: str | None = None
    target: str | None = None
    outcome: McpCallOutcome | None = None
    run: str | None = None
    session: str | None = None
    sandbox: str | None = None
    caller: str | None = None
    since: datetime | None = None


class OpenStreams(NamedTuple):
    """Sandboxes and runs that have not ended, each with its tenant."""

    sandboxes: frozenset[tuple[str, str]]
    runs: frozenset[tuple[str, str]]


class McpCallStore:
    """Records of calls, the newest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def insert_work(records: Sequence[McpCallRecord]) -> Work[OpenStreams]:
        """Return work that inserts records, and returns their sandboxes and runs that have not ended."""
        rows = [model_to_row(record) for record in records]
        sandbox_ids = list({record.sandbox for record in records if record.sandbox})
        run_ids = list({record.run for record in records if record.run})
        alive = [state for state in SandboxState if state.alive]
        active = [state for state in RunState if not state.ended]

        def work(connection: Connection) -> OpenStreams:
            connection.execute(insert(mcp_calls).prefix_with("OR IGNORE"), rows)
            found_sandboxes = select(sandboxes.c.id, sandboxes.c.tenant).where(
                sandboxes.c.id.in_(sandbox_ids), sandboxes.c.state.in_(alive)
            )
            found_runs = select(runs.c.id, runs.c.tenant).where(runs.c.id.in_(run_ids), runs.c.state.in_(active))
            return OpenStreams(
                frozenset((row[0], row[1]) for row in connection.execute(found_sandboxes))
                if sandbox_ids
                else frozenset(),
                frozenset((row[0], row[1]) for row in connection.execute(found_runs)) if run_ids else frozenset(),
            )

        return work

    async def insert(self, records: Sequence[McpCallRecord]) -> None:
        """Insert the records that are not stored yet."""
        await self._store.write(self.insert_work(records))

    async def list_calls(
        self,
        tenant: str,
        filters: McpCallFilters,
        *,
        before: str | None = None,
        limit: int = 100,
        of_visible_object: bool = False,
    ) -> Sequence[McpCallRecord]:
        """Return calls that started last first.

        A view that does not see the whole tenant sees its own calls, or with `of_visible_object` all those of a run,
        session or sandbox of which the caller has checked that it is visible.
        """
        table = mcp_calls
        conditions = [table.c.tenant == str(tenant)]
        subject = private_subject_of_view(tenant)
        if subject is not None and not of_visible_object:
            conditions.append(table.c.caller == subject)
        for name in ("server", "target", "outcome", "run", "session", "sandbox", "caller"):
            if (value := getattr(filters, name)) is not None:
                conditions.append(table.c[name] == value)
        if filters.since is not None:
            conditions.append(table.c.started_at >= filters.since)
        if before is not None:
            position = select(table.c.number).where(table.c.id == before).scalar_subquery()
            conditions.append(table.c.number < position)
        statement = select(*_COLUMNS).where(*conditions).order_by(table.c.number.desc()).limit(limit)

        def work(connection: Connection) -> Sequence[McpCallRecord]:
            return [row_to_model(McpCallRecord, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def list_of_run(
        self, tenant: str, run: str, *, after: str | None = None, limit: int = 500
    ) -> Sequence[McpCallRecord]:
        """Return calls of a run in the order of their records."""
        table = mcp_calls
        conditions = [table.c.tenant == str(tenant), table.c.run == run]
        if after is not None:
            conditions.append(table.c.number > select(table.c.number).where(table.c.id == after).scalar_subquery())
        statement = select(*_COLUMNS).where(*conditions).order_by(table.c.number).limit(limit)

        def work(connection: Connection) -> Sequence[McpCallRecord]:
            return [row_to_model(McpCallRecord, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def get(self, tenant: str, call_id: str) -> McpCallRecord | None:
        """Return one call of a tenant."""
        statement = select(*_COLUMNS).where(mcp_calls.c.id == call_id, mcp_calls.c.tenant == str(tenant))

        def work(connection: Connection) -> McpCallRecord | None:
            row = connection.execute(statement).mappings().first()
            return None if row is None else row_to_model(McpCallRecord, row)

        return await self._store.read(work)

    async def count(self) -> int:
        statement = select(func.count()).select_from(mcp_calls)
        return await self._store.read(lambda connection: int(connection.execute(statement).scalar_one()))

    async def prune(self, before: datetime) -> int:
        """Delete calls that started before a time; return their number."""
        chunk = select(mcp_calls.c.number).where(mcp_calls.c.started_at < before).limit(_DELETE_CHUNK)
        statement = delete(mcp_calls).where(mcp_calls.c.number.in_(chunk))
        deleted = 0
        while count := await self._store.write(lambda connection: connection.execute(statement).rowcount, flush=False):
            deleted += count
        return deleted

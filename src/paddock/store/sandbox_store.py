"""Named queries about sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from paddock.errors import Conflict, InvalidInput, SandboxNotFound
from paddock.model.owners import Visibility, is_visible_to_view
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.store.database import Store, Work
from paddock.store.row_mapping import fields_to_columns, model_to_row, row_to_model
from paddock.store.tables import sandboxes, snapshots
from paddock.store.visibility import same_request_conditions, visible_row_conditions

Write: TypeAlias = Callable[[Work[Sandbox]], Awaitable[Sandbox]]
_ENDED = [state for state in SandboxState if not state.alive]
_ALIVE = [state for state in SandboxState if state.alive]


class SandboxStore:
    """Sandboxes. Methods with a tenant see only that tenant's; `None` sees all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Cache of live sandboxes, read by every call. The server holds the data directory's lock, so it is the only
        # writer; only committed writes enter the cache, in commit order, so that a slow read cannot restore stale data.
        self._live_cache: dict[str, Sandbox] = {}

    async def insert(self, sandbox: Sandbox) -> Sandbox:
        """Insert a new sandbox; it is on disk before anything that is written later.

        If one of the same tenant with the same request key exists, that one is returned and nothing is inserted, so
        that a repeated request creates one sandbox. Raises `Conflict` if the id is taken.
        """

        def work(connection: Connection) -> Sandbox:
            if sandbox.request_key is not None:
                same = same_request_conditions(sandboxes, sandbox.tenant, sandbox.subject, sandbox.request_key)
                earlier = _one(connection, *same)
                if earlier:
                    return earlier
            connection.execute(insert(sandboxes), model_to_row(sandbox))
            return sandbox

        return await self._change(sandbox.id, work, lambda work: self._store.write(work, flush=False))

    async def get(self, sandbox_id: str, tenant: str | None = None) -> Sandbox:
        """Return a sandbox. Raises `SandboxNotFound`, also for another tenant's."""
        cached = self._live_cache.get(sandbox_id)
        if cached is not None and is_visible_to_view(tenant, cached.tenant, cached.subject, cached.visibility):
            return cached
        return await self._store.read(lambda connection: _known(connection, sandbox_id, tenant))

    async def by_request_key(self, tenant: str, request_key: str, subject: str | None = None) -> Sandbox | None:
        """Return the sandbox of an earlier request with this key, if any."""
        same = same_request_conditions(sandboxes, tenant, subject, request_key)
        return await self._store.read(lambda connection: _one(connection, *same))

    async def list(
        self,
        tenant: str | None = None,
        *,
        states: Collection[SandboxState] | None = None,
        metadata: Mapping[str, str] | None = None,
        page: int = 1,
        page_size: int = 100,
    ) -> tuple[Sequence[Sandbox], int]:
        """Return a page of matching rows, newest first, and the total."""
        if page < 1 or page_size < 1:
            raise InvalidInput("Pages are counted from 1 and hold at least one sandbox.")
        conditions = _matching(tenant, states, metadata)

        def work(connection: Connection) -> tuple[Sequence[Sandbox], int]:
            total = connection.execute(select(func.count()).select_from(sandboxes).where(*conditions)).scalar_one()
            rows = connection.execute(
                select(sandboxes)
                .where(*conditions)
                .order_by(sandboxes.c.created_at.desc(), sandboxes.c.id.desc())
                .limit(page_size)
                .offset((page - 1) * page_size)
            )
            return [row_to_model(Sandbox, row) for row in rows.mappings()], total

        return await self._store.read(work)

    async def share(self, sandbox_id: str, visibility: Visibility, write: Write) -> Sandbox:
        """Change the visibility of a sandbox and its snapshots. Raises `SandboxNotFound`."""

        def work(connection: Connection) -> Sandbox:
            for table, column in ((sandboxes, sandboxes.c.id), (snapshots, snapshots.c.sandbox_id)):
                connection.execute(update(table).where(column == sandbox_id).values(visibility=visibility))
            return _known(connection, sandbox_id, None)

        return await self._change(sandbox_id, work, write)

    async def update(self, sandbox_id: str, **fields: Any) -> Sandbox:
        """Change fields other than the state. Raises `SandboxNotFound`."""
        if "state" in fields:
            raise TypeError("the state changes by transition()")
        values = fields_to_columns(sandboxes, fields)

        def work(connection: Connection) -> Sandbox:
            connection.execute(update(sandboxes).where(sandboxes.c.id == sandbox_id).values(values))
            return _known(connection, sandbox_id, None)

        return await self._change(sandbox_id, work)

    async def transition(
        self,
        sandbox_id: str,
        from_states: Collection[SandboxState],
        to_state: SandboxState,
        reason: str | None = None,
        message: str | None = None,
        *,
        write: Write | None = None,
        **fields: Any,
    ) -> Sandbox:
        """Change the state, and other fields with it, if the sandbox is in one of `from_states`.

        `write` adds work to the same transaction. Raises `Conflict` naming the state it is in
        otherwise, `SandboxNotFound` if there is none.
        """
        values = fields_to_columns(sandboxes, fields) | {
            "state": to_state,
            "reason": reason,
            "message": message,
            "changed_at": datetime.now(UTC),
        }

        def work(connection: Connection) -> Sandbox:
            changed = connection.execute(
                update(sandboxes)
                .where(sandboxes.c.id == sandbox_id, sandboxes.c.state.in_(list(from_states)))
                .values(values)
            )
            sandbox = _known(connection, sandbox_id, None)
            if not changed.rowcount:
                raise Conflict(f"Sandbox {sandbox_id} is {sandbox.state}, so it cannot become {to_state}.")
            return sandbox

        return await self._change(sandbox_id, work, write)

    async def expired(self, now: datetime) -> Sequence[Sandbox]:
        """Return expired live sandboxes, longest overdue first."""
        statement = (
            select(sandboxes)
            .where(sandboxes.c.expires_at <= now, sandboxes.c.state.in_(_ALIVE))
            .order_by(sandboxes.c.expires_at)
        )

        def work(connection: Connection) -> Sequence[Sandbox]:
            return [row_to_model(Sandbox, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def counts(self, tenant: str | None = None) -> Mapping[tuple[str, SandboxState], int]:
        """Return counts by tenant and state."""
        statement = (
            select(sandboxes.c.tenant, sandboxes.c.state, func.count())
            .where(*_matching(tenant, None, None))
            .group_by(sandboxes.c.tenant, sandboxes.c.state)
        )

        def work(connection: Connection) -> Mapping[tuple[str, SandboxState], int]:
            return {(name, SandboxState(state)): count for name, state, count in connection.execute(statement)}

        return await self._store.read(work)

    async def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox. Idempotent."""
        self._live_cache.pop(sandbox_id, None)
        statement = delete(sandboxes).where(sandboxes.c.id == sandbox_id)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def delete_ended(self, before: datetime) -> int:
        """Delete sandboxes that ended before a time; return their number."""
        statement = delete(sandboxes).where(sandboxes.c.state.in_(_ENDED), sandboxes.c.changed_at < before)
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def _change(self, sandbox_id: str, work: Work[Sandbox], write: Write | None = None) -> Sandbox:
        try:
            changed = await (write or self._store.write)(work)
        except BaseException:
            self._live_cache.pop(sandbox_id, None)  # The write may or may not have happened.
            raise
        if changed.state.alive:
            self._live_cache[changed.id] = changed
        else:
            self._live_cache.pop(changed.id, None)
        return changed


def _matching(
    tenant: str | None, states: Collection[SandboxState] | None, metadata: Mapping[str, str] | None
) -> list[ColumnElement[bool]]:
    conditions = visible_row_conditions(sandboxes, tenant)
    if states is not None:
        conditions.append(sandboxes.c.state.in_(list(states)))
    for key, value in (metadata or {}).items():
        if '"' in key or "\\" in key:
            raise InvalidInput(f"{key!r} cannot be a metadata key; leave out quotes and backslashes.")
        conditions.append(sandboxes.c.metadata[key].as_string() == value)
    return conditions


def _one(connection: Connection, *conditions: ColumnElement[bool]) -> Sandbox | None:
    row = connection.execute(select(sandboxes).where(*conditions)).mappings().first()
    return row_to_model(Sandbox, row) if row else None


def _known(connection: Connection, sandbox_id: str, tenant: str | None) -> Sandbox:
    found = _one(connection, sandboxes.c.id == sandbox_id, *_matching(tenant, None, None))
    if not found:
        raise SandboxNotFound(f"There is no sandbox {sandbox_id}.")
    return found

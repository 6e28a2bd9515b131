"""Named queries about runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal, or_, select, update

from paddock.errors import Conflict, InvalidInput, RunNotFound
from paddock.model.runs import Run, RunResult, RunState
from paddock.store.database import Store, Work
from paddock.store.row_mapping import column_value, fields_to_columns, row_to_model
from paddock.store.tables import UtcTimestamp, runs
from paddock.store.visibility import same_request_conditions, visible_row_conditions

_ENDED = [state for state in RunState if state.ended]
_DERIVED_COLUMNS = ("task_name", "concurrency")
"""Columns derived from the task."""
_shown = select(*(each for each in runs.c if each.name not in _DERIVED_COLUMNS))
_COMPLETE_FIELDS = ("task", "result", "progress")


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """Fields of a queued or running run that matter for scheduling."""

    id: str
    tenant: str
    task: str
    concurrency: int | None


RunSelector = Callable[[Sequence[QueuedRun], Sequence[QueuedRun]], Sequence[str]]
"""Scheduling function: queued runs in order and running runs → runs that may start."""


class RunStore:
    """Runs. Methods with a tenant see only that tenant's; `None` sees all.

    Changes that publish events are returned as units of work for `EventLog.write_with_events`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def insert_work(self, run: Run) -> Work[tuple[Run, bool]]:
        """Insert a run; return it and whether it is new. The same tenant and request key return the earlier one."""
        row = {name: _value(name, value) for name, value in run}
        row |= {"task_name": run.task.name, "concurrency": run.task.concurrency}

        def work(connection: Connection) -> tuple[Run, bool]:
            if run.request_key is not None:
                same = same_request_conditions(runs, run.tenant, run.subject, run.request_key)
                if earlier := _one(connection, *same):
                    return earlier, False
            connection.execute(insert(runs), row)
            return run, True

        return work

    async def get(self, run_id: str, tenant: str | None = None) -> Run:
        """Return a run. Raises `RunNotFound`, also for another tenant's."""
        return await self._store.read(lambda connection: require_run(connection, run_id, tenant))

    async def list(
        self,
        tenant: str | None = None,
        *,
        states: Collection[RunState] | None = None,
        name: str | None = None,
        group: str | None = None,
        page: int = 1,
        page_size: int = 20,
    ) -> tuple[Sequence[Run], int]:
        """Return a page of matching runs, newest first, and the total. `name` matches run or task names."""
        if page < 1 or page_size < 1:
            raise InvalidInput("Pages are counted from 1 and hold at least one run.")
        conditions = visible_row_conditions(runs, tenant)
        if states is not None:
            conditions.append(runs.c.state.in_(list(states)))
        if name is not None:
            conditions.append(or_(runs.c.name == name, runs.c.task_name == name))
        if group is not None:
            conditions.append(runs.c.group == group)

        def work(connection: Connection) -> tuple[Sequence[Run], int]:
            total = connection.execute(select(func.count()).select_from(runs).where(*conditions)).scalar_one()
            rows = connection.execute(
                _shown.where(*conditions)
                .order_by(runs.c.created_at.desc(), runs.c.id.desc())
                .limit(page_size)
                .offset((page - 1) * page_size)
            )
            return [row_to_model(Run, row) for row in rows.mappings()], total

        return await self._store.read(work)

    async def claim(self, owner: str, now: datetime, until: datetime, choose: RunSelector) -> Sequence[Run]:
        """Start the selected queued runs under `owner`'s lease. Concurrent claims get disjoint runs."""
        facts = select(runs.c.id, runs.c.tenant, runs.c.task_name, runs.c.concurrency)
        due = or_(runs.c.not_before.is_(None), runs.c.not_before <= now)
        queued = facts.where(runs.c.state == RunState.QUEUED, due).order_by(
            runs.c.priority.desc(), runs.c.created_at, runs.c.id
        )
        active = facts.where(runs.c.state == RunState.RUNNING)
        taken = {"state": RunState.RUNNING, "owner": owner, "owned_until": until, "not_before": None, "changed_at": now}

        def work(connection: Connection) -> Sequence[Run]:
            waiting = [QueuedRun(*row) for row in connection.execute(queued)]
            if not waiting:
                return []
            chosen = choose(waiting, [QueuedRun(*row) for row in connection.execute(active)])
            first_start = func.coalesce(runs.c.started_at, literal(now, UtcTimestamp()))
            claimed = [
                run_id
                for run_id in chosen
                if connection.execute(
                    update(runs)
                    .where(runs.c.id == run_id, runs.c.state == RunState.QUEUED)
                    .values(taken | {"started_at": first_start})
                ).rowcount
            ]
            return [require_run(connection, run_id, None) for run_id in claimed]

        return await self._store.write(work)

    async def take_over(self, owner: str, now: datetime, until: datetime, *, limit: int, alone: bool) -> Sequence[Run]:
        """Take over running runs with expired leases, oldest first.

        With `alone`, this is the only server, so leases of others are ignored.
        """
        free = or_(runs.c.owner.is_(None), runs.c.owned_until.is_(None), runs.c.owned_until < now)
        is_owned_here = runs.c.owner == owner
        conditions = [runs.c.state == RunState.RUNNING, or_(runs.c.owner.is_(None), ~is_owned_here) if alone else free]
        available = select(runs.c.id).where(*conditions).order_by(runs.c.created_at).limit(limit)

        def work(connection: Connection) -> Sequence[Run]:
            ids = connection.execute(available).scalars().all()
            taken = [
                run_id
                for run_id in ids
                if connection.execute(
                    update(runs).where(runs.c.id == run_id, *conditions).values(owner=owner, owned_until=until)
                ).rowcount
            ]
            return [require_run(connection, run_id, None) for run_id in taken]

        return await self._store.write(work)

    async def renew(self, owner: str, until: datetime) -> Sequence[tuple[str, str | None, bool]]:
        """Renew `owner`'s leases; return the run ids with requested cancellations."""
        owned_conditions = (runs.c.owner == owner, runs.c.state == RunState.RUNNING)

        def work(connection: Connection) -> Sequence[tuple[str, str | None, bool]]:
            connection.execute(update(runs).where(*owned_conditions).values(owned_until=until))
            rows = connection.execute(select(runs.c.id, runs.c.cancelling, runs.c.hard).where(*owned_conditions))
            return [(row[0], row[1], row[2]) for row in rows]

        return await self._store.write(work)

    async def release_leases(self, owner: str) -> None:
        """Release `owner`'s leases."""
        statement = update(runs).where(runs.c.owner == owner, runs.c.state == RunState.RUNNING)
        await self._store.write(lambda connection: connection.execute(statement.values(owner=None, owned_until=None)))

    def update_work(self, run_id: str, owner: str | None, /, **fields: Any) -> Work[Run]:
        """Change a run; with an owner, only under its lease. Raises `Conflict` otherwise."""
        values = fields_to_columns(runs, {name: _value(name, value) for name, value in fields.items()})
        conditions = [runs.c.id == run_id]
        if owner is not None:
            conditions += [runs.c.owner == owner, runs.c.state == RunState.RUNNING]

        statement = update(runs).where(*conditions).values(values).returning(*_shown.selected_columns)

        def work(connection: Connection) -> Run:
            row = connection.execute(statement).mappings().first()
            if row is None:
                run = require_run(connection, run_id, None)
                raise Conflict(f"Run {run_id} is {run.state} and owned by {run.owner or 'no runner'}, not by {owner}.")
            return row_to_model(Run, row)

        return work

    async def update(self, run_id: str, owner: str | None, /, **fields: Any) -> Run:
        """Run `update_work` immediately."""
        return await self._store.write(self.update_work(run_id, owner, **fields))

    def cancel_work(self, run_id: str, reason: str, hard: bool, result: RunResult) -> Work[tuple[Run, bool]]:
        """Cancel a run: a queued run ends with `result`, a running one is notified. Return whether it changed."""

        def work(connection: Connection) -> tuple[Run, bool]:
            run = require_run(connection, run_id, None)
            already_requested = run.state is RunState.RUNNING and run.cancelling is not None and (run.hard or not hard)
            if run.state.ended or already_requested:
                return run, False
            now = datetime.now(UTC)
            changes: dict[str, Any] = {"cancelling": run.cancelling or reason, "hard": hard, "changed_at": now}
            if run.state is RunState.QUEUED:
                ending = {"state": result.state, "result": _value("result", result), "not_before": None}
                changes |= ending | {"ended_at": now, "progress": {}}
            connection.execute(update(runs).where(runs.c.id == run_id).values(changes))
            return require_run(connection, run_id, None), True

        return work

    async def next_due(self, now: datetime) -> datetime | None:
        """Return the earliest start time of delayed runs."""
        statement = select(func.min(runs.c.not_before)).where(runs.c.state == RunState.QUEUED, runs.c.not_before > now)

        def work(connection: Connection) -> datetime | None:
            found: datetime | None = connection.execute(statement).scalar()
            return found

        return await self._store.read(work)

    async def ended_before(self, moment: datetime, limit: int) -> Sequence[Run]:
        """Return runs that ended before a time, oldest first."""
        statement = _shown.where(runs.c.state.in_(_ENDED), runs.c.ended_at < moment)

        def work(connection: Connection) -> Sequence[Run]:
            rows = connection.execute(statement.order_by(runs.c.ended_at).limit(limit))
            return [row_to_model(Run, row) for row in rows.mappings()]

        return await self._store.read(work)

    async def inputs(self) -> Collection[tuple[str, str]]:
        """Return tenant and id of all referenced bundles."""
        statement = select(runs.c.tenant, runs.c.inputs).where(runs.c.inputs.is_not(None)).distinct()
        return await self._store.read(lambda connection: {(row[0], row[1]) for row in connection.execute(statement)})

    async def delete(self, run_id: str) -> bool:
        """Delete an ended run; return whether another run uses its inputs."""

        def work(connection: Connection) -> bool:
            run = require_run(connection, run_id, None)
            if not run.state.ended:
                raise Conflict(f"run {run_id} is {run.state}; cancel it first")
            connection.execute(delete(runs).where(runs.c.id == run_id))
            if run.inputs is None:
                return False
            same = (runs.c.inputs == run.inputs, runs.c.tenant == run.tenant)
            return bool(connection.execute(select(func.count()).select_from(runs).where(*same)).scalar_one())

        return await self._store.write(work)


def require_run(connection: Connection, run_id: str, tenant: str | None) -> Run:
    """Return a run by its id. Raises `RunNotFound`."""
    found = _one(connection, runs.c.id == run_id, *visible_row_conditions(runs, tenant))
    if found is None:
        raise RunNotFound(f"There is no run {run_id}.")
    return found


def _one(connection: Connection, *conditions: ColumnElement[bool]) -> Run | None:
    row = connection.execute(_shown.where(*conditions)).mappings().first()
    return row_to_model(Run, row) if row else None


def _value(name: str, value: Any) -> Any:
    # Store all fields of a task: a limit of null differs from an unset one.
    return (
        value.model_dump(mode="json")
        if name in _COMPLETE_FIELDS and hasattr(value, "model_dump")
        else column_value(value)
    )

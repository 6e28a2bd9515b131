"""Named queries about runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal, or_, select, update

from paddock.errors import Conflict, InvalidInput, RunNotFound
from paddock.model.runs import Result, Run, RunState
from paddock.store.database import Store, Work
from paddock.store.rows import check_columns, column, to_model
from paddock.store.tables import Instant, runs
from paddock.store.visible import same_request, visible

_ENDED = [state for state in RunState if state.ended]
_APART = ("task_name", "concurrency")
"""Columns that only say again what the task says."""
_shown = select(*(each for each in runs.c if each.name not in _APART))
_WHOLE = ("task", "result", "progress")


@dataclass(frozen=True, slots=True)
class Waiting:
    """What matters of a run that waits or is under way, for choosing who is next."""

    id: str
    tenant: str
    task: str
    concurrency: int | None


Choose = Callable[[Sequence[Waiting], Sequence[Waiting]], Sequence[str]]
"""Given who waits, first in line first, and who is under way, says who may begin."""


class RunStore:
    """What is known of every run. Methods that take a tenant see only that tenant's; `None` sees all.

    What changes together with events is returned as a unit of work for `EventLog.together`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def inserting(self, run: Run) -> Work[tuple[Run, bool]]:
        """Keep a new run, and say whether it is new: an earlier one of the same tenant and request key is returned."""
        row = {name: _value(name, value) for name, value in run}
        row |= {"task_name": run.task.name, "concurrency": run.task.concurrency}

        def work(connection: Connection) -> tuple[Run, bool]:
            if run.request_key is not None:
                same = same_request(runs, run.tenant, run.subject, run.request_key)
                if earlier := _one(connection, *same):
                    return earlier, False
            connection.execute(insert(runs), row)
            return run, True

        return work

    async def get(self, run_id: str, tenant: str | None = None) -> Run:
        """Raises `RunNotFound`, also for what belongs to another tenant."""
        return await self._store.read(lambda connection: known(connection, run_id, tenant))

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
        """One page of those that match, newest first, and how many match in all. A name is the run's or its task's."""
        if page < 1 or page_size < 1:
            raise InvalidInput("Pages are counted from 1 and hold at least one run.")
        conditions = visible(runs, tenant)
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
            return [to_model(Run, row) for row in rows.mappings()], total

        return await self._store.read(work)

    async def claim(self, owner: str, now: datetime, until: datetime, choose: Choose) -> Sequence[Run]:
        """Let the chosen of those that wait begin, as `owner`'s. Of several who claim at once, each run gets one."""
        facts = select(runs.c.id, runs.c.tenant, runs.c.task_name, runs.c.concurrency)
        due = or_(runs.c.not_before.is_(None), runs.c.not_before <= now)
        queued = facts.where(runs.c.state == RunState.QUEUED, due).order_by(
            runs.c.priority.desc(), runs.c.created_at, runs.c.id
        )
        active = facts.where(runs.c.state == RunState.RUNNING)
        taken = {"state": RunState.RUNNING, "owner": owner, "owned_until": until, "not_before": None, "changed_at": now}

        def work(connection: Connection) -> Sequence[Run]:
            waiting = [Waiting(*row) for row in connection.execute(queued)]
            if not waiting:
                return []
            chosen = choose(waiting, [Waiting(*row) for row in connection.execute(active)])
            begun = func.coalesce(runs.c.started_at, literal(now, Instant()))
            ours = [
                run_id
                for run_id in chosen
                if connection.execute(
                    update(runs)
                    .where(runs.c.id == run_id, runs.c.state == RunState.QUEUED)
                    .values(taken | {"started_at": begun})
                ).rowcount
            ]
            return [known(connection, run_id, None) for run_id in ours]

        return await self._store.write(work)

    async def take_over(self, owner: str, now: datetime, until: datetime, *, limit: int, alone: bool) -> Sequence[Run]:
        """Runs under way that nobody sees to any more become `owner`'s, oldest first.

        With `alone`, nobody else can be at work on this database, so leases of others mean nothing.
        """
        free = or_(runs.c.owner.is_(None), runs.c.owned_until.is_(None), runs.c.owned_until < now)
        mine = runs.c.owner == owner
        conditions = [runs.c.state == RunState.RUNNING, or_(runs.c.owner.is_(None), ~mine) if alone else free]
        left = select(runs.c.id).where(*conditions).order_by(runs.c.created_at).limit(limit)

        def work(connection: Connection) -> Sequence[Run]:
            ids = connection.execute(left).scalars().all()
            taken = [
                run_id
                for run_id in ids
                if connection.execute(
                    update(runs).where(runs.c.id == run_id, *conditions).values(owner=owner, owned_until=until)
                ).rowcount
            ]
            return [known(connection, run_id, None) for run_id in taken]

        return await self._store.write(work)

    async def renew(self, owner: str, until: datetime) -> Sequence[tuple[str, str | None, bool]]:
        """Keep what `owner` has, and say what that is: ids, and why and how each is to be cancelled."""
        mine = (runs.c.owner == owner, runs.c.state == RunState.RUNNING)

        def work(connection: Connection) -> Sequence[tuple[str, str | None, bool]]:
            connection.execute(update(runs).where(*mine).values(owned_until=until))
            rows = connection.execute(select(runs.c.id, runs.c.cancelling, runs.c.hard).where(*mine))
            return [(row[0], row[1], row[2]) for row in rows]

        return await self._store.write(work)

    async def let_go(self, owner: str) -> None:
        """Leave what `owner` has to whoever comes next."""
        statement = update(runs).where(runs.c.owner == owner, runs.c.state == RunState.RUNNING)
        await self._store.write(lambda connection: connection.execute(statement.values(owner=None, owned_until=None)))

    def changing(self, run_id: str, mine: str | None, /, **fields: Any) -> Work[Run]:
        """Change a run's fields; with an owner only while it is under way as theirs. Raises `Conflict` if it is not."""
        values = check_columns(runs, {name: _value(name, value) for name, value in fields.items()})
        conditions = [runs.c.id == run_id]
        if mine is not None:
            conditions += [runs.c.owner == mine, runs.c.state == RunState.RUNNING]

        changing = update(runs).where(*conditions).values(values).returning(*_shown.selected_columns)

        def work(connection: Connection) -> Run:
            row = connection.execute(changing).mappings().first()
            if row is None:
                run = known(connection, run_id, None)
                raise Conflict(f"Run {run_id} is {run.state} and seen to by {run.owner or 'nobody'}, not by {mine}.")
            return to_model(Run, row)

        return work

    async def update(self, run_id: str, mine: str | None, /, **fields: Any) -> Run:
        """As `changing`, at once."""
        return await self._store.write(self.changing(run_id, mine, **fields))

    def cancelling(self, run_id: str, reason: str, hard: bool, result: Result) -> Work[tuple[Run, bool]]:
        """Have a run stop: one that waits ends with `result`, one under way is told. Says whether that is news."""

        def work(connection: Connection) -> tuple[Run, bool]:
            run = known(connection, run_id, None)
            told = run.state is RunState.RUNNING and run.cancelling is not None and (run.hard or not hard)
            if run.state.ended or told:
                return run, False
            now = datetime.now(UTC)
            wish: dict[str, Any] = {"cancelling": run.cancelling or reason, "hard": hard, "changed_at": now}
            if run.state is RunState.QUEUED:
                ending = {"state": result.state, "result": _value("result", result), "not_before": None}
                wish |= ending | {"ended_at": now, "progress": {}}
            connection.execute(update(runs).where(runs.c.id == run_id).values(wish))
            return known(connection, run_id, None), True

        return work

    async def next_due(self, now: datetime) -> datetime | None:
        """When the next of those runs may begin that wait for a moment."""
        statement = select(func.min(runs.c.not_before)).where(runs.c.state == RunState.QUEUED, runs.c.not_before > now)

        def work(connection: Connection) -> datetime | None:
            found: datetime | None = connection.execute(statement).scalar()
            return found

        return await self._store.read(work)

    async def ended_before(self, moment: datetime, limit: int) -> Sequence[Run]:
        """Runs that ended before a moment, oldest first."""
        statement = _shown.where(runs.c.state.in_(_ENDED), runs.c.ended_at < moment)

        def work(connection: Connection) -> Sequence[Run]:
            rows = connection.execute(statement.order_by(runs.c.ended_at).limit(limit))
            return [to_model(Run, row) for row in rows.mappings()]

        return await self._store.read(work)

    async def inputs(self) -> Collection[tuple[str, str]]:
        """Tenant and id of every bundle that a run has."""
        statement = select(runs.c.tenant, runs.c.inputs).where(runs.c.inputs.is_not(None)).distinct()
        return await self._store.read(lambda connection: {(row[0], row[1]) for row in connection.execute(statement)})

    async def delete(self, run_id: str) -> bool:
        """Forget a run that has ended, and say whether another one has the same inputs."""

        def work(connection: Connection) -> bool:
            run = known(connection, run_id, None)
            if not run.state.ended:
                raise Conflict(f"run {run_id} is {run.state}; cancel it first")
            connection.execute(delete(runs).where(runs.c.id == run_id))
            if run.inputs is None:
                return False
            same = (runs.c.inputs == run.inputs, runs.c.tenant == run.tenant)
            return bool(connection.execute(select(func.count()).select_from(runs).where(*same)).scalar_one())

        return await self._store.write(work)


def known(connection: Connection, run_id: str, tenant: str | None) -> Run:
    """A run by its id. Raises `RunNotFound`."""
    found = _one(connection, runs.c.id == run_id, *visible(runs, tenant))
    if found is None:
        raise RunNotFound(f"There is no run {run_id}.")
    return found


def _one(connection: Connection, *conditions: ColumnElement[bool]) -> Run | None:
    row = connection.execute(_shown.where(*conditions)).mappings().first()
    return to_model(Run, row) if row else None


def _value(name: str, value: Any) -> Any:
    # Nothing may be left out of a task: that a limit is none is not the same as that nobody has set it.
    return value.model_dump(mode="json") if name in _WHOLE and hasattr(value, "model_dump") else column(value)

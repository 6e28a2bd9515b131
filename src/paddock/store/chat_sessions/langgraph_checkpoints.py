"""Named queries about LangGraph checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, RowMapping, bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert

from paddock.store.database import Store, Work
from paddock.store.tables import checkpoint_writes, checkpoints

# Built once: LangGraph makes several checkpoints in every step, and building a statement is most of their cost.
_all = select(checkpoints).where(checkpoints.c.thread == bindparam("thread"))
_all = _all.order_by(checkpoints.c.namespace, checkpoints.c.id.desc())
_all_of = _all.where(checkpoints.c.namespace == bindparam("namespace"))
_written = (
    select(checkpoint_writes)
    .where(checkpoint_writes.c.thread == bindparam("thread"), checkpoint_writes.c.namespace == bindparam("namespace"))
    .order_by(checkpoint_writes.c.path, checkpoint_writes.c.task, checkpoint_writes.c.position)
)
_put = insert(checkpoints)
_put = _put.on_conflict_do_update(
    index_elements=["thread", "namespace", "id"],
    set_={name: _put.excluded[name] for name in ("parent", "type", "body", "details")},
)
_writing = insert(checkpoint_writes)
_write_key = ["thread", "namespace", "checkpoint", "task", "position"]
_add = _writing.on_conflict_do_nothing(index_elements=_write_key)
_replace = _writing.on_conflict_do_update(
    index_elements=_write_key,
    set_={name: _writing.excluded[name] for name in ("channel", "type", "body", "path")},
)
_forget_older = [
    delete(table).where(
        table.c.thread == bindparam("thread"), table.c.namespace == bindparam("namespace"), column < bindparam("id")
    )
    for table, column in ((checkpoints, checkpoints.c.id), (checkpoint_writes, checkpoint_writes.c.checkpoint))
]
_forget_others = [
    delete(table).where(table.c.thread == bindparam("thread"), table.c.namespace != bindparam("namespace"))
    for table in (checkpoints, checkpoint_writes)
]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a thread. Ids sort by time."""

    thread: str
    namespace: str
    id: str
    parent: str | None
    type: str
    """Serialisation format of body and details."""
    body: bytes
    details: bytes


@dataclass(frozen=True)
class CheckpointWrite:
    """Writes of a task between two checkpoints."""

    task: str
    position: int
    channel: str
    type: str
    body: bytes
    path: str


@dataclass(frozen=True)
class CheckpointPosition:
    """A checkpoint and later writes, in LangGraph's order."""

    checkpoint: Checkpoint
    writes: Sequence[CheckpointWrite]


class CheckpointStore:
    """The tables `checkpoints` and `checkpoint_writes`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, thread: str, namespace: str, checkpoint_id: str | None = None) -> CheckpointPosition | None:
        """Return a checkpoint, by default the newest."""
        conditions = [checkpoints.c.thread == thread, checkpoints.c.namespace == namespace]
        if checkpoint_id is not None:
            conditions.append(checkpoints.c.id == checkpoint_id)
        statement = select(checkpoints).where(*conditions).order_by(checkpoints.c.id.desc()).limit(1)

        def work(connection: Connection) -> CheckpointPosition | None:
            row = connection.execute(statement).mappings().first()
            if row is None:
                return None
            return CheckpointPosition(
                Checkpoint(**row), _writes(connection, thread, namespace, row["id"]).get(row["id"], ())
            )

        return await self._store.read(work)

    async def all(self, thread: str, namespace: str | None = None) -> Sequence[CheckpointPosition]:
        """Return checkpoints of a thread or one of its namespaces, newest first."""
        values = {"thread": thread} if namespace is None else {"thread": thread, "namespace": namespace}
        statement = _all if namespace is None else _all_of

        def work(connection: Connection) -> Sequence[CheckpointPosition]:
            found = [Checkpoint(**row) for row in connection.execute(statement, values).mappings()]
            written = {name: _writes(connection, thread, name) for name in {each.namespace for each in found}}
            return [CheckpointPosition(each, written[each.namespace].get(each.id, ())) for each in found]

        return await self._store.read(work)

    async def write(self, works: Sequence[Work[None]]) -> None:
        """Run units of work in order, in one transaction."""

        def whole(connection: Connection) -> None:
            for work in works:
                work(connection)

        await self._store.write(whole, flush=False)

    @staticmethod
    def putting(checkpoint: Checkpoint, *, whole: bool, outermost: bool) -> Work[None]:
        """Store a checkpoint and delete checkpoints that are no longer reachable.

        A `whole` checkpoint needs no earlier one. The `outermost` namespace continues only after the namespaces of
        sub-agents have ended.
        """
        values = asdict(checkpoint)

        def work(connection: Connection) -> None:
            connection.execute(_put, values)
            place = {"thread": checkpoint.thread, "namespace": checkpoint.namespace}
            if whole:
                for older in _forget_older:
                    connection.execute(older, place | {"id": checkpoint.id})
            if outermost:
                for others in _forget_others:
                    connection.execute(others, place)

        return work

    @staticmethod
    def writing(
        thread: str, namespace: str, checkpoint_id: str, writes: Sequence[CheckpointWrite], *, replace: bool
    ) -> Work[None]:
        """Store writes of a task. Existing writes at the same position are kept or replaced."""
        where = {"thread": thread, "namespace": namespace, "checkpoint": checkpoint_id}
        rows = [asdict(write) | where for write in writes]
        statement = _replace if replace else _add

        def work(connection: Connection) -> None:
            if rows:
                connection.execute(statement, rows)

        return work

    async def forget(self, thread: str) -> None:
        """Delete a thread. Idempotent."""

        def work(connection: Connection) -> None:
            for table in (checkpoints, checkpoint_writes):
                connection.execute(delete(table).where(table.c.thread == thread))

        await self._store.write(work)


def _writes(
    connection: Connection, thread: str, namespace: str, checkpoint_id: str | None = None
) -> Mapping[str, Sequence[CheckpointWrite]]:
    """Group writes by checkpoint id."""
    statement = _written
    if checkpoint_id is not None:
        statement = statement.where(checkpoint_writes.c.checkpoint == checkpoint_id)
    found: dict[str, list[CheckpointWrite]] = {}
    for row in connection.execute(statement, {"thread": thread, "namespace": namespace}).mappings():
        found.setdefault(row["checkpoint"], []).append(_write(row))
    return found


def _write(row: RowMapping) -> CheckpointWrite:
    return CheckpointWrite(row["task"], row["position"], row["channel"], row["type"], row["body"], row["path"])

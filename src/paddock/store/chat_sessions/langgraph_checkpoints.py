"""Named queries about LangGraph checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, RowMapping, bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert

from paddock.store.database import Store, Work
from paddock.store.tables import checkpoint_writes, checkpoints

# Built once: LangGraph makes several checkpoints in every step, and building a statement is most of their cost.
_thread_checkpoints = select(checkpoints).where(checkpoints.c.thread == bindparam("thread"))
_thread_checkpoints = _thread_checkpoints.order_by(checkpoints.c.namespace, checkpoints.c.id.desc())
_namespace_checkpoints = _thread_checkpoints.where(checkpoints.c.namespace == bindparam("namespace"))
_namespace_writes = (
    select(checkpoint_writes)
    .where(checkpoint_writes.c.thread == bindparam("thread"), checkpoint_writes.c.namespace == bindparam("namespace"))
    .order_by(checkpoint_writes.c.path, checkpoint_writes.c.task, checkpoint_writes.c.position)
)
_put_checkpoint = insert(checkpoints)
_put_checkpoint = _put_checkpoint.on_conflict_do_update(
    index_elements=["thread", "namespace", "id"],
    set_={name: _put_checkpoint.excluded[name] for name in ("parent", "type", "body", "details")},
)
_insert_write = insert(checkpoint_writes)
_write_key = ["thread", "namespace", "checkpoint", "task", "position"]
_add_write = _insert_write.on_conflict_do_nothing(index_elements=_write_key)
_replace_write = _insert_write.on_conflict_do_update(
    index_elements=_write_key,
    set_={name: _insert_write.excluded[name] for name in ("channel", "type", "body", "path")},
)
_delete_older = [
    delete(table).where(
        table.c.thread == bindparam("thread"), table.c.namespace == bindparam("namespace"), column < bindparam("id")
    )
    for table, column in ((checkpoints, checkpoints.c.id), (checkpoint_writes, checkpoint_writes.c.checkpoint))
]
_delete_other_namespaces = [
    delete(table).where(table.c.thread == bindparam("thread"), table.c.namespace != bindparam("namespace"))
    for table in (checkpoints, checkpoint_writes)
]


@dataclass(frozen=True)
class LangGraphCheckpoint:
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
class CheckpointWithWrites:
    """A checkpoint and later writes, in LangGraph's order."""

    checkpoint: LangGraphCheckpoint
    writes: Sequence[CheckpointWrite]


class LangGraphCheckpointStore:
    """The tables `checkpoints` and `checkpoint_writes`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_checkpoint(
        self, thread: str, namespace: str, checkpoint_id: str | None = None
    ) -> CheckpointWithWrites | None:
        """Return a checkpoint, by default the newest."""
        conditions = [checkpoints.c.thread == thread, checkpoints.c.namespace == namespace]
        if checkpoint_id is not None:
            conditions.append(checkpoints.c.id == checkpoint_id)
        statement = select(checkpoints).where(*conditions).order_by(checkpoints.c.id.desc()).limit(1)

        def work(connection: Connection) -> CheckpointWithWrites | None:
            row = connection.execute(statement).mappings().first()
            if row is None:
                return None
            return CheckpointWithWrites(
                LangGraphCheckpoint(**row),
                _writes_by_checkpoint(connection, thread, namespace, row["id"]).get(row["id"], ()),
            )

        return await self._store.read(work)

    async def list_checkpoints(self, thread: str, namespace: str | None = None) -> Sequence[CheckpointWithWrites]:
        """Return checkpoints of a thread or one of its namespaces, newest first."""
        values = {"thread": thread} if namespace is None else {"thread": thread, "namespace": namespace}
        statement = _thread_checkpoints if namespace is None else _namespace_checkpoints

        def work(connection: Connection) -> Sequence[CheckpointWithWrites]:
            records = [LangGraphCheckpoint(**row) for row in connection.execute(statement, values).mappings()]
            writes = {
                name: _writes_by_checkpoint(connection, thread, name) for name in {each.namespace for each in records}
            }
            return [CheckpointWithWrites(each, writes[each.namespace].get(each.id, ())) for each in records]

        return await self._store.read(work)

    async def run_works(self, works: Sequence[Work[None]]) -> None:
        """Run units of work in order, in one transaction."""

        def run_all(connection: Connection) -> None:
            for work in works:
                work(connection)

        await self._store.write(run_all, flush=False)

    @staticmethod
    def put_checkpoint_work(checkpoint: LangGraphCheckpoint, *, is_complete: bool, is_root: bool) -> Work[None]:
        """Store a checkpoint and delete checkpoints that are no longer reachable.

        A complete checkpoint needs no earlier one. The root namespace continues only after the namespaces of sub-agents
        have ended.
        """
        values = asdict(checkpoint)

        def work(connection: Connection) -> None:
            connection.execute(_put_checkpoint, values)
            key = {"thread": checkpoint.thread, "namespace": checkpoint.namespace}
            if is_complete:
                for older in _delete_older:
                    connection.execute(older, key | {"id": checkpoint.id})
            if is_root:
                for others in _delete_other_namespaces:
                    connection.execute(others, key)

        return work

    @staticmethod
    def store_writes_work(
        thread: str, namespace: str, checkpoint_id: str, writes: Sequence[CheckpointWrite], *, replace: bool
    ) -> Work[None]:
        """Store writes of a task. Existing writes at the same position are kept or replaced."""
        key = {"thread": thread, "namespace": namespace, "checkpoint": checkpoint_id}
        rows = [asdict(write) | key for write in writes]
        statement = _replace_write if replace else _add_write

        def work(connection: Connection) -> None:
            if rows:
                connection.execute(statement, rows)

        return work

    async def delete_thread(self, thread: str) -> None:
        """Delete a thread. Idempotent."""

        def work(connection: Connection) -> None:
            for table in (checkpoints, checkpoint_writes):
                connection.execute(delete(table).where(table.c.thread == thread))

        await self._store.write(work)


def _writes_by_checkpoint(
    connection: Connection, thread: str, namespace: str, checkpoint_id: str | None = None
) -> Mapping[str, Sequence[CheckpointWrite]]:
    """Group writes by checkpoint id."""
    statement = _namespace_writes
    if checkpoint_id is not None:
        statement = statement.where(checkpoint_writes.c.checkpoint == checkpoint_id)
    writes: dict[str, list[CheckpointWrite]] = {}
    for row in connection.execute(statement, {"thread": thread, "namespace": namespace}).mappings():
        writes.setdefault(row["checkpoint"], []).append(_write_from_row(row))
    return writes


def _write_from_row(row: RowMapping) -> CheckpointWrite:
    return CheckpointWrite(row["task"], row["position"], row["channel"], row["type"], row["body"], row["path"])

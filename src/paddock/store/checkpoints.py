"""Named queries about where LangGraph's threads stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, RowMapping, delete, select
from sqlalchemy.dialects.sqlite import insert

from paddock.store.database import Store, Work
from paddock.store.tables import checkpoint_writes, checkpoints


@dataclass(frozen=True)
class Checkpoint:
    """Where a thread stood. Ids of later ones sort after those of earlier ones."""

    thread: str
    namespace: str
    id: str
    parent: str | None
    type: str
    """How body and details are written."""
    body: bytes
    details: bytes


@dataclass(frozen=True)
class CheckpointWrite:
    """What a task has done since a checkpoint, before the next one."""

    task: str
    place: int
    channel: str
    type: str
    body: bytes
    path: str


@dataclass(frozen=True)
class Place:
    """A checkpoint and what was written since, in the order in which LangGraph applies it."""

    checkpoint: Checkpoint
    writes: Sequence[CheckpointWrite]


class CheckpointStore:
    """The tables `checkpoints` and `checkpoint_writes`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, thread: str, namespace: str, checkpoint_id: str | None = None) -> Place | None:
        """One checkpoint; the newest, if none is named."""
        conditions = [checkpoints.c.thread == thread, checkpoints.c.namespace == namespace]
        if checkpoint_id is not None:
            conditions.append(checkpoints.c.id == checkpoint_id)
        statement = select(checkpoints).where(*conditions).order_by(checkpoints.c.id.desc()).limit(1)

        def work(connection: Connection) -> Place | None:
            row = connection.execute(statement).mappings().first()
            if row is None:
                return None
            return Place(Checkpoint(**row), _writes(connection, thread, namespace, row["id"]).get(row["id"], ()))

        return await self._store.read(work)

    async def all(self, thread: str, namespace: str | None = None) -> Sequence[Place]:
        """Every checkpoint of a thread, or of one of its namespaces, newest first."""
        conditions = [checkpoints.c.thread == thread]
        if namespace is not None:
            conditions.append(checkpoints.c.namespace == namespace)
        statement = select(checkpoints).where(*conditions).order_by(checkpoints.c.namespace, checkpoints.c.id.desc())

        def work(connection: Connection) -> Sequence[Place]:
            found = [Checkpoint(**row) for row in connection.execute(statement).mappings()]
            written = {name: _writes(connection, thread, name) for name in {each.namespace for each in found}}
            return [Place(each, written[each.namespace].get(each.id, ())) for each in found]

        return await self._store.read(work)

    async def write(self, works: Sequence[Work[None]]) -> None:
        """Do pieces of work in order, all or none of them; on disk before anything that is written later."""

        def whole(connection: Connection) -> None:
            for work in works:
                work(connection)

        await self._store.write(whole, flush=False)

    @staticmethod
    def putting(checkpoint: Checkpoint, *, whole: bool, outermost: bool) -> Work[None]:
        """Keeps a checkpoint. What nobody can go back to is forgotten with it.

        One that is `whole` needs none of those before it. The `outermost` namespace goes on only when the others,
        which are those of helpers, have come to their end.
        """
        statement = insert(checkpoints).values(asdict(checkpoint))
        statement = statement.on_conflict_do_update(
            index_elements=["thread", "namespace", "id"],
            set_={name: statement.excluded[name] for name in ("parent", "type", "body", "details")},
        )

        def work(connection: Connection) -> None:
            connection.execute(statement)
            for table, column in ((checkpoints, checkpoints.c.id), (checkpoint_writes, checkpoint_writes.c.checkpoint)):
                ours = table.c.thread == checkpoint.thread
                if whole:
                    older = (table.c.namespace == checkpoint.namespace) & (column < checkpoint.id)
                    connection.execute(delete(table).where(ours, older))
                if outermost:
                    connection.execute(delete(table).where(ours, table.c.namespace != checkpoint.namespace))

        return work

    @staticmethod
    def writing(
        thread: str, namespace: str, checkpoint_id: str, writes: Sequence[CheckpointWrite], *, replace: bool
    ) -> Work[None]:
        """Keeps what a task has written, if it is anything. What was written at the same place is kept, or replaced."""
        where = {"thread": thread, "namespace": namespace, "checkpoint": checkpoint_id}
        rows = [asdict(write) | where for write in writes]
        statement = insert(checkpoint_writes)
        key = ["thread", "namespace", "checkpoint", "task", "place"]
        if replace:
            changed = {name: statement.excluded[name] for name in ("channel", "type", "body", "path")}
            statement = statement.on_conflict_do_update(index_elements=key, set_=changed)
        else:
            statement = statement.on_conflict_do_nothing(index_elements=key)

        def work(connection: Connection) -> None:
            if rows:
                connection.execute(statement, rows)

        return work

    async def forget(self, thread: str) -> None:
        """Forget a thread. Idempotent."""

        def work(connection: Connection) -> None:
            for table in (checkpoints, checkpoint_writes):
                connection.execute(delete(table).where(table.c.thread == thread))

        await self._store.write(work)


def _writes(
    connection: Connection, thread: str, namespace: str, checkpoint_id: str | None = None
) -> Mapping[str, Sequence[CheckpointWrite]]:
    """By the id of the checkpoint."""
    table = checkpoint_writes
    conditions = [table.c.thread == thread, table.c.namespace == namespace]
    if checkpoint_id is not None:
        conditions.append(table.c.checkpoint == checkpoint_id)
    statement = select(table).where(*conditions).order_by(table.c.path, table.c.task, table.c.place)
    found: dict[str, list[CheckpointWrite]] = {}
    for row in connection.execute(statement).mappings():
        found.setdefault(row["checkpoint"], []).append(_write(row))
    return found


def _write(row: RowMapping) -> CheckpointWrite:
    return CheckpointWrite(row["task"], row["place"], row["channel"], row["type"], row["body"], row["path"])

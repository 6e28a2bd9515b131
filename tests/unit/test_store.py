from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from sqlalchemy import Connection

from paddock.errors import Conflict, InvalidInput, PoolNotFound, SandboxNotFound, SnapshotNotFound
from paddock.model.sandbox import Sandbox, SandboxLimits, SandboxPool, SandboxSnapshot, SandboxState, SnapshotState
from paddock.store.database import Store
from paddock.store.pool_store import PoolStore
from paddock.store.sandbox_store import SandboxStore
from paddock.store.snapshot_store import SnapshotStore

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("migrated")]
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def a_sandbox(number: int = 0, tenant: str = "default", **fields: object) -> Sandbox:
    at = START + timedelta(seconds=number)
    defaults = {"backend": "local", "image": "code", "state": SandboxState.PENDING, "created_at": at, "changed_at": at}
    return Sandbox.model_validate(defaults | {"id": f"s{number}", "tenant": tenant} | fields)


async def test_stored_sandbox_is_unchanged_after_reopening(tmp_path: Path) -> None:
    kept = a_sandbox(
        expires_at=START.astimezone() + timedelta(hours=1),
        entrypoint=("sleep", "1"),
        env={"A": "b"},
        metadata={"k": "v"},
        extensions={"x": "y"},
        limits=SandboxLimits(cpu=0.5, memory=2**30),
        token="secret",
        record={"pid": 1, "list": [1, {"a": None}]},
        request_key="r",
    )
    async with await Store.open(tmp_path / "p.db") as store:
        await SandboxStore(store).insert(kept)
    async with await Store.open(f"sqlite:///{tmp_path / 'p.db'}") as store:
        assert await SandboxStore(store).get("s0") == kept


async def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        sandboxes, pools, snapshots = SandboxStore(store), PoolStore(store), SnapshotStore(store)
        await sandboxes.insert(a_sandbox(1, "one", request_key="same"))
        other = await sandboxes.insert(a_sandbox(2, "two", request_key="same"))
        assert other.id == "s2"
        with pytest.raises(SandboxNotFound):
            await sandboxes.get("s1", "two")
        assert (await sandboxes.list("two"))[1] == 1
        assert (await sandboxes.by_request_key("one", "same")) == await sandboxes.get("s1")
        await pools.insert(SandboxPool(name="p", tenant="one", image="code", size=1, created_at=START))
        with pytest.raises(PoolNotFound):
            await pools.get("two", "p")
        with pytest.raises(PoolNotFound):
            await pools.delete("two", "p")
        await snapshots.insert(a_snapshot("n1", "one"))
        with pytest.raises(SnapshotNotFound):
            await snapshots.get("n1", "two")


async def test_sandboxes_are_listed_by_page_state_and_metadata(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        sandboxes = SandboxStore(store)
        for number in range(25):
            state = SandboxState.RUNNING if number % 2 else SandboxState.FAILED
            await sandboxes.insert(a_sandbox(number, state=state, metadata={"a.b/c": str(number % 5), "it's": "é"}))
        items, total = await sandboxes.list("default", page=2, page_size=10)
        assert total == 25
        assert [item.id for item in items] == [f"s{number}" for number in range(14, 4, -1)]
        _, running = await sandboxes.list(states=[SandboxState.RUNNING])
        assert running == 12
        items, total = await sandboxes.list(metadata={"a.b/c": "3", "it's": "é"}, states=[SandboxState.RUNNING])
        assert {item.id for item in items} == {"s3", "s13", "s23"}
        assert (await sandboxes.list(metadata={"absent": "3"}))[1] == 0
        assert (await sandboxes.list(states=[]))[1] == 0
        with pytest.raises(InvalidInput):
            await sandboxes.list(metadata={'a"b': "c"})
        with pytest.raises(InvalidInput):
            await sandboxes.list(page=0)
        counts = await sandboxes.counts("default")
        assert counts == {("default", SandboxState.RUNNING): 12, ("default", SandboxState.FAILED): 13}


async def test_concurrent_repeated_requests_create_one_sandbox(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        sandboxes = SandboxStore(store)
        made: list[str] = []

        async def create(number: int) -> None:
            made.append((await sandboxes.insert(a_sandbox(number, request_key="once"))).id)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(create, number)
        assert len(set(made)) == 1
        assert (await sandboxes.list())[1] == 1
        with pytest.raises(Conflict):
            await sandboxes.insert(a_sandbox(int(made[0][1:])))


async def test_only_one_concurrent_transition_succeeds(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        sandboxes = SandboxStore(store)
        await sandboxes.insert(a_sandbox())
        outcomes: list[str] = []

        async def run(number: int) -> None:
            try:
                done = await sandboxes.transition(
                    "s0", [SandboxState.PENDING], SandboxState.RUNNING, "r", str(number), record={"n": number}
                )
                outcomes.append(f"won {done.message}")
            except Conflict as error:
                outcomes.append(error.message)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(run, number)
        now = await sandboxes.get("s0")
        assert sorted(outcomes) == ["Sandbox s0 is Running, so it cannot become Running."] * 19 + [f"won {now.message}"]
        assert now.record == {"n": int(now.message or "")}
        assert now.changed_at > START
        with pytest.raises(SandboxNotFound):
            await sandboxes.transition("none", [SandboxState.PENDING], SandboxState.RUNNING)


async def test_updates_reject_unknown_fields_and_states(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        sandboxes = SandboxStore(store)
        await sandboxes.insert(a_sandbox())
        changed = await sandboxes.update("s0", metadata={"a": "b"}, expires_at=START, limits=SandboxLimits(pids=9))
        assert (changed.metadata, changed.expires_at, changed.limits.pids) == ({"a": "b"}, START, 9)
        with pytest.raises(TypeError):
            await sandboxes.update("s0", metdata={})
        with pytest.raises(TypeError):
            await sandboxes.update("s0", state=SandboxState.RUNNING)
        with pytest.raises(SandboxNotFound):
            await sandboxes.update("none", pool="p")


async def test_expired_and_ended_sandboxes_are_found(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        sandboxes = SandboxStore(store)
        hour = timedelta(hours=1)
        await sandboxes.insert(a_sandbox(1, expires_at=START + hour))
        await sandboxes.insert(a_sandbox(2, expires_at=START))
        await sandboxes.insert(a_sandbox(3, expires_at=START, state=SandboxState.TERMINATED))
        await sandboxes.insert(a_sandbox(4, state=SandboxState.FAILED))
        await sandboxes.insert(a_sandbox(5))
        assert [one.id for one in await sandboxes.expired(START)] == ["s2"]
        assert [one.id for one in await sandboxes.expired(START + hour)] == ["s2", "s1"]
        assert await sandboxes.delete_ended(START + timedelta(seconds=4)) == 1
        assert {one.id for one in (await sandboxes.list())[0]} == {"s1", "s2", "s4", "s5"}
        await sandboxes.delete("s1")
        await sandboxes.delete("s1")


def a_snapshot(snapshot_id: str, tenant: str = "default") -> SandboxSnapshot:
    return SandboxSnapshot(
        id=snapshot_id,
        tenant=tenant,
        backend="local",
        sandbox_id="s0",
        image="code",
        state=SnapshotState.CREATING,
        created_at=START,
        changed_at=START,
    )


async def test_snapshots(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        snapshots = SnapshotStore(store)
        kept = await snapshots.insert(a_snapshot("n1"))
        assert await snapshots.get("n1", "default") == kept
        ready = await snapshots.transition("n1", [SnapshotState.CREATING], SnapshotState.READY)
        assert ready.state == SnapshotState.READY
        with pytest.raises(Conflict):
            await snapshots.transition("n1", [SnapshotState.CREATING], SnapshotState.FAILED)
        assert (await snapshots.list("default", sandbox_id="s0", states=[SnapshotState.READY]))[1] == 1
        assert (await snapshots.list("default", sandbox_id="s1"))[1] == 0
        await snapshots.delete("n1")
        with pytest.raises(SnapshotNotFound):
            await snapshots.get("n1")


async def test_pools(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        pools = PoolStore(store)
        pool = SandboxPool(name="p", tenant="t", image="code", size=1, limits=SandboxLimits(cpu=1), created_at=START)
        await pools.insert(pool)
        with pytest.raises(Conflict, match="pool p already"):
            await pools.insert(pool)
        assert await pools.update("t", "p", size=5) == pool.model_copy(update={"size": 5})
        assert [one.name for one in await pools.list("t")] == ["p"]
        await pools.delete("t", "p")
        with pytest.raises(PoolNotFound):
            await pools.update("t", "p", size=5)


async def test_only_unflushed_writes_skip_the_flush(tmp_path: Path) -> None:
    full, normal = 2, 1

    def level(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    def broken(connection: Connection) -> int:
        raise ValueError(level(connection))

    async with await Store.open(tmp_path / "p.db") as store:
        assert await store.write(level, flush=False) == normal
        with pytest.raises(ValueError, match=str(normal)):
            await store.write(broken, flush=False)
        assert await store.write(level) == full
        # What shares its transaction with something that is flushed is flushed with it.
        held, go = threading.Event(), threading.Event()

        def hold(connection: Connection) -> int:
            held.set()
            go.wait(10)
            return level(connection)

        first = store.submit(hold, flush=False)
        await anyio.to_thread.run_sync(held.wait)
        others = [store.submit(level, flush=flush) for flush in (False, True)]
        go.set()
        levels = [await asyncio.wrap_future(each) for each in (first, *others)]
        assert levels == [normal, full, full]

"""Records of connections: stored in batches, listed with the open ones, and published as events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from paddock.errors import InvalidInput
from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.network.connection_history import ConnectionHistory
from paddock.network.connection_recorder import MAX_EVENTS_PER_SECOND, ConnectionRecorder
from paddock.network.sandbox_network_control import UnconnectedSandboxNetworks
from paddock.store.connection_store import ConnectionPosition, ConnectionStore, TargetTotals
from paddock.store.database import Store
from paddock.store.sandbox_store import SandboxStore

pytestmark = pytest.mark.anyio
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class ConnectedNetworks(UnconnectedSandboxNetworks):
    """Some open connections."""

    def __init__(self, *opened: ConnectionRecord) -> None:
        self.opened = opened

    def open_connections(self, sandbox_id: str) -> Sequence[ConnectionRecord]:
        return [record for record in self.opened if record.sandbox == sandbox_id]


def a_connection(number: int, sandbox: str = "s0", **fields: Any) -> ConnectionRecord:
    started_at = START + timedelta(seconds=number)
    defaults = {"name": "example.com", "port": 443, "duration": 0.5, "allowed": True, "sent": 10, "received": 20}
    return ConnectionRecord.model_validate(
        defaults
        | {"id": f"net-{number:05}", "sandbox": sandbox, "tenant": "default", "started_at": started_at}
        | fields
    )


def denied(number: int, **fields: Any) -> ConnectionRecord:
    return a_connection(
        number, **{"allowed": False, "refusal": ConnectionRefusal.NO_RULE, "sent": 0, "received": 0, **fields}
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        for number, state in enumerate((SandboxState.RUNNING, SandboxState.FAILED)):
            await SandboxStore(opened).insert(
                Sandbox(
                    id=f"s{number}",
                    tenant="default",
                    backend="local",
                    image="code",
                    state=state,
                    created_at=START,
                    changed_at=START,
                )
            )
        yield opened


@pytest.fixture
def connections(store: Store) -> ConnectionStore:
    return ConnectionStore(store)


@pytest.fixture
async def events(store: Store) -> EventLog:
    return await EventLog.open(store)


@pytest.fixture
async def recorder(connections: ConnectionStore, events: EventLog) -> AsyncIterator[ConnectionRecorder]:
    opened = await ConnectionRecorder.open(connections, events, keep=10 * 365 * 86400, every=0.01)
    yield opened
    await opened.close()


def ids(records: Sequence[ConnectionRecord]) -> list[str]:
    return [record.id for record in records]


async def insert(store: Store, *records: ConnectionRecord) -> None:
    await store.write(ConnectionStore.insert_work(records))


async def test_stored_connection_is_unchanged(recorder: ConnectionRecorder, connections: ConnectionStore) -> None:
    record = denied(
        1,
        run="run-1",
        session="ses-1",
        address="93.184.216.34",
        server_name="other.example",
        rule="deny *.example.com",
        refusal=ConnectionRefusal.SERVER_NAME,
        message="It asked for another server.",
    )
    recorder.record(record)
    await recorder.flush()
    assert await connections.list_of_sandbox("s0") == [record]
    assert await connections.find("s0", record.id) == record
    assert await connections.find("s1", record.id) is None


async def test_records_are_written_without_a_request(recorder: ConnectionRecorder, events: EventLog) -> None:
    recorder.record(a_connection(1))
    async for event in events.follow("sandbox/s0"):
        assert event.type is EventType.NETWORK_CONNECTION and event.tenant == "default"
        assert event.data == {
            "id": "net-00001",
            "host": "example.com",
            "port": 443,
            "allowed": True,
            "refusal": None,
            "rule": None,
            "sent": 10,
            "received": 20,
            "seconds": 0.5,
        }
        return


async def test_events_are_limited_and_rows_complete(
    recorder: ConnectionRecorder, connections: ConnectionStore, events: EventLog
) -> None:
    for number in range(3 * MAX_EVENTS_PER_SECOND):
        recorder.record(a_connection(number))
    await recorder.flush()
    # A new second may begin meanwhile.
    assert MAX_EVENTS_PER_SECOND <= len(await events.read("sandbox/s0", limit=1000)) <= 2 * MAX_EVENTS_PER_SECOND
    assert len(await connections.list_of_sandbox("s0", limit=1000)) == 3 * MAX_EVENTS_PER_SECOND


async def test_no_event_follows_the_end_of_a_sandbox(
    recorder: ConnectionRecorder, connections: ConnectionStore, events: EventLog
) -> None:
    recorder.record(a_connection(1, "s1"))
    recorder.record(a_connection(2, "s2"))
    await recorder.flush()
    assert await events.read("sandbox/s1") == await events.read("sandbox/s2") == []
    assert ids(await connections.list_of_sandbox("s1")) == ["net-00001"]


async def test_hostile_names_do_not_break_the_batch(recorder: ConnectionRecorder, connections: ConnectionStore) -> None:
    recorder.record(denied(1, name=None, address=None, server_name="\ud800\0" + "x" * 1000))
    recorder.record(a_connection(2))
    await recorder.flush()
    first, second = reversed(await connections.list_of_sandbox("s0"))
    assert first.server_name == "??" + "x" * 498 and first.host == "?"
    assert second == a_connection(2)


async def test_records_survive_a_failing_database(
    store: Store, recorder: ConnectionRecorder, connections: ConnectionStore
) -> None:
    await store.write(lambda connection: connection.execute(text("ALTER TABLE network_connections RENAME TO away")))
    recorder.record(a_connection(1))
    await recorder.flush()
    recorder.record(a_connection(2))
    await store.write(lambda connection: connection.execute(text("ALTER TABLE away RENAME TO network_connections")))
    await recorder.flush()
    await recorder.flush()
    assert ids(await connections.list_of_sandbox("s0")) == ["net-00002", "net-00001"]


async def test_repeated_write_stores_a_connection_once(store: Store, connections: ConnectionStore) -> None:
    await insert(store, a_connection(1))
    await insert(store, a_connection(1), a_connection(2))
    assert len(await connections.list_of_sandbox("s0")) == 2


async def test_list_is_filtered_and_paged(store: Store, connections: ConnectionStore) -> None:
    await insert(store, *(a_connection(n) if n % 2 else denied(n) for n in range(10)), a_connection(11, "s1"))
    first = await connections.list_of_sandbox("s0", limit=4)
    assert ids(first) == ["net-00009", "net-00008", "net-00007", "net-00006"]
    rest = await connections.list_of_sandbox("s0", before=ConnectionPosition(first[-1].started_at, first[-1].id))
    assert ids(rest) == [f"net-{n:05}" for n in range(5, -1, -1)]
    assert ids(await connections.list_of_sandbox("s0", allowed=False, limit=2)) == ["net-00008", "net-00006"]
    assert ids(await connections.list_in_order("s0", limit=3)) == ["net-00000", "net-00001", "net-00002"]
    position = ConnectionPosition(rest[0].started_at, rest[0].id)
    assert ids(await connections.list_in_order("s0", after=position, limit=2)) == ["net-00006", "net-00007"]


async def explain(store: Store, condition: str) -> Sequence[Any]:
    plan = text(f"EXPLAIN QUERY PLAN SELECT * FROM network_connections WHERE {condition}")
    return await store.read(lambda connection: connection.execute(plan).all())


async def test_queries_use_indexes(store: Store) -> None:
    for condition, index in (
        ("sandbox = 's0' ORDER BY started_at DESC, id DESC", "sandbox_started_at_id"),
        ("sandbox = 's0' AND (started_at, id) < ('2', 'x') ORDER BY started_at DESC, id DESC", "sandbox_started_at_id"),
        ("sandbox = 's0' AND allowed = 0 ORDER BY started_at DESC, id DESC", "sandbox_allowed_started_at_id"),
        ("started_at < '2'", "started_at"),
    ):
        rows = await explain(store, condition)
        assert f"ix_network_connections_{index} " in rows[0][3], rows
        assert len(rows) == 1, rows


async def test_old_and_very_many_records_are_deleted(store: Store, connections: ConnectionStore) -> None:
    await insert(store, *map(a_connection, range(10)), a_connection(20, "s1"))
    assert await connections.prune(START + timedelta(seconds=3)) == 3
    assert await connections.trim("s0", 5) == 2
    assert await connections.trim("s0", 5) == 0 == await connections.trim("s2", 5)
    assert ids(await connections.list_in_order("s0")) == [f"net-{n:05}" for n in range(5, 10)]
    assert ids(await connections.list_in_order("s1")) == ["net-00020"]


async def test_open_connections_are_listed_with_ended_ones(
    store: Store, recorder: ConnectionRecorder, connections: ConnectionStore
) -> None:
    # The connection 4 was open a moment ago, and has ended meanwhile.
    opened = [a_connection(n, sent=1) for n in (2, 4, 7)]
    history = ConnectionHistory(connections, ConnectedNetworks(*opened), recorder.flush)
    for record in (denied(0), a_connection(1), a_connection(4), denied(5)):
        recorder.record(record)

    async def listed(**filters: Any) -> list[tuple[int, bool]]:
        return [(int(each.record.id[-1]), each.open) for each in (await history.list("s0", **filters)).items]

    everything = [(7, True), (5, False), (4, False), (2, True), (1, False), (0, False)]
    assert await listed() == everything
    assert await listed(allowed=False) == [(5, False), (0, False)]
    assert await listed(is_open=True) == [(7, True), (4, True), (2, True)]
    assert await listed(is_open=False) == [(5, False), (4, False), (1, False), (0, False)]
    paged: list[tuple[int, bool]] = []
    before = None
    for _ in range(3):
        page = await history.list("s0", before=before, limit=2)
        paged += [(int(each.record.id[-1]), each.open) for each in page.items]
        before = page.next
    assert paged == everything and before is None
    with pytest.raises(InvalidInput, match="has no connection 'net-x'"):
        await history.list("s0", before="net-x")


async def test_totals_count_open_and_denied_connections(store: Store, connections: ConnectionStore) -> None:
    await insert(
        store,
        *map(a_connection, range(3)),
        denied(3),
        denied(4, name=None, address="10.0.0.1", port=22),
        a_connection(5, "s1"),
    )
    networks = ConnectedNetworks(a_connection(6), a_connection(7, name="b.org"))
    assert await ConnectionHistory(connections, networks).totals("s0") == [
        TargetTotals("example.com", 443, 5, 1, 40, 80),
        TargetTotals("10.0.0.1", 22, 1, 1, 0, 0),
        TargetTotals("b.org", 443, 1, 0, 10, 20),
    ]

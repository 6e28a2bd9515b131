"""The file `network.jsonl` of a run: the connections of all its attempts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.network.connection_history import ConnectionHistory
from paddock.network.sandbox_network_control import UnconnectedSandboxNetworks
from paddock.runs.results.connection_export import write_attempt_connections
from paddock.runs.results.run_folder import RunFolder
from paddock.store.connection_store import ConnectionStore
from paddock.store.database import Store

pytestmark = pytest.mark.anyio
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_connection(number: int, sandbox: str) -> ConnectionRecord:
    return ConnectionRecord(
        id=f"net-{number}",
        sandbox=sandbox,
        tenant="default",
        run="run-1",
        started_at=START + timedelta(seconds=number),
        duration=1,
        name="example.com",
        port=443,
        allowed=False,
        refusal=ConnectionRefusal.NO_RULE,
    )


def attempts(folder: RunFolder) -> list[tuple[int, str]]:
    lines = map(json.loads, folder.network.read_text().splitlines())
    return [(line["attempt"], line["id"]) for line in lines]


async def test_file_has_the_connections_of_every_attempt_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs", "run-1")
    folder.create()
    async with await Store.open(tmp_path / "p.db") as store:
        connections = ConnectionHistory(ConnectionStore(store), UnconnectedSandboxNetworks())
        assert await write_attempt_connections(connections, folder, 1, "sb-1") == 0
        assert not folder.network.exists()
        first, second = [a_connection(2, "sb-1"), a_connection(1, "sb-1")], [a_connection(3, "sb-2")]
        # A user can give any sandbox the metadata of a run, so the connections are found by sandbox.
        foreign = a_connection(4, "sb-3")
        await store.write(ConnectionStore.insert_work([*first, *second, foreign]))
        for _ in range(2):
            await write_attempt_connections(connections, folder, 1, "sb-1")
            assert attempts(folder) == [(1, "net-1"), (1, "net-2")]
        for _ in range(2):
            await write_attempt_connections(connections, folder, 2, "sb-2")
            assert attempts(folder) == [(1, "net-1"), (1, "net-2"), (2, "net-3")]
    assert json.loads(folder.network.read_text().splitlines()[0]) == {
        "attempt": 1,
        "id": "net-1",
        "started_at": "2026-01-02T03:04:06Z",
        "duration": 1.0,
        "name": "example.com",
        "port": 443,
        "sent": 0,
        "received": 0,
        "allowed": False,
        "refusal": "no_rule",
    }


async def test_connections_are_read_in_pages(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs", "run-1")
    folder.create()
    async with await Store.open(tmp_path / "p.db") as store:
        await store.write(ConnectionStore.insert_work([a_connection(n, "sb-1") for n in range(2500)]))
        connections = ConnectionHistory(ConnectionStore(store), UnconnectedSandboxNetworks())
        assert await write_attempt_connections(connections, folder, 1, "sb-1") == 2500
    assert len(set(attempts(folder))) == 2500

"""The archive's writer process, which may die at any time."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from paddock.config.llm import ArchiveConfig
from paddock.errors import NotFound
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import Exchange
from paddock.store.database import Store
from tests.unit.llm.archive.exchange_samples import an_exchange

TENANT = "default"


def chat_exchange(text: str) -> Exchange:
    return an_exchange(messages=[{"role": "user", "content": text}])


def children() -> list[int]:
    """Return the ids of the writer processes that this process has started."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"archive.writer_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


@pytest.mark.parametrize("durability", ["behind", "strict"])
def test_written_exchanges_are_found(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(
                store, ArchiveConfig.model_validate({"durability": durability}), separate_process=True
            )
            assert not children()
            first, second = chat_exchange("hello there"), chat_exchange("goodbye then")
            archive.enqueue(first)
            await archive.write_now(second)
            for exchange in (first, second):
                assert (await archive.get(TENANT, exchange.id)).request == exchange.request
            await archive.wait_until_searchable()
            found, _ = await archive.search(TENANT, "goodbye")
            assert [each.id for each in found] == [second.id]
            await archive.delete(TENANT, first.id)
            with pytest.raises(NotFound):
                await archive.get(TENANT, first.id)
            assert (archive.lost_count, archive.waiting_bytes, len(children())) == (0, 0, 1)
            await archive.close()
            assert not children()

    asyncio.run(scenario())


def test_dead_writer_process_is_replaced_and_its_commands_resent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(store, ArchiveConfig(), separate_process=True)
            written_exchanges = [chat_exchange(f"number {number}") for number in range(30)]
            for number, exchange in enumerate(written_exchanges):
                archive.enqueue(exchange)
                if number % 10 == 5:
                    await asyncio.sleep(0.1)
                    for pid in children():
                        os.kill(pid, signal.SIGKILL)
            await archive.flush()
            for exchange in written_exchanges:
                assert (await archive.get(TENANT, exchange.id)).request == exchange.request
            listed, _ = await archive.list_exchanges(TENANT, limit=100)
            assert len(listed) == len(written_exchanges) and archive.lost_count == 0
            await archive.close()

    asyncio.run(scenario())


def test_closing_writes_queued_exchanges(tmp_path: Path) -> None:
    async def scenario() -> None:
        written_exchanges = [chat_exchange(f"number {number}") for number in range(200)]
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(store, ArchiveConfig(), separate_process=True)
            for exchange in written_exchanges:
                archive.enqueue(exchange)
            await archive.close()
            assert (archive.lost_count, archive.waiting_bytes) == (0, 0)
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(store, ArchiveConfig())
            assert len((await archive.list_exchanges(TENANT, limit=1000))[0]) == len(written_exchanges)
            await archive.close()

    asyncio.run(scenario())


def test_overload_slows_requests_and_loses_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(
                store, ArchiveConfig.model_validate({"max_waiting": "4Mi"}), separate_process=True
            )
            waits, most = 0, 0
            for number in range(400):  # 12 MB in all, three times what may wait.
                archive.enqueue(chat_exchange(f"{number} {os.urandom(15_000).hex()}"))
                most = max(most, archive.waiting_bytes)
                if archive.is_crowded:
                    waits += 1
                    await archive.wait_for_capacity()
                    assert not archive.is_crowded
            await archive.flush()
            listed, _ = await archive.list_exchanges(TENANT, limit=1000)
            assert (len(listed), archive.lost_count) == (400, 0)
            assert waits > 2
            assert most < 2 * 2**20
            await archive.close()

    asyncio.run(scenario())


def test_stalled_writer_process_does_not_block_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.llm.archive.remote_writer.MAX_CAPACITY_WAIT", 0.1)

    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(
                store, ArchiveConfig.model_validate({"max_waiting": "4Mi"}), separate_process=True
            )
            archive.enqueue(chat_exchange("first"))
            await archive.flush()
            (pid,) = children()
            os.kill(pid, signal.SIGSTOP)
            try:
                for number in range(40):
                    archive.enqueue(chat_exchange(f"{number} {os.urandom(15_000).hex()}"))
                assert archive.is_crowded
                await asyncio.wait_for(archive.wait_for_capacity(), 2)
                assert archive.is_crowded
            finally:
                os.kill(pid, signal.SIGCONT)
            await archive.close()
            assert archive.lost_count == 0

    asyncio.run(scenario())


def test_writer_process_starts_before_the_first_exchange(tmp_path: Path) -> None:
    """The process starts early: exchanges queued during its start would be lost with the server."""

    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await ExchangeArchive.open(store, ArchiveConfig(), separate_process=True)
            archive.ensure_writable()
            async with asyncio.timeout(5):
                while not children():
                    await asyncio.sleep(0.01)
            await archive.close()
            assert not children()
            archive.ensure_writable()
            assert not children(), "nobody is employed once it is closed"

    asyncio.run(scenario())

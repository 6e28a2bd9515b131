"""The archivist sits in a process of its own, and may die like any other."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from paddock.config.llm import ArchiveConfig
from paddock.errors import NotFound
from paddock.llm.archive.archive import Archive
from paddock.llm.exchange import Exchange
from paddock.store.database import Store
from tests.unit.llm.archive_cases import an_exchange

TENANT = "default"


def chat_exchange(text: str) -> Exchange:
    return an_exchange(messages=[{"role": "user", "content": text}])


def children() -> list[int]:
    """The archivists of this process."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"archivist" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


@pytest.mark.parametrize("durability", ["behind", "strict"])
def test_what_it_was_given_is_found(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig.model_validate({"durability": durability}), apart=True)
            assert not children()
            first, second = chat_exchange("hello there"), chat_exchange("goodbye then")
            archive.keep(first)
            await archive.keep_now(second)
            for exchange in (first, second):
                assert (await archive.get(TENANT, exchange.id)).request == exchange.request
            await archive.catch_up()
            found, _ = await archive.search(TENANT, "goodbye")
            assert [each.id for each in found] == [second.id]
            await archive.delete(TENANT, first.id)
            with pytest.raises(NotFound):
                await archive.get(TENANT, first.id)
            assert (archive.lost, archive.waiting_bytes, len(children())) == (0, 0, 1)
            await archive.close()
            assert not children()

    asyncio.run(scenario())


def test_a_dead_archivist_is_replaced_and_its_letters_are_sent_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig(), apart=True)
            kept = [chat_exchange(f"number {number}") for number in range(30)]
            for number, exchange in enumerate(kept):
                archive.keep(exchange)
                if number % 10 == 5:
                    await asyncio.sleep(0.1)
                    for pid in children():
                        os.kill(pid, signal.SIGKILL)
            await archive.flush()
            for exchange in kept:
                assert (await archive.get(TENANT, exchange.id)).request == exchange.request
            listed, _ = await archive.list(TENANT, limit=100)
            assert len(listed) == len(kept) and archive.lost == 0
            await archive.close()

    asyncio.run(scenario())


def test_what_waits_when_it_closes_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        kept = [chat_exchange(f"number {number}") for number in range(200)]
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig(), apart=True)
            for exchange in kept:
                archive.keep(exchange)
            await archive.close()
            assert (archive.lost, archive.waiting_bytes) == (0, 0)
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig())
            assert len((await archive.list(TENANT, limit=1000))[0]) == len(kept)
            await archive.close()

    asyncio.run(scenario())


def test_who_says_more_than_can_be_written_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig.model_validate({"max_waiting": "4Mi"}), apart=True)
            waits, most = 0, 0
            for number in range(400):  # 12 MB in all, three times what may wait.
                archive.keep(chat_exchange(f"{number} {os.urandom(15_000).hex()}"))
                most = max(most, archive.waiting_bytes)
                if archive.crowded:
                    waits += 1
                    await archive.room()
                    assert not archive.crowded
            await archive.flush()
            listed, _ = await archive.list(TENANT, limit=1000)
            assert (len(listed), archive.lost) == (400, 0)
            assert waits > 2
            assert most < 2 * 2**20
            await archive.close()

    asyncio.run(scenario())


def test_nobody_waits_for_an_archivist_that_stands_still_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.llm.archive.remote.PATIENCE", 0.1)

    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig.model_validate({"max_waiting": "4Mi"}), apart=True)
            archive.keep(chat_exchange("first"))
            await archive.flush()
            (pid,) = children()
            os.kill(pid, signal.SIGSTOP)
            try:
                for number in range(40):
                    archive.keep(chat_exchange(f"{number} {os.urandom(15_000).hex()}"))
                assert archive.crowded
                await asyncio.wait_for(archive.room(), 2)
                assert archive.crowded
            finally:
                os.kill(pid, signal.SIGCONT)
            await archive.close()
            assert archive.lost == 0

    asyncio.run(scenario())


def test_it_is_there_before_there_is_something_to_keep(tmp_path: Path) -> None:
    """What is kept while it starts would be lost with the server."""

    async def scenario() -> None:
        async with await Store.open(tmp_path / "a.db") as store:
            archive = await Archive.open(store, ArchiveConfig(), apart=True)
            archive.check()
            async with asyncio.timeout(5):
                while not children():
                    await asyncio.sleep(0.01)
            await archive.close()
            assert not children()
            archive.check()
            assert not children(), "nobody is employed once it is closed"

    asyncio.run(scenario())

"""The archive on a full disk, and after its process was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from paddock.config.llm import ArchiveConfig
from paddock.errors import Unavailable
from paddock.llm.archive.archive import ExchangeArchive
from paddock.store.database import Store
from tests.unit.llm.archive.exchange_samples import an_exchange

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@asynccontextmanager
async def archive_on(disk: Path, **settings: Any) -> AsyncIterator[ExchangeArchive]:
    async with await Store.open(disk / "p.db") as store:
        opened = await ExchangeArchive.open(store, ArchiveConfig(**settings), ())
        try:
            yield opened
        finally:
            await opened.close()


def fill(disk: Path) -> Path:
    """Take all the space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


def large_exchange(number: int) -> Any:
    return an_exchange(number, request=os.urandom(30_000))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.root
async def test_proxy_answers_while_disk_is_full(small_disk: Path) -> None:
    async with archive_on(small_disk, max_waiting="1MiB") as exchange_archive:
        first = large_exchange(0)
        exchange_archive.enqueue(first)
        await exchange_archive.flush()
        filler = fill(small_disk)
        with structlog.testing.capture_logs() as logged:
            waits = [large_exchange(number) for number in range(1, 21)]
            for exchange in waits:
                exchange_archive.enqueue(exchange)
            with pytest.raises(Unavailable, match="full"):
                await exchange_archive.flush()
            assert exchange_archive.lost_count == 0 and exchange_archive.waiting_bytes > 500_000
            exchange_archive.ensure_writable()
            for number in range(100, 150):
                exchange_archive.enqueue(large_exchange(number))
            lost = exchange_archive.lost_count
            assert 30 <= lost < 50 and exchange_archive.waiting_bytes <= 2**20
        shouts = [entry for entry in logged if entry["log_level"] == "error"]
        assert len(shouts) == 1, "it is shouted, and not twice in ten seconds"
        assert (await exchange_archive.get("default", first.id)).request == first.request
        filler.unlink()
        await eventually(lambda: exchange_archive.waiting_bytes == 0)
        assert exchange_archive.lost_count == lost
        for exchange in waits:
            assert await exchange_archive.get("default", exchange.id) == exchange
        exchange_archive.enqueue(after := large_exchange(999))
        await exchange_archive.flush()
        assert await exchange_archive.get("default", after.id) == after


@pytest.mark.root
async def test_strict_durability_refuses_while_disk_is_full(small_disk: Path) -> None:
    async with archive_on(small_disk, durability="strict") as exchange_archive:
        await exchange_archive.write_now(large_exchange(0))
        exchange_archive.ensure_writable()
        filler = fill(small_disk)
        refused = large_exchange(1)
        with pytest.raises(Unavailable, match="full"):
            await exchange_archive.write_now(refused)
        with pytest.raises(Unavailable, match="strict"):
            exchange_archive.ensure_writable()
        filler.unlink()

        def writable() -> bool:
            try:
                exchange_archive.ensure_writable()
            except Unavailable:
                return False
            return True

        await eventually(writable)
        await exchange_archive.write_now(later := large_exchange(2))
        found, _ = await exchange_archive.list_exchanges("default")
        assert found[0].id == later.id and refused.id not in {each.id for each in found}


@pytest.mark.root
async def test_closing_with_a_full_disk_counts_lost_exchanges(small_disk: Path) -> None:
    async with archive_on(small_disk) as exchange_archive:
        filler = fill(small_disk)
        for number in range(20):
            exchange_archive.enqueue(large_exchange(number))
        await exchange_archive.close()
        assert exchange_archive.lost_count == 20
        exchange_archive.enqueue(large_exchange(21))
        assert exchange_archive.lost_count == 21
        filler.unlink()


async def test_bad_exchange_does_not_block_the_others(tmp_path: Path) -> None:
    async with archive_on(tmp_path) as exchange_archive:
        bad: Any = an_exchange(1, status="not a number", id=object())
        worse: Any = an_exchange(2, request=None, response=[])
        good = an_exchange(3)
        exchange_archive.enqueue(bad)
        exchange_archive.enqueue(worse)
        exchange_archive.enqueue(good)
        await exchange_archive.flush()
        assert exchange_archive.lost_count == 2 and await exchange_archive.get("default", good.id) == good
        with pytest.raises(Unavailable, match="cannot be archived"):
            await exchange_archive.write_now(bad)
        huge = an_exchange(4, status=2**70)
        with pytest.raises(Unavailable, match="cannot be archived"):
            await exchange_archive.write_now(huge)


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.unit.llm.archive.exchange_samples import an_exchange, archive

async def main():
    async with archive(Path(sys.argv[1]), durability=sys.argv[2]) as kept:
        number = 0
        while True:
            exchange = an_exchange(number)
            if sys.argv[2] == "strict":
                await kept.write_now(exchange)
                print(exchange.id, flush=True)
            else:
                kept.enqueue(exchange)
                await asyncio.sleep(0)
                print(exchange.id, flush=True)
            number += 1

asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["strict", "behind"])
async def test_acknowledged_exchanges_survive_a_kill(tmp_path: Path, durability: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path, durability],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(300)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.read().split()
    process.stdout.close()
    process.wait(10)
    async with archive_on(tmp_path) as exchange_archive:
        found = {exchange.id async for exchange in exchange_archive.iter_exchanges("default")}
        if durability == "strict":
            assert set(acknowledged) <= found
        else:
            # Only the last moment is missing, and nothing before it.
            ordered = [name in found for name in acknowledged]
            assert ordered == sorted(ordered, reverse=True)
        exchange_archive.enqueue(new := an_exchange(9_999_999))
        await exchange_archive.wait_until_searchable()
        assert await exchange_archive.get("default", new.id) == new

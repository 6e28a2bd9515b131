"""Model requests of runs are counted live, and from where an earlier server left off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.config.llm import ArchiveConfig
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.neutral import TokenUsage
from paddock.llm.metering.run_traffic import RunTrafficCounters
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.model.runs import ModelUsage
from paddock.store.database import Store

from ..archive.exchange_samples import START, an_exchange

pytestmark = pytest.mark.anyio
NOW = START + 500.0


class Server:
    """The parts of a server that see every exchange."""

    def __init__(self, archive: ExchangeArchive, ledger: UsageLedger) -> None:
        self.archive = archive
        self.ledger = ledger
        self.counters = RunTrafficCounters(archive, ledger, lambda: NOW)

    def finish_exchange(self, exchange: Exchange) -> None:
        """End an exchange as the gateway does."""
        self.ledger.count_exchange(exchange)
        self.counters.end_exchange(exchange)
        self.archive.enqueue(exchange)


@asynccontextmanager
async def server(directory: Path, **settings: Any) -> AsyncIterator[Server]:
    async with await Store.open(directory / "p.db") as store:
        archive = await ExchangeArchive.open(store, ArchiveConfig(**settings))
        ledger = await UsageLedger.open(store)
        try:
            yield Server(archive, ledger)
        finally:
            await ledger.close()
            await archive.close()


def succeeded(number: int, run: str | None = "run-1", tenant: str = "acme", **more: Any) -> Exchange:
    facts = {"usage": TokenUsage(10, 2), "cost": 0.25, "provider_kind": "openai", "provider_model": "m-1", **more}
    exchange = an_exchange(number, **facts)
    exchange.caller = ModelCaller(tenant, "key-1", "sb-1", run)
    return exchange


def failed(number: int, **more: Any) -> Exchange:
    facts = {"outcome": ExchangeOutcome.FAILED, "status": 502, "error": f"trouble {number}", **more}
    return succeeded(number, usage=None, cost=None, **facts)


async def test_requests_are_counted_at_start_and_end(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        counters = machine.counters
        counters.start_counting("run-1", "acme")
        assert counters.traffic_of("run-1") == ModelUsage()
        first, second = succeeded(1), failed(2)
        counters.begin_exchange(first)
        counters.begin_exchange(second)
        assert counters.traffic_of("run-1") == ModelUsage(under_way=2, last_at=second.at)
        machine.finish_exchange(first)
        machine.finish_exchange(second)
        assert counters.traffic_of("run-1") == ModelUsage(
            requests=2,
            input_tokens=10,
            output_tokens=2,
            cost=0.25,
            model="m-1",
            failed=1,
            last_error="trouble 2",
            last_at=NOW,
            failing=1,
            unreached=1,
            failing_since=NOW,
        )


async def test_failures_since_the_last_answer_are_counted_also_after_a_restart(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        machine.counters.start_counting("run-1", "acme")
        for exchange in (failed(1), succeeded(2), failed(3), failed(4, status=429), failed(5)):
            machine.finish_exchange(exchange)
        live = machine.counters.traffic_of("run-1")
        assert (live.failed, live.failing, live.unreached) == (4, 3, 2)
    async with server(tmp_path) as machine:
        earlier = await machine.counters.resume_counting("run-1", "acme")
        assert (earlier.failed, earlier.failing, earlier.unreached) == (4, 3, 2)
        assert earlier.failing_since == pytest.approx(START + 3, abs=5)
        machine.finish_exchange(succeeded(6))
        answered = machine.counters.traffic_of("run-1")
        assert (answered.failing, answered.unreached, answered.failing_since) == (0, 0, None)


async def test_unpriced_and_scripted_requests_have_no_known_cost(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        machine.counters.start_counting("run-1", "acme")
        machine.finish_exchange(succeeded(1, cost=None))
        assert (machine.counters.traffic_of("run-1").cost, machine.counters.traffic_of("run-1").scripted) == (
            None,
            False,
        )
        machine.finish_exchange(succeeded(2, cost=0.0, provider_kind="script"))
        assert (machine.counters.traffic_of("run-1").cost, machine.counters.traffic_of("run-1").scripted) == (0.0, True)
        machine.finish_exchange(succeeded(3, usage=TokenUsage(2**60, 1)))
        assert machine.counters.traffic_of("run-1").input_tokens == 20


async def test_requests_of_other_tenants_are_not_counted(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        machine.counters.start_counting("run-1", "acme")
        for exchange in (succeeded(1, run=None), succeeded(2, run="run-2"), succeeded(3, tenant="somebody else")):
            machine.counters.begin_exchange(exchange)
            machine.finish_exchange(exchange)
        assert machine.counters.traffic_of("run-1") == machine.counters.traffic_of("run-2") == ModelUsage()


async def test_waiters_are_woken_by_changes(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        counters = machine.counters
        counters.start_counting("run-1", "acme")
        waiting = [asyncio.create_task(counters.wait_for_change("run-1", after)) for after in (None, ModelUsage())]
        await asyncio.sleep(0)
        exchange = succeeded(1)
        counters.begin_exchange(exchange)
        async with asyncio.timeout(5):
            assert [(await each).under_way for each in waiting] == [1, 1]
            assert (await counters.wait_for_change("run-1", ModelUsage())).under_way == 1  # It is another already.
            last = asyncio.create_task(counters.wait_for_change("run-1"))
            await asyncio.sleep(0)
            assert not last.done()
            counters.stop_counting("run-1")
            assert (await last).under_way == 1
        machine.finish_exchange(exchange)
        assert counters.traffic_of("run-1") == ModelUsage()


async def test_waiting_for_an_unwatched_run(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        counters = machine.counters
        early = asyncio.create_task(counters.wait_for_change("run-1", ModelUsage()))
        await asyncio.sleep(0)
        counters.start_counting("run-2", "acme")
        counters.start_counting("run-1", "acme")
        await asyncio.sleep(0.01)
        assert not early.done()
        counters.begin_exchange(succeeded(1))
        async with asyncio.timeout(5):
            assert (await early).under_way == 1


async def test_resumed_run_has_its_earlier_requests(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        machine.counters.start_counting("run-1", "acme")
        machine.finish_exchange(succeeded(1))
        machine.counters.stop_counting("run-1")
        machine.finish_exchange(succeeded(2))
        assert (await machine.counters.resume_counting("run-1", "acme")).requests == 2


async def test_restarted_server_continues_counting(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        machine.counters.start_counting("run-1", "acme")
        for exchange in (
            succeeded(1, provider_model="old", provider_kind="replay"),
            failed(2),
            succeeded(3),
            failed(4),
        ):
            machine.finish_exchange(exchange)
        machine.finish_exchange(succeeded(5, run="run-2"))
        before = machine.counters.traffic_of("run-1")
    async with server(tmp_path) as machine:
        found = await machine.counters.resume_counting("run-1", "acme")
        assert found.model_copy(update={"last_at": NOW, "failing_since": NOW}) == before
        assert found.last_at is not None and START < found.last_at < NOW
        assert await machine.counters.resume_counting("run-1", "acme") == found
        machine.finish_exchange(succeeded(6, provider_model="new"))
        now = machine.counters.traffic_of("run-1")
        assert (now.requests, now.model, now.last_error) == (5, "new", "trouble 4")


async def test_queued_and_concurrent_requests_are_counted_once(tmp_path: Path) -> None:
    async with server(tmp_path) as machine:
        early, late = succeeded(1), succeeded(2)
        machine.counters.begin_exchange(early)
        machine.counters.begin_exchange(late)
        machine.finish_exchange(early)
        assert machine.archive.waiting_bytes
        opening = asyncio.create_task(machine.counters.resume_counting("run-1", "acme"))
        await asyncio.sleep(0)
        machine.finish_exchange(late)
        third = succeeded(3)
        machine.counters.begin_exchange(third)
        async with asyncio.timeout(5):
            assert (await opening).requests == 2
        machine.finish_exchange(third)
        assert (machine.counters.traffic_of("run-1").requests, machine.counters.traffic_of("run-1").under_way) == (3, 0)


async def test_exchange_archived_before_its_end_is_counted_once(tmp_path: Path) -> None:
    async with server(tmp_path, durability="strict") as machine:
        exchange = succeeded(1)
        await machine.archive.write_now(exchange)
        assert (await machine.counters.resume_counting("run-1", "acme")).requests == 1
        machine.counters.end_exchange(exchange)
        assert machine.counters.traffic_of("run-1").requests == 1


async def test_without_an_archive_earlier_requests_come_from_the_ledger(tmp_path: Path) -> None:
    async with server(tmp_path, enabled=False) as machine:
        for exchange in (succeeded(1), succeeded(2), failed(3)):
            machine.finish_exchange(exchange)
    async with server(tmp_path, enabled=False) as machine:
        machine.finish_exchange(succeeded(4))
        opening = asyncio.create_task(machine.counters.resume_counting("run-1", "acme", "sb-1"))
        await asyncio.sleep(0)
        machine.finish_exchange(succeeded(5))
        found = await opening
        assert (found.requests, found.failed, found.input_tokens, found.output_tokens) == (5, 1, 40, 8)
        assert (found.cost, found.model) == (1.0, "m-1")

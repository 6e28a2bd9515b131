"""Total budgets of keys."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from paddock.errors import QuotaExceeded
from paddock.llm.exchange import ModelCaller
from paddock.llm.metering.budgets import IDLE_ACCOUNT_SECONDS, BudgetSpent, KeyBudgets
from paddock.llm.metering.key_authentication import KeyHolder
from paddock.model.keys import KeyBudget

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class SampleTotals:
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass
class SlowLedger:
    """A ledger that takes its time."""

    used: dict[str, SampleTotals] = field(default_factory=dict)
    reads: int = 0

    async def totals_of_key(self, key_id: str) -> SampleTotals:
        self.reads += 1
        await asyncio.sleep(0.001)
        return self.used.get(key_id, SampleTotals())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def holder(key: str = "k", **budget: float) -> KeyHolder:
    return KeyHolder(ModelCaller("acme", key), budget=KeyBudget.model_validate(budget) if budget else None)


async def ask(budgets: KeyBudgets, key_holder: KeyHolder, tokens: int = 0, cost: float | None = None) -> None:
    await budgets.begin_request(key_holder)
    budgets.settle_request(key_holder, tokens, cost)


async def test_keys_without_a_budget_have_no_account() -> None:
    book = SlowLedger()
    budgets = KeyBudgets(book)
    for _ in range(10):
        await ask(budgets, holder(), 10**9, 10**9)
    assert (len(budgets), book.reads) == (0, 0)


async def test_request_budget() -> None:
    budgets = KeyBudgets(SlowLedger())
    key_holder = holder(requests=3)
    for _ in range(3):
        await ask(budgets, key_holder)
    with pytest.raises(BudgetSpent, match="used its budget of 3 requests") as raised:
        await ask(budgets, key_holder)
    assert isinstance(raised.value, QuotaExceeded)
    await ask(budgets, holder("other", requests=3))


async def test_token_and_cost_budgets() -> None:
    budgets = KeyBudgets(SlowLedger())
    key_holder = holder(tokens=100, cost=0.5)
    await ask(budgets, key_holder, 99, 0.1)
    await ask(budgets, key_holder, 51, None)
    with pytest.raises(BudgetSpent, match="150 of its budget of 100 tokens"):
        await ask(budgets, key_holder)
    rich = holder("rich", cost=0.5)
    await ask(budgets, rich, 10**6, 0.75)
    with pytest.raises(BudgetSpent, match=r"0.7500 US dollars, and its budget is 0.5"):
        await ask(budgets, rich)


async def test_earlier_use_from_the_ledger_counts() -> None:
    budgets = KeyBudgets(SlowLedger({"k": SampleTotals(requests=2, tokens=10, cost=1.0)}))
    with pytest.raises(BudgetSpent):
        await budgets.begin_request(holder(cost=1.0))
    with pytest.raises(BudgetSpent):
        await budgets.begin_request(holder(tokens=10))
    await ask(budgets, holder(requests=3))
    with pytest.raises(BudgetSpent):
        await budgets.begin_request(holder(requests=3))


async def test_concurrent_requests_do_not_exceed_the_budget() -> None:
    book = SlowLedger({"k": SampleTotals(requests=2)})
    budgets = KeyBudgets(book)
    key_holder = holder(requests=10)

    async def one() -> bool:
        try:
            await budgets.begin_request(key_holder)
        except BudgetSpent:
            return False
        await asyncio.sleep(0.001)
        budgets.settle_request(key_holder, 1, 0.0)
        return True

    assert sum(await asyncio.gather(*(one() for _ in range(100)))) == 8
    assert book.reads == 1


async def test_tokens_exceed_the_budget_by_active_requests_at_most() -> None:
    budgets = KeyBudgets(SlowLedger())
    key_holder = holder(tokens=100)
    used = 0
    for _ in range(20):
        under_way = 0
        for _ in range(4):
            try:
                await budgets.begin_request(key_holder)
            except BudgetSpent:
                continue
            under_way += 1
        for _ in range(under_way):
            budgets.settle_request(key_holder, 30, 0)
            used += 30
    assert used == 120


@pytest.mark.parametrize(("budget", "passed"), [({"tokens": 100}, 4), ({"cost": 1.0}, 4)])
async def test_requests_wait_while_those_in_flight_could_spend_the_budget(budget: dict[str, Any], passed: int) -> None:
    budgets = KeyBudgets(SlowLedger())
    key_holder = holder(**budget)
    await ask(budgets, key_holder, 10, 0.3)
    in_flight = most_in_flight = 0

    async def one() -> bool:
        nonlocal in_flight, most_in_flight
        try:
            await budgets.begin_request(key_holder, 40)
        except BudgetSpent:
            return False
        in_flight += 1
        most_in_flight = max(most_in_flight, in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1
        budgets.settle_request(key_holder, 35, 0.3, 40)
        return True

    async with asyncio.timeout(10):
        assert sum(await asyncio.gather(*(one() for _ in range(50)))) == passed - 1
    assert most_in_flight < 4


async def test_waiting_request_passes_if_the_others_used_little() -> None:
    budgets = KeyBudgets(SlowLedger())
    key_holder = holder(tokens=100)
    await budgets.begin_request(key_holder, 1000)
    waiting = asyncio.create_task(budgets.begin_request(key_holder, 1000))
    gone = asyncio.create_task(budgets.begin_request(key_holder, 1000))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    gone.cancel()
    budgets.settle_request(key_holder, 20, 0, 1000)
    await asyncio.wait_for(waiting, 5)
    budgets.settle_request(key_holder, 80, 0, 1000)
    with pytest.raises(BudgetSpent, match="100 of its budget of 100"):
        await budgets.begin_request(key_holder)


async def test_cancelled_request_does_not_cancel_the_ledger_read_of_others() -> None:
    budgets = KeyBudgets(SlowLedger())
    key_holder = holder(requests=2)
    first = asyncio.create_task(budgets.begin_request(key_holder))
    second = asyncio.create_task(budgets.begin_request(key_holder))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()


async def test_failed_ledger_read_is_retried() -> None:
    class Broken(SlowLedger):
        async def totals_of_key(self, key_id: str) -> SampleTotals:
            if self.reads == 0:
                self.reads = 1
                raise OSError("disk")
            return await super().totals_of_key(key_id)

    budgets = KeyBudgets(Broken())
    with pytest.raises(OSError, match="disk"):
        await budgets.begin_request(holder(requests=1))
    await budgets.begin_request(holder(requests=1))


async def test_remaining_budget() -> None:
    budgets = KeyBudgets(SlowLedger({"k": SampleTotals(requests=2, tokens=500, cost=0.25)}))
    budget = KeyBudget(requests=5, tokens=100, cost=1.0)
    assert (await budgets.remaining("k", budget)).model_dump() == {"requests": 3, "tokens": 0, "cost": 0.75}
    key_holder = KeyHolder(ModelCaller("acme", "n"), budget=KeyBudget(requests=5))
    await budgets.begin_request(key_holder)
    assert (await budgets.remaining("n", KeyBudget(requests=5))).requests == 4
    assert (await budgets.remaining("n", KeyBudget(requests=5))).tokens is None


async def test_idle_accounts_are_closed_and_used_ones_kept() -> None:
    clock = Clock()
    budgets = KeyBudgets(SlowLedger(), clock)
    for number in range(50):
        await ask(budgets, holder(f"k{number}", requests=5))
    busy = holder("busy", requests=5)
    await budgets.begin_request(busy)
    clock.now += IDLE_ACCOUNT_SECONDS
    await ask(budgets, holder("new", requests=5))
    assert len(budgets) == 2
    budgets.settle_request(busy, 1, 0.0)

"""How much a key may ask in all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from paddock.errors import QuotaExceeded
from paddock.llm.budgets import KEPT_FOR, Budgets, BudgetSpent
from paddock.llm.callers import Holder
from paddock.llm.exchange import Caller
from paddock.model.keys import Budget

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Used:
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass
class Book:
    """A ledger that takes its time."""

    used: dict[str, Used] = field(default_factory=dict)
    reads: int = 0

    async def totals_of_key(self, key_id: str) -> Used:
        self.reads += 1
        await asyncio.sleep(0.001)
        return self.used.get(key_id, Used())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def holder(key: str = "k", **budget: float) -> Holder:
    return Holder(Caller("acme", key), budget=Budget.model_validate(budget) if budget else None)


async def ask(budgets: Budgets, who: Holder, tokens: int = 0, cost: float | None = None) -> None:
    await budgets.check(who)
    budgets.settle(who, tokens, cost)


async def test_without_a_budget_nothing_is_kept() -> None:
    book = Book()
    budgets = Budgets(book)
    for _ in range(10):
        await ask(budgets, holder(), 10**9, 10**9)
    assert (len(budgets), book.reads) == (0, 0)


async def test_requests() -> None:
    budgets = Budgets(Book())
    who = holder(requests=3)
    for _ in range(3):
        await ask(budgets, who)
    with pytest.raises(BudgetSpent, match="made the 3 requests of its budget") as raised:
        await ask(budgets, who)
    assert isinstance(raised.value, QuotaExceeded)
    await ask(budgets, holder("other", requests=3))


async def test_tokens_and_money() -> None:
    budgets = Budgets(Book())
    who = holder(tokens=100, cost=0.5)
    await ask(budgets, who, 99, 0.1)
    await ask(budgets, who, 51, None)
    with pytest.raises(BudgetSpent, match="150 tokens, and its budget is 100"):
        await ask(budgets, who)
    rich = holder("rich", cost=0.5)
    await ask(budgets, rich, 10**6, 0.75)
    with pytest.raises(BudgetSpent, match=r"0.7500 US dollars, and its budget is 0.5"):
        await ask(budgets, rich)


async def test_what_the_ledger_knows_counts() -> None:
    budgets = Budgets(Book({"k": Used(requests=2, tokens=10, cost=1.0)}))
    with pytest.raises(BudgetSpent):
        await budgets.check(holder(cost=1.0))
    with pytest.raises(BudgetSpent):
        await budgets.check(holder(tokens=10))
    await ask(budgets, holder(requests=3))
    with pytest.raises(BudgetSpent):
        await budgets.check(holder(requests=3))


async def test_requests_at_once_do_not_get_beyond_it() -> None:
    book = Book({"k": Used(requests=2)})
    budgets = Budgets(book)
    who = holder(requests=10)

    async def one() -> bool:
        try:
            await budgets.check(who)
        except BudgetSpent:
            return False
        await asyncio.sleep(0.001)
        budgets.settle(who, 1, 0.0)
        return True

    assert sum(await asyncio.gather(*(one() for _ in range(100)))) == 8
    assert book.reads == 1


async def test_tokens_are_overdrawn_by_what_is_under_way_at_most() -> None:
    budgets = Budgets(Book())
    who = holder(tokens=100)
    used = 0
    for _ in range(20):
        under_way = 0
        for _ in range(4):
            try:
                await budgets.check(who)
            except BudgetSpent:
                continue
            under_way += 1
        for _ in range(under_way):
            budgets.settle(who, 30, 0)
            used += 30
    assert used == 120


async def test_who_stops_waiting_for_the_ledger_leaves_others_waiting() -> None:
    budgets = Budgets(Book())
    who = holder(requests=2)
    first = asyncio.create_task(budgets.check(who))
    second = asyncio.create_task(budgets.check(who))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()


async def test_a_ledger_that_fails_is_asked_again() -> None:
    class Broken(Book):
        async def totals_of_key(self, key_id: str) -> Used:
            if self.reads == 0:
                self.reads = 1
                raise OSError("disk")
            return await super().totals_of_key(key_id)

    budgets = Budgets(Broken())
    with pytest.raises(OSError, match="disk"):
        await budgets.check(holder(requests=1))
    await budgets.check(holder(requests=1))


async def test_what_is_left() -> None:
    budgets = Budgets(Book({"k": Used(requests=2, tokens=500, cost=0.25)}))
    budget = Budget(requests=5, tokens=100, cost=1.0)
    assert (await budgets.left("k", budget)).model_dump() == {"requests": 3, "tokens": 0, "cost": 0.75}
    who = Holder(Caller("acme", "n"), budget=Budget(requests=5))
    await budgets.check(who)
    assert (await budgets.left("n", Budget(requests=5))).requests == 4
    assert (await budgets.left("n", Budget(requests=5))).tokens is None


async def test_accounts_that_are_idle_are_closed_and_those_in_use_are_not() -> None:
    clock = Clock()
    budgets = Budgets(Book(), clock)
    for number in range(50):
        await ask(budgets, holder(f"k{number}", requests=5))
    busy = holder("busy", requests=5)
    await budgets.check(busy)
    clock.now += KEPT_FOR
    await ask(budgets, holder("new", requests=5))
    assert len(budgets) == 2
    budgets.settle(busy, 1, 0.0)

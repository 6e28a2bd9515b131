"""How much a key may ask in all: requests, tokens, money. Checked before a request, settled after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, Protocol

from paddock.errors import QuotaExceeded
from paddock.llm.callers import Holder
from paddock.llm.exchange import Caller, Exchange
from paddock.model.keys import Budget

KEPT_FOR = 600.0
"""Seconds an account is kept after its last request; longer than the ledger takes to be written."""


class BudgetSpent(QuotaExceeded):
    """The budget of this key is spent."""

    code: ClassVar[str] = "BUDGET_SPENT"


class Totals(Protocol):
    """What a key has used so far."""

    @property
    def requests(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def cost(self) -> float: ...


class Ledger(Protocol):
    """Where use is written down."""

    async def totals_of_key(self, key_id: str) -> Totals:
        """What a key has used, all that was handed to the ledger included, written or not."""
        ...


class Account(Protocol):
    """Somebody on whose account callers ask, besides that of their key."""

    async def check(self, caller: Caller) -> None:
        """Raises `BudgetSpent`."""
        ...

    def count(self, exchange: Exchange) -> None:
        """An exchange is over."""
        ...


class _Account:
    __slots__ = ("cost", "in_flight", "requests", "tokens", "used_at")

    def __init__(self, totals: Totals, now: float) -> None:
        self.requests = totals.requests
        self.tokens = totals.tokens
        self.cost = totals.cost
        self.in_flight = 0
        self.used_at = now


class Budgets:
    """Accounts of the keys that have a budget, in memory while they are used, begun from what the ledger knows."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._opening: dict[str, asyncio.Future[_Account]] = {}
        self._swept_at = clock()

    async def check(self, holder: Holder) -> None:
        """Begin a request. Raises `BudgetSpent`, having counted nothing; otherwise `settle` it, however it ends.

        What the budget bounds is let in until it is spent, so it is overdrawn by what is under way at most.
        """
        if holder.budget is None:
            return
        account = self._accounts.get(holder.caller.key_id)
        if account is None:
            account = await self._open(holder.caller.key_id)
        # From here on nothing is waited for, so that nobody gets in between.
        _refuse_if_spent(holder.budget, account)
        account.requests += 1
        account.in_flight += 1
        account.used_at = self._clock()

    def settle(self, holder: Holder, tokens: int, cost: float | None) -> None:
        """End a request, and count what it took."""
        if holder.budget is not None:
            account = self._accounts[holder.caller.key_id]
            account.in_flight -= 1
            account.tokens += max(0, tokens)
            account.cost += max(0.0, cost or 0.0)
            account.used_at = self._clock()

    async def left(self, key_id: str, budget: Budget) -> Budget:
        """What is left of a budget, each part of it that is bounded; requests under way count as begun.

        Nothing left is 0, which no budget could begin with.
        """
        account = self._accounts.get(key_id)
        used: Totals | _Account = account if account is not None else await self._ledger.totals_of_key(key_id)
        left = {
            name: max(0, bound - getattr(used, name)) for name, bound in budget.model_dump(exclude_none=True).items()
        }
        return Budget.model_construct(**left)

    def __len__(self) -> int:
        """How many accounts are open."""
        return len(self._accounts)

    async def _open(self, key_id: str) -> _Account:
        """Ask the ledger once, however many wait for it: two accounts would let in twice the budget."""
        opening = self._opening.get(key_id)
        if opening is None:
            opening = asyncio.ensure_future(self._read(key_id))
            self._opening[key_id] = opening
            opening.add_done_callback(lambda _: self._opening.pop(key_id, None))
        return await asyncio.shield(opening)

    async def _read(self, key_id: str) -> _Account:
        now = self._clock()
        self._sweep(now)
        account = _Account(await self._ledger.totals_of_key(key_id), now)
        self._accounts[key_id] = account
        return account

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < KEPT_FOR:
            return
        self._swept_at = now
        idle = [
            key_id
            for key_id, account in self._accounts.items()
            if not account.in_flight and now - account.used_at >= KEPT_FOR
        ]
        for key_id in idle:
            del self._accounts[key_id]


def _refuse_if_spent(budget: Budget, used: Totals | _Account) -> None:
    if budget.requests is not None and used.requests >= budget.requests:
        raise BudgetSpent(f"This key has made the {budget.requests} requests of its budget; use another key.")
    if budget.tokens is not None and used.tokens >= budget.tokens:
        raise BudgetSpent(
            f"This key has used {used.tokens} tokens, and its budget is {budget.tokens}; use another key."
        )
    if budget.cost is not None and used.cost >= budget.cost:
        raise BudgetSpent(
            f"This key has spent {used.cost:.4f} US dollars, and its budget is {budget.cost:g}; use another key."
        )

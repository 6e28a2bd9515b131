"""Total budgets of keys: requests, tokens and cost. Checked before a request, settled after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, Protocol

from paddock.errors import QuotaExceeded
from paddock.llm.exchange import Exchange, ModelCaller
from paddock.llm.metering.key_authentication import KeyHolder
from paddock.model.keys import KeyBudget

IDLE_ACCOUNT_SECONDS = 600.0
"""Seconds an account is kept after its last request; longer than the ledger needs for a flush."""


class BudgetSpent(QuotaExceeded):
    """The budget of this key is spent."""

    code: ClassVar[str] = "BUDGET_SPENT"


class KeyUsageTotals(Protocol):
    """The total use of a key."""

    @property
    def requests(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def cost(self) -> float: ...


class KeyTotalsSource(Protocol):
    """Reads the totals of keys: the usage ledger."""

    async def totals_of_key(self, key_id: str) -> KeyUsageTotals:
        """Return the total use of a key, including use that is not written to disk yet."""
        ...


class SpendingAccount(Protocol):
    """A further account that requests are charged to, besides the key's: such as a run or session."""

    async def check(self, caller: ModelCaller) -> None:
        """Raise `BudgetSpent` if the caller's account is spent."""
        ...

    def count(self, exchange: Exchange) -> None:
        """Charge a finished exchange."""
        ...


class _KeyAccount:
    __slots__ = ("cost", "in_flight", "requests", "tokens", "used_at")

    def __init__(self, totals: KeyUsageTotals, now: float) -> None:
        self.requests = totals.requests
        self.tokens = totals.tokens
        self.cost = totals.cost
        self.in_flight = 0
        self.used_at = now


class KeyBudgets:
    """Accounts of keys with a budget: in memory while in use, initialised from the ledger."""

    def __init__(self, ledger: KeyTotalsSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounts: dict[str, _KeyAccount] = {}
        self._opening: dict[str, asyncio.Future[_KeyAccount]] = {}
        self._swept_at = clock()

    async def begin_request(self, holder: KeyHolder) -> None:
        """Count a new request. Raises `BudgetSpent` and counts nothing; otherwise call `settle_request`.

        Requests are admitted until the budget is spent, so it is exceeded by the requests in flight at most.
        """
        if holder.budget is None:
            return
        account = self._accounts.get(holder.caller.key_id)
        if account is None:
            account = await self._open_account(holder.caller.key_id)
        # No await from here on, so that no other request comes in between.
        _refuse_if_spent(holder.budget, account)
        account.requests += 1
        account.in_flight += 1
        account.used_at = self._clock()

    def settle_request(self, holder: KeyHolder, tokens: int, cost: float | None) -> None:
        """End a request, and count its tokens and cost."""
        if holder.budget is not None:
            account = self._accounts[holder.caller.key_id]
            account.in_flight -= 1
            account.tokens += max(0, tokens)
            account.cost += max(0.0, cost or 0.0)
            account.used_at = self._clock()

    async def remaining(self, key_id: str, budget: KeyBudget) -> KeyBudget:
        """Return the remainder of each bounded part of a budget; active requests count.

        A spent part is 0, which no initial budget can have.
        """
        account = self._accounts.get(key_id)
        used: KeyUsageTotals | _KeyAccount = (
            account if account is not None else await self._ledger.totals_of_key(key_id)
        )
        remaining = {
            name: max(0, bound - getattr(used, name)) for name, bound in budget.model_dump(exclude_none=True).items()
        }
        return KeyBudget.model_construct(**remaining)

    def __len__(self) -> int:
        """Return the number of open accounts."""
        return len(self._accounts)

    async def _open_account(self, key_id: str) -> _KeyAccount:
        """Open an account once for all concurrent requests: two accounts would admit twice the budget."""
        opening = self._opening.get(key_id)
        if opening is None:
            opening = asyncio.ensure_future(self._read_account(key_id))
            self._opening[key_id] = opening
            opening.add_done_callback(lambda _: self._opening.pop(key_id, None))
        return await asyncio.shield(opening)

    async def _read_account(self, key_id: str) -> _KeyAccount:
        now = self._clock()
        self._sweep(now)
        account = _KeyAccount(await self._ledger.totals_of_key(key_id), now)
        self._accounts[key_id] = account
        return account

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < IDLE_ACCOUNT_SECONDS:
            return
        self._swept_at = now
        idle = [
            key_id
            for key_id, account in self._accounts.items()
            if not account.in_flight and now - account.used_at >= IDLE_ACCOUNT_SECONDS
        ]
        for key_id in idle:
            del self._accounts[key_id]


def _refuse_if_spent(budget: KeyBudget, used: KeyUsageTotals | _KeyAccount) -> None:
    if budget.requests is not None and used.requests >= budget.requests:
        raise BudgetSpent(f"This key has used its budget of {budget.requests} requests; use another key.")
    if budget.tokens is not None and used.tokens >= budget.tokens:
        raise BudgetSpent(f"This key has used {used.tokens} of its budget of {budget.tokens} tokens; use another key.")
    if budget.cost is not None and used.cost >= budget.cost:
        raise BudgetSpent(
            f"This key has spent {used.cost:.4f} US dollars, and its budget is {budget.cost:g}; use another key."
        )

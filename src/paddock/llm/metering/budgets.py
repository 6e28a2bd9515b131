"""Total budgets of keys: requests, tokens and cost. Checked before a request, settled after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from paddock.errors import QuotaExceeded
from paddock.llm.exchange import Exchange
from paddock.llm.metering.key_authentication import KeyHolder
from paddock.model.keys import KeyBudget

IDLE_ACCOUNT_SECONDS = 600.0
"""Seconds an account is kept after its last request; longer than the ledger needs for a flush."""

_BYTES_PER_TOKEN = 4


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

    async def begin_request(self, exchange: Exchange) -> None:
        """Count a new request as in flight. Raises `BudgetSpent` if the caller's account is spent."""
        ...

    def settle_request(self, exchange: Exchange) -> None:
        """Charge an exchange and end it, also one that was refused."""
        ...


class _KeyAccount:
    __slots__ = ("cost", "in_flight", "prompt_tokens", "requests", "settled", "tokens", "used_at")

    def __init__(self, totals: KeyUsageTotals, now: float) -> None:
        self.requests = totals.requests
        self.tokens = totals.tokens
        self.cost = totals.cost
        self.in_flight = 0
        self.prompt_tokens = 0
        """Estimated tokens of the prompts in flight."""
        self.settled = asyncio.Event()
        """Set and replaced when a request ends."""
        self.used_at = now

    def may_be_spent(self, budget: KeyBudget) -> bool:
        """Return whether the requests in flight alone could spend the rest of the budget."""
        if not self.in_flight:
            return False
        if budget.tokens is not None and self.tokens + self.prompt_tokens >= budget.tokens:
            return True
        mean_cost = self.cost / max(1, self.requests - self.in_flight)
        return budget.cost is not None and self.cost + self.in_flight * mean_cost >= budget.cost


class KeyBudgets:
    """Accounts of keys with a budget: in memory while in use, initialised from the ledger."""

    def __init__(self, ledger: KeyTotalsSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounts: dict[str, _KeyAccount] = {}
        self._opening: dict[str, asyncio.Future[_KeyAccount]] = {}
        self._swept_at = clock()

    async def begin_request(self, holder: KeyHolder, prompt_tokens: int = 0) -> None:
        """Count a new request. Raises `BudgetSpent` and counts nothing; otherwise call `settle_request`.

        Requests are admitted until the budget is spent. A request waits while the prompts of those in flight could
        spend the rest, so the budget is exceeded by the answers of requests in flight at most.
        """
        if holder.budget is None:
            return
        account = self._accounts.get(holder.caller.key_id)
        if account is None:
            account = await self._open_account(holder.caller.key_id)
        _refuse_if_spent(holder.budget, account)
        while account.may_be_spent(holder.budget):
            await account.settled.wait()
            _refuse_if_spent(holder.budget, account)
        # No await from here on, so that no other request comes in between.
        account.requests += 1
        account.in_flight += 1
        account.prompt_tokens += prompt_tokens
        account.used_at = self._clock()

    def settle_request(self, holder: KeyHolder, tokens: int, cost: float | None, prompt_tokens: int = 0) -> None:
        """End a request, and count its tokens and cost; `prompt_tokens` as given to `begin_request`."""
        if holder.budget is not None:
            account = self._accounts[holder.caller.key_id]
            account.in_flight -= 1
            account.prompt_tokens -= prompt_tokens
            account.settled.set()
            account.settled = asyncio.Event()
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


class RequestCharge:
    """One request in the budget of its key and in further accounts, charged exactly once."""

    def __init__(
        self,
        budgets: KeyBudgets,
        accounts: Sequence[SpendingAccount],
        holder: KeyHolder,
        exchange: Exchange,
        compute_usage: Callable[[Exchange], None],
    ) -> None:
        """`compute_usage` sets usage and cost of the exchange, and may be called again."""
        self._budgets = budgets
        self._accounts = accounts
        self._holder = holder
        self._exchange = exchange
        self._compute_usage = compute_usage
        self._prompt_tokens = 0
        self._in_key_budget = False
        self._charged = False

    async def begin(self) -> None:
        """Count the request as in flight. Raises `BudgetSpent`."""
        for account in self._accounts:
            await account.begin_request(self._exchange)
        prompt_tokens = estimate_prompt_tokens(self._exchange)
        await self._budgets.begin_request(self._holder, prompt_tokens)
        self._prompt_tokens, self._in_key_budget = prompt_tokens, True

    def settle(self) -> int:
        """Compute the usage, charge it, and return the tokens.

        Called before the end of the answer is sent, so that the client's next request finds it charged.
        """
        exchange, tokens = self._exchange, 0
        try:
            self._compute_usage(exchange)
            tokens = exchange.usage.input + exchange.usage.output if exchange.usage else 0
        finally:
            if not self._charged:
                self._charged = True
                for account in self._accounts:
                    account.settle_request(exchange)
                if self._in_key_budget:
                    self._budgets.settle_request(self._holder, tokens, exchange.cost, self._prompt_tokens)
        return tokens


def estimate_prompt_tokens(exchange: Exchange) -> int:
    """Estimate a prompt by its length; exact enough to decide whether a request has to wait."""
    return len(exchange.request) // _BYTES_PER_TOKEN


def _refuse_if_spent(budget: KeyBudget, used: KeyUsageTotals | _KeyAccount) -> None:
    if budget.requests is not None and used.requests >= budget.requests:
        raise BudgetSpent(f"This key has used its budget of {budget.requests} requests; use another key.")
    if budget.tokens is not None and used.tokens >= budget.tokens:
        raise BudgetSpent(f"This key has used {used.tokens} of its budget of {budget.tokens} tokens; use another key.")
    if budget.cost is not None and used.cost >= budget.cost:
        raise BudgetSpent(
            f"This key has spent {used.cost:.4f} US dollars, and its budget is {budget.cost:g}; use another key."
        )

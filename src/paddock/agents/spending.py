"""What the sandboxes of sessions ask of models counts as theirs, and ends with their budgets.

What a session's engine asks goes through its voice, which counts that itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import structlog

from paddock.agents.journal import Spent, added, usage_told
from paddock.errors import PaddockError, SessionNotFound
from paddock.events.log import EventLog
from paddock.llm.budgets import BudgetSpent
from paddock.llm.exchange import Caller, Exchange
from paddock.model.sessions import Session, SessionUsage
from paddock.store.database import Store
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

_MOST_TOKENS = 2**40
"""No request takes more; a provider that says so must not spoil the sums."""
log = structlog.get_logger()


def check_budget(session: Session, default: int | None) -> None:
    """Raises `BudgetSpent` for a session that has used all that it may."""
    budget = session.budget or default
    used = session.usage.input_tokens + session.usage.output_tokens
    if budget is not None and used >= budget:
        raise BudgetSpent(f"the session has used {used} of its {budget} tokens; give it a larger budget")


class Spending:
    """Adds to a session's usage what its sandboxes ask, and refuses it once the budget is spent: an `Account`."""

    def __init__(self, store: Store, events: EventLog, budget: int | None) -> None:
        """`budget` is that of sessions that have none of their own."""
        self._book = SessionStore(store)
        self._events = events
        self._budget = budget
        self._waiting: dict[tuple[str, str], list[Spent]] = {}
        self._writing: asyncio.Task[None] | None = None

    async def check(self, caller: Caller) -> None:
        if caller.sandbox is None or caller.session is None:
            return
        try:
            session = await self._book.get(caller.session, caller.tenant)
        except SessionNotFound:
            return  # Its sandboxes are about to be released; and anybody can name a session that never was.
        check_budget(session, self._budget)

    def count(self, exchange: Exchange) -> None:
        caller, usage = exchange.caller, exchange.usage
        if caller.sandbox is None or caller.session is None or usage is None:
            return
        if usage.input + usage.output <= _MOST_TOKENS:
            spent = Spent(usage.input, usage.output, exchange.cost)
            self._waiting.setdefault((caller.tenant, caller.session), []).append(spent)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write(), name="what sandboxes of sessions ask")

    async def close(self) -> None:
        """Write down what is left. The store must still be open."""
        if self._writing is not None:
            await self._writing
        await self._write()
        if self._waiting:
            log.error("what sandboxes have asked is not counted for their sessions", sessions=len(self._waiting))

    async def _write(self) -> None:
        while self._waiting:
            whose = next(iter(self._waiting))
            spent = self._waiting.pop(whose)
            try:
                await self._add(*whose, spent)
            except SessionNotFound:
                continue
            except PaddockError as error:
                log.warning("what a sandbox has asked is not counted yet", session=whose[1], error=error.message)
                self._waiting[whose] = spent + self._waiting.get(whose, [])
                return

    async def _add(self, tenant: str, session_id: str, spent: Sequence[Spent]) -> None:
        def work(connection: Any) -> tuple[Session, SessionUsage]:
            session = SessionStore.current(connection, session_id)
            if session.tenant != tenant:
                raise SessionNotFound(f"tenant {tenant} has no session {session_id}")
            usage = reduce(added, spent, session.usage)
            SessionStore.alter(connection, session_id, {"usage": usage}, datetime.now(UTC))
            return session, usage

        await self._events.together(work, lambda result: happening(result[0], usage_told(result[1])))

"""What the sandboxes of sessions ask of models counts as theirs, and ends with their budgets.

What a session's engine asks goes through its voice, which counts that itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import structlog

from paddock.agents.journal import Spent, added, usage_told
from paddock.errors import SessionNotFound
from paddock.events.log import EventLog
from paddock.llm.budgets import BudgetSpent
from paddock.llm.exchange import MOST_TOKENS, Caller, Exchange
from paddock.model.sessions import Session, SessionUsage
from paddock.store.database import Store
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

log = structlog.get_logger()


def check_budget(session: Session, default: int | None, beside: int = 0) -> None:
    """Raises `BudgetSpent` for a session that has used all that it may; `beside` are tokens it does not know of yet."""
    budget = session.budget or default
    used = session.usage.input_tokens + session.usage.output_tokens + beside
    if budget is not None and used >= budget:
        raise BudgetSpent(f"the session has used {used} of its {budget} tokens; give it a larger budget")


class Spending:
    """Adds to a session's usage what its sandboxes ask, and refuses it once the budget is spent: an `Account`."""

    def __init__(self, store: Store, events: EventLog, budget: int | None) -> None:
        """`budget` is that of sessions that have none of their own."""
        self._book = SessionStore(store)
        self._events = events
        self._budget = budget
        self._waiting: dict[_Whose, SessionUsage] = {}
        self._under_way: dict[_Whose, SessionUsage] = {}
        """What is being written, and neither waits nor is surely in the database."""
        self._writing: asyncio.Task[None] | None = None

    async def check(self, caller: Caller) -> None:
        whose = _whose(caller)
        if whose is None:
            return
        try:
            session = await self._book.get(whose.session, whose.tenant)
        except SessionNotFound:
            return  # Its sandboxes are about to be released; and anybody can name a session that never was.
        if whose.sandbox in session.sandboxes.values():
            check_budget(session, self._budget, self._uncounted(whose))

    def count(self, exchange: Exchange) -> None:
        whose, usage = _whose(exchange.caller), exchange.usage
        if whose is not None and usage is not None and usage.input + usage.output <= MOST_TOKENS:
            spent = Spent(usage.input, usage.output, exchange.cost)
            self._waiting[whose] = added(self._waiting.get(whose, SessionUsage()), spent)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write(), name="what sandboxes of sessions ask")

    async def close(self) -> None:
        """Write down what is left. The store must still be open."""
        if self._writing is not None:
            await self._writing
        await self._write()
        if self._waiting:
            log.error("what sandboxes have asked is not counted for their sessions", sessions=len(self._waiting))

    def _uncounted(self, whose: _Whose) -> int:
        """Tokens of a session's sandboxes that its usage does not have yet."""
        spent = (*self._waiting.items(), *self._under_way.items())
        return sum(used.input_tokens + used.output_tokens for other, used in spent if other[:2] == whose[:2])

    async def _write(self) -> None:
        while self._waiting:
            whose = next(iter(self._waiting))
            used = self._under_way[whose] = self._waiting.pop(whose)
            try:
                await self._add(whose, used)
            except SessionNotFound:
                continue
            except Exception as error:
                # It counts all the same, and is written with the next.
                log.warning("what a sandbox has asked is not written yet", session=whose.session, error=str(error))
                self._waiting[whose] = added(self._waiting.get(whose, SessionUsage()), _spent(used))
                return
            finally:
                self._under_way.pop(whose, None)

    async def _add(self, whose: _Whose, used: SessionUsage) -> None:
        def work(connection: Any) -> tuple[Session, SessionUsage]:
            session = SessionStore.current(connection, whose.session)
            if session.tenant != whose.tenant or whose.sandbox not in session.sandboxes.values():
                raise SessionNotFound(f"session {whose.session} has no sandbox {whose.sandbox}")
            usage = added(session.usage, _spent(used))
            # Nobody has done anything in the session: it may rest all the same.
            SessionStore.alter(connection, session.id, {"usage": usage}, session.changed_at)
            return session, usage

        await self._events.together(work, lambda result: happening(result[0], usage_told(result[1])))


class _Whose(NamedTuple):
    tenant: str
    session: str
    sandbox: str


def _whose(caller: Caller) -> _Whose | None:
    """The session on whose behalf a sandbox says that it asks; whether it is one of its own is to be looked at."""
    if caller.sandbox is None or caller.session is None:
        return None
    return _Whose(caller.tenant, caller.session, caller.sandbox)


def _spent(used: SessionUsage) -> Spent:
    return Spent(used.input_tokens, used.output_tokens, used.cost, used.requests)

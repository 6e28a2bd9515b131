"""Model usage of session sandboxes, charged to the session and limited by its budget.

Requests of a session's engine go through `SessionModelClient`, which counts them itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from paddock.agents.model.reply_journal import RequestUsage, add_request_usage, usage_changed_event
from paddock.errors import SessionNotFound
from paddock.events.event_log import EventLog
from paddock.llm.exchange import MAX_TOKENS, Exchange, ModelCaller
from paddock.llm.metering.budgets import BudgetSpent, estimate_prompt_tokens
from paddock.model.sessions import Session, SessionUsage
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store

log = structlog.get_logger()


def check_session_budget(session: Session, default: int | None, uncounted: int = 0) -> None:
    """Raise `BudgetSpent` if the session has used up its budget; `uncounted` tokens are not in its usage yet."""
    budget = session.budget or default
    used = session.usage.input_tokens + session.usage.output_tokens + uncounted
    if budget is not None and used >= budget:
        raise BudgetSpent(f"the session has used {used} of its {budget} tokens; give it a larger budget")


class SandboxSpending:
    """Charges model requests of sandboxes to their session; rejects them once the budget is spent."""

    def __init__(self, store: Store, events: EventLog, budget: int | None) -> None:
        """`budget` applies to sessions without one of their own."""
        self._session_store = SessionStore(store)
        self._events = events
        self._budget = budget
        self._active: dict[tuple[str, str], _ActiveSession] = {}
        self._pending: dict[_SpendingKey, SessionUsage] = {}
        self._writing_usage: dict[_SpendingKey, SessionUsage] = {}
        """Usage that is being written, and may not be in the database yet."""
        self._write_task: asyncio.Task[None] | None = None

    async def begin_request(self, exchange: Exchange) -> None:
        key = _spending_key(exchange.caller)
        if key is None:
            return
        active = self._active.setdefault(key[:2], _ActiveSession())
        active.checks += 1
        try:
            if await self._admit_request(key, active):
                active.prompt_tokens[exchange.id] = estimate_prompt_tokens(exchange)
        finally:
            active.checks -= 1
            self._forget_if_idle(key, active)

    async def _admit_request(self, key: _SpendingKey, active: _ActiveSession) -> bool:
        """Return whether the request is charged to the session. Raises `BudgetSpent`.

        Waits while the prompts of the requests in flight could spend the rest of the budget.
        """
        while True:
            written = active.written
            try:
                session = await self._session_store.get(key.session, key.tenant)
            except SessionNotFound:
                return False  # The session was deleted, or the request names a session that never existed.
            if key.sandbox not in session.sandboxes.values():
                return False
            if written != active.written:
                continue  # Usage was written meanwhile, which the session that was read may lack.
            uncounted = self._uncounted_tokens(key)
            check_session_budget(session, self._budget, uncounted)
            try:
                check_session_budget(session, self._budget, uncounted + sum(active.prompt_tokens.values()))
            except BudgetSpent:
                await active.settled.wait()
            else:
                return True

    def settle_request(self, exchange: Exchange) -> None:
        key, usage = _spending_key(exchange.caller), exchange.usage
        if key is None:
            return
        active = self._active.get(key[:2])
        if active is not None and active.prompt_tokens.pop(exchange.id, None) is not None:
            active.settled.set()
            active.settled = asyncio.Event()
            self._forget_if_idle(key, active)
        if usage is not None and usage.input + usage.output <= MAX_TOKENS:
            spent = RequestUsage(usage.input, usage.output, exchange.cost)
            self._pending[key] = add_request_usage(self._pending.get(key, SessionUsage()), spent)
            if self._write_task is None or self._write_task.done():
                self._write_task = asyncio.create_task(self._write_pending(), name="session usage of sandboxes")

    def _forget_if_idle(self, key: _SpendingKey, active: _ActiveSession) -> None:
        if not active.checks and not active.prompt_tokens and self._active.get(key[:2]) is active:
            del self._active[key[:2]]

    async def close(self) -> None:
        """Write pending usage. The store must still be open."""
        if self._write_task is not None:
            await self._write_task
        await self._write_pending()
        if self._pending:
            log.error("usage of sandboxes was not charged to their sessions", sessions=len(self._pending))

    def _uncounted_tokens(self, key: _SpendingKey) -> int:
        """Return tokens of the session's sandboxes that its usage does not include yet."""
        spent = (*self._pending.items(), *self._writing_usage.items())
        return sum(used.input_tokens + used.output_tokens for other, used in spent if other[:2] == key[:2])

    async def _write_pending(self) -> None:
        while self._pending:
            key = next(iter(self._pending))
            used = self._writing_usage[key] = self._pending.pop(key)
            try:
                await self._add_usage(key, used)
            except SessionNotFound:
                continue
            except Exception as error:
                # Still counted in memory, and written with the next batch.
                log.warning("could not write usage of sandbox; will retry", session=key.session, error=str(error))
                self._pending[key] = add_request_usage(self._pending.get(key, SessionUsage()), _to_request_usage(used))
                return
            finally:
                self._writing_usage.pop(key, None)
                if (active := self._active.get(key[:2])) is not None:
                    active.written += 1

    async def _add_usage(self, key: _SpendingKey, used: SessionUsage) -> None:
        def work(connection: Any) -> tuple[Session, SessionUsage]:
            session = SessionStore.load_session(connection, key.session)
            if session.tenant != key.tenant or key.sandbox not in session.sandboxes.values():
                raise SessionNotFound(f"session {key.session} has no sandbox {key.sandbox}")
            usage = add_request_usage(session.usage, _to_request_usage(used))
            # `changed_at` stays, because usage does not make a session active.
            SessionStore.update_session(connection, session.id, {"usage": usage}, session.changed_at)
            return session, usage

        await self._events.write_with_events(
            work, lambda result: session_log_entries(result[0], usage_changed_event(result[1]))
        )


@dataclass(eq=False)
class _ActiveSession:
    """The requests of a session's sandboxes that are being checked or in flight."""

    checks: int = 0
    prompt_tokens: dict[str, int] = field(default_factory=dict)
    """Estimated tokens of the prompts in flight, by the exchange's id."""
    written: int = 0
    """Number of writes of the session's usage."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set and replaced when a request ends."""


class _SpendingKey(NamedTuple):
    tenant: str
    session: str
    sandbox: str


def _spending_key(caller: ModelCaller) -> _SpendingKey | None:
    """Return the session that a sandbox claims to ask for; the claim is checked against the session."""
    if caller.sandbox is None or caller.session is None:
        return None
    return _SpendingKey(caller.tenant, caller.session, caller.sandbox)


def _to_request_usage(used: SessionUsage) -> RequestUsage:
    return RequestUsage(used.input_tokens, used.output_tokens, used.cost, used.requests)

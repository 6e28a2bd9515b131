"""Live counts of the model requests of runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from paddock.errors import Unavailable
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import MAX_TOKENS, Exchange, ExchangeOutcome
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.model.exchanges import ExchangeFilters, ExchangeSummary
from paddock.model.runs import ModelUsage

MAX_EARLIER_EXCHANGES = 100_000
"""Maximum exchanges of one run that are read after a restart."""
_PAGE = 1000
_ABOVE_ALL = "ex-~"
"""Sorts after every exchange id."""
_MAX_UNCOUNTED = 10_000
_FAILED = frozenset((ExchangeOutcome.REFUSED, ExchangeOutcome.FAILED, ExchangeOutcome.CUT))
_UNPAID_KINDS = frozenset(("script", "replay"))
log = structlog.get_logger()


@dataclass(slots=True)
class _RunCounter:
    """The counts of one run."""

    tenant: str
    requests: int = 0
    input: int = 0
    output: int = 0
    cost: float | None = None
    model: str | None = None
    scripted: bool = False
    failed: int = 0
    last_error: str | None = None
    last_at: float = 0.0
    failing: int = 0
    unreached: int = 0
    failing_since: float | None = None
    under_way: set[str] = field(default_factory=set)
    """Ids of active exchanges."""
    over: set[str] = field(default_factory=set)
    """Ids of exchanges that ended while earlier ones are being loaded."""
    before: frozenset[str] = frozenset()
    """Ids of exchanges loaded from the archive that may have been active at that time."""
    opening: asyncio.Future[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once on the next change, then replaced."""

    def traffic(self) -> ModelUsage:
        return ModelUsage(
            requests=self.requests,
            input_tokens=self.input,
            output_tokens=self.output,
            cost=self.cost,
            model=self.model,
            scripted=self.scripted,
            failed=self.failed,
            last_error=self.last_error,
            last_at=self.last_at or None,
            under_way=len(self.under_way),
            failing=self.failing,
            unreached=self.unreached,
            failing_since=self.failing_since,
        )

    def add(self, kind: str | None, tokens: tuple[int, int], cost: float | None, *, failed: bool) -> None:
        self.requests += 1
        self.failed += failed
        self.scripted = self.scripted or kind in _UNPAID_KINDS
        if sum(tokens) <= MAX_TOKENS:
            self.input += tokens[0]
            self.output += tokens[1]
            if cost is not None:
                self.cost = (self.cost or 0.0) + cost

    def add_result(self, exchange: Exchange, at: float) -> None:
        """Note whether an exchange that ends now failed."""
        if exchange.outcome in _FAILED:
            self.last_error = exchange.error
            self.failing_since = self.failing_since or at
            self.failing += 1
            self.unreached += _is_unreached(exchange.outcome, exchange.status)
        else:
            self.model = exchange.provider_model or exchange.model
            self.failing, self.unreached, self.failing_since = 0, 0, None

    def add_earlier(self, each: ExchangeSummary) -> None:
        """Count an archived exchange, older than all counted so far."""
        failed = each.outcome in _FAILED
        # The archive is read backwards: until now, all later exchanges have failed.
        if failed and self.failing == self.requests:
            self.failing += 1
            self.unreached += _is_unreached(each.outcome, each.status)
            self.failing_since = each.at + each.total
        self.add(each.provider_kind, (each.input or 0, each.output or 0), each.cost, failed=failed)
        if failed:
            self.last_error = self.last_error or each.error
        else:
            self.model = self.model or each.provider_model or each.model
        self.last_at = max(each.at + each.total, self.last_at)

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _is_unreached(outcome: str, status: int) -> bool:
    """Return whether no provider answered a failed request; limits and invalid requests do not count."""
    return outcome == ExchangeOutcome.FAILED and (status == 0 or status >= 500)


class RunTrafficCounters:
    """Counts the model requests of watched runs; requests of other runs cost one dictionary lookup.

    Must be used from the event loop's thread.
    """

    def __init__(self, archive: ExchangeArchive, ledger: UsageLedger, clock: Callable[[], float] = time.time) -> None:
        self._archive = archive
        self._ledger = ledger
        self._clock = clock
        self._counters: dict[str, _RunCounter] = {}
        self._uncounted: dict[str, None] = {}
        """Unwatched runs with recent requests, the latest last; some of their exchanges may not be archived yet."""
        self._counter_added = asyncio.Event()
        """Set once when counting of another run starts, then replaced."""

    def start_counting(self, run_id: str, tenant: str) -> None:
        """Start counting for a new run without earlier requests. Idempotent."""
        if run_id not in self._counters:
            self._add_counter(run_id, tenant)

    async def resume_counting(self, run_id: str, tenant: str, sandbox: str | None = None) -> ModelUsage:
        """Start counting for a run of an earlier server process, and return its counts so far. Idempotent.

        Earlier requests come from the archive, including exchanges not written yet; on a server without an archive,
        from the ledger of the sandbox. Requests that arrive meanwhile are counted once. Raises `Unavailable` when
        these cannot be read; counting has not started then.
        """
        counted = self._counters.get(run_id)
        if counted is None:
            counted = self._add_counter(run_id, tenant)
            counted.opening = asyncio.ensure_future(self._load_earlier(run_id, counted, sandbox))
        if counted.opening is not None:
            await asyncio.shield(counted.opening)
        return counted.traffic()

    def traffic_of(self, run_id: str) -> ModelUsage:
        """Return the counts of a run; zeros for a run that is not watched."""
        counted = self._counters.get(run_id)
        return counted.traffic() if counted is not None else ModelUsage()

    async def wait_for_change(self, run_id: str, after: ModelUsage | None = None) -> ModelUsage:
        """Wait until a run's traffic differs from `after` (default: from now), or counting stops, and return it.

        For a run that is not watched yet, wait until it is.
        """
        while (counted := self._counters.get(run_id)) is None:
            await self._counter_added.wait()
        previous = after or counted.traffic()
        while (now := counted.traffic()) == previous and self._counters.get(run_id) is counted:
            await counted.changed.wait()
        return now

    def stop_counting(self, run_id: str) -> None:
        """Stop counting for a run, and wake its waiters. Idempotent."""
        counted = self._counters.pop(run_id, None)
        if counted is not None:
            self._note_uncounted(run_id)
            counted.notify()

    def begin_exchange(self, exchange: Exchange) -> None:
        """Count a request that has arrived."""
        run = exchange.caller.run
        if run is None or (counted := self._counter_for(run, exchange)) is None:
            return
        counted.under_way.add(exchange.id)
        counted.last_at = max(exchange.at, counted.last_at)
        counted.notify()

    def end_exchange(self, exchange: Exchange) -> None:
        """Count a finished request of any outcome."""
        run = exchange.caller.run
        if run is None:
            return
        counted = self._counter_for(run, exchange)
        if counted is None:
            self._note_uncounted(run)
            return
        counted.under_way.discard(exchange.id)
        counted.last_at = max(self._clock(), counted.last_at)
        if exchange.id not in counted.before:
            if counted.opening is not None:
                counted.over.add(exchange.id)
            usage, failed = exchange.usage, exchange.outcome in _FAILED
            tokens = (usage.input, usage.output) if usage is not None else (0, 0)
            counted.add(exchange.provider_kind, tokens, exchange.cost, failed=failed)
            counted.add_result(exchange, counted.last_at)
        counted.notify()

    def _add_counter(self, run_id: str, tenant: str) -> _RunCounter:
        counted = self._counters[run_id] = _RunCounter(tenant)
        self._counter_added.set()
        self._counter_added = asyncio.Event()
        return counted

    def _note_uncounted(self, run_id: str) -> None:
        self._uncounted.pop(run_id, None)
        self._uncounted[run_id] = None
        if len(self._uncounted) > _MAX_UNCOUNTED:
            del self._uncounted[next(iter(self._uncounted))]  # Written long ago.

    def _counter_for(self, run_id: str, exchange: Exchange) -> _RunCounter | None:
        counted = self._counters.get(run_id)
        # Keys of other tenants may name the same run id; only requests of the run's tenant count.
        return counted if counted is not None and counted.tenant == exchange.caller.tenant else None

    async def _load_earlier(self, run_id: str, counted: _RunCounter, sandbox: str | None) -> None:
        try:
            if self._archive.enabled:
                await self._read_archive(run_id, counted)
            elif sandbox is not None:
                await self._read_ledger(counted, sandbox)
        except BaseException:
            if self._counters.get(run_id) is counted:
                del self._counters[run_id]
            raise
        finally:
            counted.opening = None
            counted.over.clear()
            counted.notify()

    async def _read_archive(self, run_id: str, counted: _RunCounter) -> None:
        try:
            # Earlier exchanges may not be written yet; ids of exchanges that end from now on are in `over`.
            if run_id in self._uncounted:
                await self._archive.flush()
        except Unavailable as error:
            log.warning("run traffic may be too low: archive is not writable", run=run_id, error=str(error))
        cursor: str | None = _ABOVE_ALL  # A cursor, because listing from the top waits for writes of all runs.
        for _ in range(MAX_EARLIER_EXCHANGES // _PAGE):
            page, cursor = await self._archive.list_exchanges(
                counted.tenant, ExchangeFilters(run=run_id), cursor=cursor, limit=_PAGE
            )
            # A strict archive contains exchanges before their end is counted here.
            if self._archive.strict:
                counted.before |= {each.id for each in page} - counted.over
            for each in page:
                if each.id not in counted.over:
                    counted.add_earlier(each)
            if cursor is None:
                return

    async def _read_ledger(self, counted: _RunCounter, sandbox: str) -> None:
        rows = await self._ledger.query(counted.tenant, ["model", "provider"], filters={"sandbox": sandbox})
        # The ledger includes everything that ended so far, also exchanges already counted here.
        tallies = [row.tally for row in rows]
        counted.requests = sum(tally.requests for tally in tallies)
        counted.failed = sum(tally.errors for tally in tallies)
        counted.input = sum(tally.input for tally in tallies)
        counted.output = sum(tally.output for tally in tallies)
        priced = [tally.cost for tally in tallies if tally.requests > tally.unpriced + tally.errors]
        counted.cost = sum(priced) if priced else None
        counted.model = counted.model or next((row.model for row in rows if row.model), None)

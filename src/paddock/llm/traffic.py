"""What runs ask of models, as it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from paddock.errors import Unavailable
from paddock.llm.archive.archive import Archive
from paddock.llm.exchange import MOST_TOKENS, Exchange, Outcome
from paddock.llm.usage import Ledger
from paddock.model.exchanges import Filters, Summary
from paddock.model.runs import Traffic

MOST_BEFORE = 100_000
"""Exchanges of one run that are looked through after a restart."""
_PAGE = 1000
_ABOVE_ALL = "ex-~"
"""Sorts after every exchange."""
_MOST_UNCOUNTED = 10_000
_FAILED = frozenset((Outcome.REFUSED, Outcome.FAILED, Outcome.CUT))
_UNREAL = frozenset(("script", "replay"))
log = structlog.get_logger()


@dataclass(slots=True)
class _Counted:
    """The numbers of one run."""

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
    under_way: set[str] = field(default_factory=set)
    """Ids of exchanges that have begun."""
    over: set[str] = field(default_factory=set)
    """Ids of those that ended while it is found out what was before."""
    before: frozenset[str] = frozenset()
    """Ids of those that were found in the archive and may have been under way then."""
    opening: asyncio.Future[None] | None = None
    bell: asyncio.Event = field(default_factory=asyncio.Event)
    """Rung once, when something changes, and replaced by another."""

    def traffic(self) -> Traffic:
        return Traffic(
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
        )

    def add(self, kind: str | None, tokens: tuple[int, int], cost: float | None, *, failed: bool) -> None:
        self.requests += 1
        self.failed += failed
        self.scripted = self.scripted or kind in _UNREAL
        if sum(tokens) <= MOST_TOKENS:
            self.input += tokens[0]
            self.output += tokens[1]
            if cost is not None:
                self.cost = (self.cost or 0.0) + cost

    def add_earlier(self, each: Summary) -> None:
        """Count an exchange older than all that were counted yet."""
        failed = each.outcome in _FAILED
        self.add(each.provider_kind, (each.input or 0, each.output or 0), each.cost, failed=failed)
        if failed:
            self.last_error = self.last_error or each.error
        else:
            self.model = self.model or each.provider_model or each.model
        self.last_at = max(each.at + each.total, self.last_at)

    def ring(self) -> None:
        self.bell.set()
        self.bell = asyncio.Event()


class Traffics:
    """Counts the requests of runs that somebody looks after; the others cost one look at who asks.

    All of it is for the event loop's thread.
    """

    def __init__(self, archive: Archive, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._archive = archive
        self._ledger = ledger
        self._clock = clock
        self._runs: dict[str, _Counted] = {}
        self._uncounted: dict[str, None] = {}
        """Runs that asked while they were not counted, the latest last; of these something may not be written yet."""
        self._news = asyncio.Event()
        """Rung once, when a run begins to be counted, and replaced by another."""

    def start(self, run_id: str, tenant: str) -> None:
        """Begin to count for a new run, which has asked nothing yet. Idempotent."""
        if run_id not in self._runs:
            self._count(run_id, tenant)

    async def open(self, run_id: str, tenant: str, sandbox: str | None = None) -> Traffic:
        """Begin to count for a run of an earlier server, from what it has asked before, and return that. Idempotent.

        Before is what the archive has of it, that which waits to be written included; on a server that keeps no
        archive, what the ledger has of the sandbox. Requests that come meanwhile are counted, and once. Raises
        `Unavailable` when that cannot be read, and then nothing is counted yet.
        """
        counted = self._runs.get(run_id)
        if counted is None:
            counted = self._count(run_id, tenant)
            counted.opening = asyncio.ensure_future(self._look_back(run_id, counted, sandbox))
        if counted.opening is not None:
            await asyncio.shield(counted.opening)
        return counted.traffic()

    def of(self, run_id: str) -> Traffic:
        """What a run has asked so far; nothing of one that is not counted."""
        counted = self._runs.get(run_id)
        return counted.traffic() if counted is not None else Traffic()

    async def changed(self, run_id: str, after: Traffic | None = None) -> Traffic:
        """Wait until a run's traffic is another than `after`, or than now, or until it is forgotten, and return it.

        A run that is not counted has no news: who waits for them waits until it is.
        """
        while (counted := self._runs.get(run_id)) is None:
            await self._news.wait()
        seen = after or counted.traffic()
        while (now := counted.traffic()) == seen and self._runs.get(run_id) is counted:
            await counted.bell.wait()
        return now

    def forget(self, run_id: str) -> None:
        """Count no longer for a run; those who wait for news of it are let go. Idempotent."""
        counted = self._runs.pop(run_id, None)
        if counted is not None:
            self._note_uncounted(run_id)
            counted.ring()

    def begin(self, exchange: Exchange) -> None:
        """A request has come."""
        run = exchange.caller.run
        if run is None or (counted := self._of(run, exchange)) is None:
            return
        counted.under_way.add(exchange.id)
        counted.last_at = max(exchange.at, counted.last_at)
        counted.ring()

    def end(self, exchange: Exchange) -> None:
        """A request is over, whatever became of it."""
        run = exchange.caller.run
        if run is None:
            return
        counted = self._of(run, exchange)
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
            if failed:
                counted.last_error = exchange.error
            else:
                counted.model = exchange.provider_model or exchange.model
        counted.ring()

    def _count(self, run_id: str, tenant: str) -> _Counted:
        counted = self._runs[run_id] = _Counted(tenant)
        self._news.set()
        self._news = asyncio.Event()
        return counted

    def _note_uncounted(self, run_id: str) -> None:
        self._uncounted.pop(run_id, None)
        self._uncounted[run_id] = None
        if len(self._uncounted) > _MOST_UNCOUNTED:
            del self._uncounted[next(iter(self._uncounted))]  # Written long ago.

    def _of(self, run_id: str, exchange: Exchange) -> _Counted | None:
        counted = self._runs.get(run_id)
        # Anybody can make a key that names a run; only those of its tenant speak of this one.
        return counted if counted is not None and counted.tenant == exchange.caller.tenant else None

    async def _look_back(self, run_id: str, counted: _Counted, sandbox: str | None) -> None:
        try:
            if self._archive.enabled:
                await self._read_archive(run_id, counted)
            elif sandbox is not None:
                await self._read_ledger(counted, sandbox)
        except BaseException:
            if self._runs.get(run_id) is counted:
                del self._runs[run_id]
            raise
        finally:
            counted.opening = None
            counted.over.clear()
            counted.ring()

    async def _read_archive(self, run_id: str, counted: _Counted) -> None:
        try:
            # What ended before may be on its way to the disk; what ends from now on is noted in `over`.
            if run_id in self._uncounted:
                await self._archive.flush()
        except Unavailable as error:
            log.warning(
                "traffic of a run may be told too low: the archive cannot be written", run=run_id, error=str(error)
            )
        cursor: str | None = _ABOVE_ALL  # Not from the top, for which what others have asked would be waited for too.
        for _ in range(MOST_BEFORE // _PAGE):
            page, cursor = await self._archive.list(counted.tenant, Filters(run=run_id), cursor=cursor, limit=_PAGE)
            # An archive that is written before answers end has some of which we have not been told that they ended.
            if self._archive.strict:
                counted.before |= {each.id for each in page} - counted.over
            for each in page:
                if each.id not in counted.over:
                    counted.add_earlier(each)
            if cursor is None:
                return

    async def _read_ledger(self, counted: _Counted, sandbox: str) -> None:
        rows = await self._ledger.query(counted.tenant, ["model", "provider"], filters={"sandbox": sandbox})
        # It knows all that ended up to this moment, that which has been counted here among it.
        tallies = [row.tally for row in rows]
        counted.requests = sum(tally.requests for tally in tallies)
        counted.failed = sum(tally.errors for tally in tallies)
        counted.input = sum(tally.input for tally in tallies)
        counted.output = sum(tally.output for tally in tallies)
        priced = [tally.cost for tally in tallies if tally.requests > tally.unpriced + tally.errors]
        counted.cost = sum(priced) if priced else None
        counted.model = counted.model or next((row.model for row in rows if row.model), None)

"""The usage ledger: requests, tokens and cost, summed by tenant, day, key, model, provider and sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import structlog

from paddock.errors import InvalidInput
from paddock.llm.exchange import MAX_TOKENS, Exchange, ExchangeOutcome
from paddock.llm.providers.run_scripts import RUN_SCRIPT_PROVIDER
from paddock.model.owners import private_subject_of_view
from paddock.store.database import Store
from paddock.store.model_exchanges.usage_store import USAGE_DIMENSIONS, UsageStore, UsageSumKey, UsageTally

FLUSH_SECONDS = 1.0
"""Seconds between writes; a crash loses at most that much."""
MAX_ROWS = 10_000
_MAX_WAITING = 50_000
_MAX_MODEL_CHARACTERS = 200
_MAX_UNANSWERED = 1000
"""Maximum number of unanswered model names to count by name; patterns let clients invent names."""
_DAY = 86_400
_FAILED = frozenset((ExchangeOutcome.REFUSED, ExchangeOutcome.FAILED, ExchangeOutcome.CUT))
_UNPAID_KINDS = frozenset(("script", "replay"))
"""Kinds of providers without a model, which cost nothing."""
_UNANSWERED = frozenset((ExchangeOutcome.REFUSED, ExchangeOutcome.FAILED))
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Sums of the requests with equal values in the chosen dimensions; other and unknown values are `None`."""

    tally: UsageTally
    tenant: str | None = None
    day: date | None = None
    key_id: str | None = None
    model: str | None = None
    provider: str | None = None
    sandbox: str | None = None


@dataclass(frozen=True, slots=True)
class KeyTotals:
    """The total use of a key; requests refused by Paddock do not count."""

    requests: int
    tokens: int
    cost: float


class UsageLedger:
    """Counts exchanges in memory and writes the sums about every second. Create it with `UsageLedger.open`."""

    def __init__(self, store: UsageStore, every: float = FLUSH_SECONDS) -> None:
        self._store = store
        self._every = every
        self._waiting: dict[tuple[int, str, str, str, str, str], UsageTally] = {}
        self._subjects: dict[str, str] = {}
        """Owners of the keys in `_waiting`."""
        self._unanswered: set[str] = set()
        self._writing = asyncio.Lock()
        """Held while sums are being written, when they are neither in memory nor surely in the database."""
        self._closing = asyncio.Event()
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: Store, *, every: float = FLUSH_SECONDS) -> UsageLedger:
        ledger = cls(UsageStore(store), every)
        ledger._task = asyncio.create_task(ledger._flush_periodically(), name="usage ledger")
        return ledger

    async def close(self) -> None:
        """Write the remaining sums. The store must still be open."""
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._flush()
        if self._waiting:
            lost = sum(tally.requests for tally in self._waiting.values())
            log.error("could not write usage; counts lost", requests=lost)

    def count_exchange(self, exchange: Exchange) -> None:
        """Add a finished exchange to the sums."""
        caller, outcome = exchange.caller, exchange.outcome
        key = (
            int(exchange.at // _DAY),
            caller.tenant,
            caller.key_id,
            self._model_name(exchange) if len(self._waiting) < _MAX_WAITING else "",
            exchange.provider or "",
            caller.sandbox or "",
        )
        tally = self._waiting.get(key)
        if tally is None:
            tally = self._waiting[key] = UsageTally()
            if caller.subject is not None:
                self._subjects[caller.key_id] = caller.subject
        tally.requests += 1
        if outcome in _FAILED:
            tally.errors += 1
            if outcome is ExchangeOutcome.REFUSED:
                tally.refused += 1
        usage = exchange.usage
        if usage is None or usage.input + usage.output > MAX_TOKENS:
            return
        tally.input += usage.input
        tally.output += usage.output
        tally.cache_read += min(usage.cache_read, usage.input)
        tally.cache_write += min(usage.cache_write, usage.input)
        tally.reasoning += min(usage.reasoning, usage.output)
        if exchange.cost is not None:
            tally.cost += exchange.cost
        elif exchange.provider_kind not in _UNPAID_KINDS:
            tally.unpriced += 1
        if exchange.estimated:
            tally.estimated += 1

    async def query(
        self,
        tenant: str | None,
        by: Collection[str] = (),
        since: date | None = None,
        until: date | None = None,
        filters: Mapping[str, str] | None = None,
    ) -> Sequence[UsageRow]:
        """Return the sums of everything counted so far, written or not, ordered by the dimensions.

        `by` and `filters` name dimensions: `tenant`, `day`, `key_id`, `model`, `provider`, `sandbox`. Days are in UTC,
        both ends included. A tenant of `None` means all tenants. Raises `InvalidInput` for an unknown dimension and for
        more than 10,000 rows.
        """
        values = dict(filters or {}) | ({"tenant": str(tenant)} if tenant is not None else {})
        subject = private_subject_of_view(tenant)
        unknown = sorted({*by, *values} - set(USAGE_DIMENSIONS))
        if unknown:
            raise InvalidInput(f"unknown usage dimension {unknown[0]!r}; known: {', '.join(USAGE_DIMENSIONS)}")
        first, last = since.isoformat() if since else None, until.isoformat() if until else None
        async with self._writing:
            sums = dict(await self._store.sums(by, values, first, last, MAX_ROWS + 1, subject=subject))
            self._add_waiting(sums, by, values, first, last, subject)
        if len(sums) > MAX_ROWS:
            raise InvalidInput(f"the result has more than {MAX_ROWS} rows; choose fewer days or dimensions")
        names = [name for name in USAGE_DIMENSIONS if name in by]
        return [_usage_row(names, sums[group], group) for group in sorted(sums)]

    async def totals_of_key(self, key_id: str) -> KeyTotals:
        """Return the total use of a key, including use that is not written to disk yet."""
        (row,) = await self.query(None, filters={"key_id": key_id})
        tally = row.tally
        return KeyTotals(tally.requests - tally.refused, tally.input + tally.output, tally.cost)

    def _model_name(self, exchange: Exchange) -> str:
        """Return the requested model name; empty for invented names, which any client can send."""
        if exchange.route is None:
            return ""
        model = exchange.model if exchange.route != RUN_SCRIPT_PROVIDER else RUN_SCRIPT_PROVIDER
        if len(model) > _MAX_MODEL_CHARACTERS or not model.isascii():
            # Lone surrogates would make the whole batch fail.
            model = model[:_MAX_MODEL_CHARACTERS].encode(errors="replace").decode()
        if exchange.outcome in _UNANSWERED and model not in self._unanswered:
            if len(self._unanswered) >= _MAX_UNANSWERED:
                return ""
            self._unanswered.add(model)
        return model

    def _add_waiting(
        self,
        sums: dict[tuple[str, ...], UsageTally],
        by: Collection[str],
        values: Mapping[str, str],
        since: str | None,
        until: str | None,
        subject: str | None,
    ) -> None:
        for key, tally in self._waiting.items():
            entry = dict(zip(USAGE_DIMENSIONS, _store_key(key), strict=True))
            day = entry["day"]
            if (since is not None and day < since) or (until is not None and day > until):
                continue
            if subject is not None and self._subjects.get(entry["key_id"], subject) != subject:
                continue
            if all(entry[name] == value for name, value in values.items()):
                group = tuple(entry[name] for name in USAGE_DIMENSIONS if name in by)
                sums.setdefault(group, UsageTally()).add(tally)

    async def _flush_periodically(self) -> None:
        while not self._closing.is_set():
            try:
                await asyncio.wait_for(self._closing.wait(), self._every)
            except TimeoutError:
                await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            if not self._waiting:
                return
            batch, self._waiting = self._waiting, {}
            subjects, self._subjects = self._subjects, {}
            try:
                written = self._store.add({_store_key(key): tally for key, tally in batch.items()}, subjects)
                # The caller may be cancelled; the write in progress must not be.
                await asyncio.shield(asyncio.wrap_future(written))
            except Exception as error:
                # The transaction was rolled back, so everything can be retried.
                for key, tally in batch.items():
                    self._waiting.setdefault(key, UsageTally()).add(tally)
                self._subjects = subjects | self._subjects
                if not self._failing:
                    log.error("could not write usage; will retry", error=str(error))
                self._failing = True
            else:
                self._failing = False


def _store_key(key: tuple[int, str, str, str, str, str]) -> UsageSumKey:
    day, tenant, key_id, model, provider, sandbox = key
    written = datetime.fromtimestamp(day * _DAY, UTC).date().isoformat()
    return tenant, written, key_id, model, provider, sandbox


def _usage_row(names: Sequence[str], tally: UsageTally, group: tuple[str, ...]) -> UsageRow:
    values = {name: value or None for name, value in zip(names, group, strict=True)}
    day = values.pop("day", None)
    return UsageRow(tally, day=date.fromisoformat(day) if day else None, **values)

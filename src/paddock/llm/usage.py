"""What is asked of models, added up by tenant, day, key, model, provider and sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import structlog

from paddock.errors import InvalidInput
from paddock.llm.exchange import MOST_TOKENS, Exchange, Outcome
from paddock.llm.scripted import SCRIPT
from paddock.model.owners import bounded_to
from paddock.store.database import Store
from paddock.store.usage import DIMENSIONS, Key, Tally, UsageStore

FLUSH_EVERY = 1.0
"""Seconds; what a sudden death of the server can lose."""
MOST_ROWS = 10_000
_MOST_WAITING = 50_000
_LONGEST_MODEL = 200
_MOST_UNANSWERED = 1000
"""Names of models that are counted by name though none of them answered; patterns let anybody make up more."""
_DAY = 86_400
_FAILED = frozenset((Outcome.REFUSED, Outcome.FAILED, Outcome.CUT))
_FREE = frozenset(("script", "replay"))
"""Kinds of providers that no model stands behind."""
_UNANSWERED = frozenset((Outcome.REFUSED, Outcome.FAILED))
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Sums of the requests that agree in the dimensions asked for; the others, and what is not known, are `None`."""

    tally: Tally
    tenant: str | None = None
    day: date | None = None
    key_id: str | None = None
    model: str | None = None
    provider: str | None = None
    sandbox: str | None = None


@dataclass(frozen=True, slots=True)
class KeyTotals:
    """What a key has used since it was made; what Paddock refused does not count."""

    requests: int
    tokens: int
    cost: float


class Ledger:
    """Counts exchanges in memory, and writes the sums down about every second. Make it with `Ledger.open`."""

    def __init__(self, store: UsageStore, every: float = FLUSH_EVERY) -> None:
        self._store = store
        self._every = every
        self._waiting: dict[tuple[int, str, str, str, str, str], Tally] = {}
        self._subjects: dict[str, str] = {}
        """Owners of the keys in `_waiting`."""
        self._unanswered: set[str] = set()
        self._writing = asyncio.Lock()
        """Held while sums are on their way to the database, when they are neither here nor surely there."""
        self._closing = asyncio.Event()
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: Store, *, every: float = FLUSH_EVERY) -> Ledger:
        ledger = cls(UsageStore(store), every)
        ledger._task = asyncio.create_task(ledger._keep_writing(), name="usage ledger")
        return ledger

    async def close(self) -> None:
        """Write down what is left. The store must still be open."""
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._flush()
        if self._waiting:
            lost = sum(tally.requests for tally in self._waiting.values())
            log.error("usage could not be written down and is lost", requests=lost)

    def count(self, exchange: Exchange) -> None:
        """Add an exchange that is over."""
        caller, outcome = exchange.caller, exchange.outcome
        key = (
            int(exchange.at // _DAY),
            caller.tenant,
            caller.key_id,
            self._model(exchange) if len(self._waiting) < _MOST_WAITING else "",
            exchange.provider or "",
            caller.sandbox or "",
        )
        tally = self._waiting.get(key)
        if tally is None:
            tally = self._waiting[key] = Tally()
            if caller.subject is not None:
                self._subjects[caller.key_id] = caller.subject
        tally.requests += 1
        if outcome in _FAILED:
            tally.errors += 1
            if outcome is Outcome.REFUSED:
                tally.refused += 1
        usage = exchange.usage
        if usage is None or usage.input + usage.output > MOST_TOKENS:
            return
        tally.input += usage.input
        tally.output += usage.output
        tally.cache_read += min(usage.cache_read, usage.input)
        tally.cache_write += min(usage.cache_write, usage.input)
        tally.reasoning += min(usage.reasoning, usage.output)
        if exchange.cost is not None:
            tally.cost += exchange.cost
        elif exchange.provider_kind not in _FREE:
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
        """Sums of everything counted so far, written down or not, in order of the dimensions.

        `by` and `filters` name dimensions: `tenant`, `day`, `key_id`, `model`, `provider`, `sandbox`. Days are those of
        UTC, and both ends count. `None` for the tenant is all of them. Raises `InvalidInput` for an unknown dimension,
        and when there would be more than 10,000 rows.
        """
        values = dict(filters or {}) | ({"tenant": str(tenant)} if tenant is not None else {})
        subject = bounded_to(tenant)
        unknown = sorted({*by, *values} - set(DIMENSIONS))
        if unknown:
            raise InvalidInput(f"there is no {unknown[0]!r} to tell usage by; known are: {', '.join(DIMENSIONS)}")
        first, last = since.isoformat() if since else None, until.isoformat() if until else None
        async with self._writing:
            sums = dict(await self._store.sums(by, values, first, last, MOST_ROWS + 1, subject=subject))
            self._add_waiting(sums, by, values, first, last, subject)
        if len(sums) > MOST_ROWS:
            raise InvalidInput(f"this would be more than {MOST_ROWS} rows; ask for fewer days or dimensions")
        names = [name for name in DIMENSIONS if name in by]
        return [_row(names, sums[group], group) for group in sorted(sums)]

    async def totals_of_key(self, key_id: str) -> KeyTotals:
        """What a key has used, all that was counted included, written down or not."""
        (row,) = await self.query(None, filters={"key_id": key_id})
        tally = row.tally
        return KeyTotals(tally.requests - tally.refused, tally.input + tally.output, tally.cost)

    def _model(self, exchange: Exchange) -> str:
        """The model as it was asked for; nothing for names that are made up, because anybody can ask for any."""
        if exchange.route is None:
            return ""
        model = exchange.model if exchange.route != SCRIPT else SCRIPT
        if len(model) > _LONGEST_MODEL or not model.isascii():
            # Halves of characters would keep the rest from being written.
            model = model[:_LONGEST_MODEL].encode(errors="replace").decode()
        if exchange.outcome in _UNANSWERED and model not in self._unanswered:
            if len(self._unanswered) >= _MOST_UNANSWERED:
                return ""
            self._unanswered.add(model)
        return model

    def _add_waiting(
        self,
        sums: dict[tuple[str, ...], Tally],
        by: Collection[str],
        values: Mapping[str, str],
        since: str | None,
        until: str | None,
        subject: str | None,
    ) -> None:
        for key, tally in self._waiting.items():
            entry = dict(zip(DIMENSIONS, _written(key), strict=True))
            day = entry["day"]
            if (since is not None and day < since) or (until is not None and day > until):
                continue
            if subject is not None and self._subjects.get(entry["key_id"], subject) != subject:
                continue
            if all(entry[name] == value for name, value in values.items()):
                group = tuple(entry[name] for name in DIMENSIONS if name in by)
                sums.setdefault(group, Tally()).add(tally)

    async def _keep_writing(self) -> None:
        while not self._closing.is_set():
            try:
                await asyncio.wait_for(self._closing.wait(), self._every)
            except TimeoutError:
                await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            if not self._waiting:
                return
            taken, self._waiting = self._waiting, {}
            subjects, self._subjects = self._subjects, {}
            try:
                written = self._store.add({_written(key): tally for key, tally in taken.items()}, subjects)
                # Whoever waits may be cancelled; what is on its way is not.
                await asyncio.shield(asyncio.wrap_future(written))
            except Exception as error:
                # Nothing of it was kept, so it can all be tried again.
                for key, tally in taken.items():
                    self._waiting.setdefault(key, Tally()).add(tally)
                self._subjects = subjects | self._subjects
                if not self._failing:
                    log.error("usage cannot be written down; trying again", error=str(error))
                self._failing = True
            else:
                self._failing = False


def _written(key: tuple[int, str, str, str, str, str]) -> Key:
    day, tenant, key_id, model, provider, sandbox = key
    written = datetime.fromtimestamp(day * _DAY, UTC).date().isoformat()
    return tenant, written, key_id, model, provider, sandbox


def _row(names: Sequence[str], tally: Tally, group: tuple[str, ...]) -> UsageRow:
    values = {name: value or None for name, value in zip(names, group, strict=True)}
    day = values.pop("day", None)
    return UsageRow(tally, day=date.fromisoformat(day) if day else None, **values)

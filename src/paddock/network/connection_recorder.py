"""Record ended and refused connections: rows in batches, and events that are limited per sandbox."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from paddock.errors import PaddockError
from paddock.events.event_log import EventLog
from paddock.events.event_rate import EventRateLimit
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.network import ConnectionRecord
from paddock.store.connection_store import ConnectionStore
from paddock.store.event_store import NewEvent

FLUSH_SECONDS = 0.1
"""Seconds between writes; a crash loses at most that much."""
RETRY_SECONDS = 1.0
"""Seconds after a failed write, such as on a full disk."""
PRUNE_SECONDS = 600.0
MAX_EVENTS_PER_SECOND = 50
"""Maximum number of events of a sandbox."""
MAX_BATCH = 500
MAX_WAITING = 20_000
"""Maximum number of records that wait for a write; the oldest are dropped."""
MAX_ROWS = 100_000
"""Approximate maximum number of records of a sandbox; a sandbox could fill the disk otherwise."""
_TRIM_AFTER = 10_000
_MAX_COUNTED = 10_000
_MAX_TEXT = 500
_TEXTS = ("name", "address", "server_name", "rule", "message")
log = structlog.get_logger()


class ConnectionRecorder:
    """Writes connection records to the store and publishes events. Create it with `ConnectionRecorder.open`."""

    def __init__(self, store: ConnectionStore, events: EventLog, keep: float, every: float = FLUSH_SECONDS) -> None:
        self._store = store
        self._events = events
        self._keep = timedelta(seconds=keep)
        self._every = every
        self._waiting: deque[tuple[ConnectionRecord, bool]] = deque()
        """Records, each with whether an event is published for it."""
        self._dropped = 0
        self._event_rate = EventRateLimit(MAX_EVENTS_PER_SECOND)
        self._rows: dict[str, int] = {}
        """Number of rows by sandbox since they were last trimmed."""
        self._has_records = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failing = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls, store: ConnectionStore, events: EventLog, *, keep: float, every: float = FLUSH_SECONDS
    ) -> ConnectionRecorder:
        """Start writing. Records older than `keep` seconds are deleted from time to time."""
        recorder = cls(store, events, keep, every)
        for work in (recorder._flush_periodically(), recorder._prune_periodically()):
            recorder._tasks.append(asyncio.create_task(work, name="network connection recorder"))
        return recorder

    async def close(self) -> None:
        """Write what is left. The store must still be open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()
        if self._waiting:
            log.error("could not write network connections; records lost", count=len(self._waiting))

    def record(self, record: ConnectionRecord) -> None:
        """Take a record; it is on disk after the next write. Call it on the event loop's thread."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((_storable_record(record), self._event_rate.may_publish(record.sandbox)))
        self._has_records.set()

    async def flush(self) -> None:
        """Write all records taken so far; they stay waiting if the database fails."""
        async with self._writing:
            while self._waiting:
                batch = [self._waiting[i] for i in range(min(len(self._waiting), MAX_BATCH))]
                try:
                    await self._write(batch)
                except PaddockError as error:
                    if not self._failing:
                        log.error("cannot write network connections; will retry", error=error.message)
                    self._failing = True
                    return
                self._failing = False
                # Records at the front may have been dropped meanwhile.
                written = {record.id for record, _ in batch}
                while self._waiting and self._waiting[0][0].id in written:
                    self._waiting.popleft()
            if self._dropped:
                log.warning("too many network connections; records lost", count=self._dropped)
                self._dropped = 0

    async def _write(self, batch: Sequence[tuple[ConnectionRecord, bool]]) -> None:
        records = [record for record, _ in batch]
        published = [record for record, has_event in batch if has_event]

        def events_of(alive: frozenset[str]) -> list[NewEvent]:
            # No event may follow the one that ends a stream.
            return [_connection_event(record) for record in published if record.sandbox in alive]

        await self._events.write_with_events(ConnectionStore.insert_work(records), events_of)
        for record in records:
            self._rows[record.sandbox] = self._rows.get(record.sandbox, 0) + 1

    async def _flush_periodically(self) -> None:
        while True:
            await self._has_records.wait()
            await asyncio.sleep(RETRY_SECONDS if self._failing else self._every)
            self._has_records.clear()
            try:
                await self.flush()
                await self._trim_large()
            except Exception as error:
                log.error("cannot write network connections; will retry", error=repr(error))
                self._failing = True
            if self._waiting:
                self._has_records.set()

    async def _trim_large(self) -> None:
        """Delete the oldest records of sandboxes that have very many."""
        for sandbox_id in [sandbox_id for sandbox_id, count in self._rows.items() if count >= _TRIM_AFTER]:
            self._rows[sandbox_id] = 0
            if removed := await self._store.trim(sandbox_id, MAX_ROWS):
                log.warning("oldest network connections deleted", sandbox=sandbox_id, count=removed)

    async def _prune_periodically(self) -> None:
        while True:
            try:
                await self._store.prune(datetime.now(UTC) - self._keep)
                if len(self._rows) > _MAX_COUNTED:
                    self._rows.clear()  # Most have ended; the others are trimmed a little later.
            except PaddockError as error:
                log.warning("cannot delete old network connections; will retry", error=error.message)
            await asyncio.sleep(PRUNE_SECONDS)


def _storable_record(record: ConnectionRecord) -> ConnectionRecord:
    """Return the record with texts that any database can store: names come from programs in the sandbox."""
    changes = {}
    for field in _TEXTS:
        text = getattr(record, field)
        if text is not None:
            stored = text[:_MAX_TEXT].encode(errors="replace").decode().replace("\0", "?")
            if stored != text:
                changes[field] = stored
    return record.model_copy(update=changes) if changes else record


def _connection_event(record: ConnectionRecord) -> NewEvent:
    data: dict[str, Any] = {
        "id": record.id,
        "host": record.host,
        "port": record.port,
        "allowed": record.allowed,
        "refusal": record.refusal,
        "rule": record.rule,
        "sent": record.sent,
        "received": record.received,
        "seconds": round(record.duration, 3),
    }
    return NewEvent(sandbox_event_stream(record.sandbox), EventType.NETWORK_CONNECTION, data, record.tenant)

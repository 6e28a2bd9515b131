"""The event log: appends events durably, reads them, and streams them to any number of followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from paddock.events.operator_log import log_operator_event
from paddock.events.recent_events import RecentEvents
from paddock.model.events import EventRecord, EventType
from paddock.store.database import Store, Work
from paddock.store.event_store import EventStore, NewEvent, work_with_new_audience

T = TypeVar("T")
_PAGE_SIZE = 256


class EventLog:
    """The only writer of the events table. Create it with `EventLog.open`."""

    def __init__(self, events: EventStore, recent: RecentEvents) -> None:
        self._events = events
        self._recent = recent

    @classmethod
    async def open(cls, store: Store, *, window_size: int = 1024) -> EventLog:
        """Start at the end of the table. `window_size` is the number of events kept in memory for followers."""
        events = EventStore(store)
        return cls(events, RecentEvents(await events.newest(), window_size))

    async def append(
        self, stream: str, type: EventType, data: Mapping[str, Any] | None = None, *, tenant: str
    ) -> EventRecord:
        """Append an event. On return the event is on disk and visible to followers.

        Concurrent appends share one flush. A cancelled append may still be recorded.
        Raises `Unavailable`, with nothing recorded, when the disk is full.
        """
        return await asyncio.wrap_future(self._events.append(stream, type, data or {}, tenant, self._publisher()))

    async def write_with_events(
        self, work: Work[T], events_of: Callable[[T], Sequence[NewEvent]], *, erased_stream: str | None = None
    ) -> T:
        """Run `work` and append the events that `events_of` derives from its result, in one transaction.

        `erased_stream` names a stream that ends: only its newest event is kept, in the table and in memory. As with
        `Store.write`, both functions may run more than once; after a cancellation the write may or may not happen.
        """
        if erased_stream is None:
            return (await self.write_returning_events(work, events_of))[0]
        publish = self._publisher()
        loop, stream = asyncio.get_running_loop(), erased_stream

        def on_last(event: EventRecord) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._recent.forget_stream, stream)
            publish(event)

        result, _ = await asyncio.wrap_future(self._events.submit_with_events(work, events_of, on_last, erases=stream))
        return result

    async def change_audience(
        self, work: Work[T], events_of: Callable[[T], Sequence[NewEvent]], streams: Sequence[str], audience: str | None
    ) -> T:
        """As `write_with_events`; also restrict events of some streams to a subject, or open them to the tenant."""

        result = await self.write_with_events(work_with_new_audience(work, streams, audience), events_of)
        self._recent.change_audience(streams, audience)
        return result

    async def write_returning_events(
        self, work: Work[T], events_of: Callable[[T], Sequence[NewEvent]]
    ) -> tuple[T, Sequence[EventRecord]]:
        """As `write_with_events`, but also return the appended events."""
        return await asyncio.wrap_future(self._events.submit_with_events(work, events_of, self._publisher()))

    async def read(
        self, stream: str | None = None, after: int = 0, limit: int = 100, *, tenant: str | None = None
    ) -> Sequence[EventRecord]:
        """Read events in order: of a stream after a number, or of all (`None`) after a sequence number."""
        return (await self._events.read(stream, after, limit, tenant)).events

    async def newest_number(self, stream: str) -> int:
        """Return the number of the newest event of a stream, 0 if there is none."""
        return await self._events.end(stream)

    async def follow(
        self, stream: str | None = None, after: int = 0, *, tenant: str | None = None, after_sequence: int = -1
    ) -> AsyncIterator[EventRecord]:
        """Yield stored events as `read` does and then each new event, without gaps or duplicates.

        `after_sequence` is the sequence number of event `after`, if known: newer events are often in memory. Ends
        when the log is closed or the caller stops.
        """
        position = after
        while True:
            next_event = self._recent.next_event_signal(stream)
            found = self._recent.events_after(after_sequence, stream, tenant)
            if found is None:
                floor = self._recent.floor
                page = await self._events.read(stream, position, _PAGE_SIZE, tenant)
                found = page.events
                after_sequence = (
                    found[-1].sequence if len(found) == _PAGE_SIZE else max(after_sequence, page.newest, floor)
                )
            elif not found:
                if self._recent.closed:
                    return
                await next_event.wait()
                continue
            else:
                after_sequence = found[-1].sequence
            for event in found:
                number = event.sequence if stream is None else event.number
                # The window may contain events before the cursor.
                if number > position:
                    position = number
                    yield event

    async def prune(self, before: datetime) -> int:
        """Delete events older than `before` and return their count; the newest of an open stream stays."""
        return await self._events.prune(before)

    def _publisher(self) -> Callable[[EventRecord], None]:
        """Return a callback that shows an event to followers, even if the appending task is cancelled."""
        loop = asyncio.get_running_loop()

        def publish(event: EventRecord) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._publish, event)

        return publish

    def _publish(self, event: EventRecord) -> None:
        self._recent.add(event)
        log_operator_event(event)

    def close(self) -> None:
        """Let followers finish with the events recorded so far."""
        self._recent.close()

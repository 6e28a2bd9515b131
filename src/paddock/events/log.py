"""Appends events and lets any number of readers follow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from paddock.events.lifecycle import log_event
from paddock.events.window import Window
from paddock.model.events import Event, EventType
from paddock.store.database import Store, Work
from paddock.store.events import EventStore, Happening, readdressing

T = TypeVar("T")
_PAGE = 256


class EventLog:
    """The one writer of the events table. Make it with `EventLog.open`."""

    def __init__(self, events: EventStore, window: Window) -> None:
        self._events = events
        self._window = window

    @classmethod
    async def open(cls, store: Store, *, remember: int = 1024) -> EventLog:
        """Start where the table ends. `remember` is how many events are kept in memory for those who follow."""
        events = EventStore(store)
        return cls(events, Window(await events.newest(), remember))

    async def append(
        self, stream: str, type: EventType, data: Mapping[str, Any] | None = None, *, tenant: str
    ) -> Event:
        """Record that something happened. When this returns the event is on disk and followers can see it.

        Appends that wait at the same time share one flush. A cancelled append may still be recorded.
        Raises `Unavailable`, with nothing recorded, when the disk is full.
        """
        return await asyncio.wrap_future(self._events.append(stream, type, data or {}, tenant, self._publisher()))

    async def together(
        self, work: Work[T], tell: Callable[[T], Sequence[Happening]], *, erases: str | None = None
    ) -> T:
        """Change the database and record what `tell` says of the result, in one transaction.

        `erases` names a stream that has come to its end: of its events only the newest stays, here and in memory.
        As with `Store.write`, both may run more than once, and if the caller is cancelled it may or may not happen.
        """
        if erases is None:
            return (await self.told(work, tell))[0]
        publish = self._publisher()
        loop, stream = asyncio.get_running_loop(), erases

        def last(event: Event) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._window.erase, stream)
            publish(event)

        result, _ = await asyncio.wrap_future(self._events.together(work, tell, last, erases=stream))
        return result

    async def readdress(
        self, work: Work[T], tell: Callable[[T], Sequence[Happening]], streams: Sequence[str], audience: str | None
    ) -> T:
        """As `together`, and from now on the events of some streams are for one subject, or for all of the tenant."""

        result = await self.together(readdressing(work, streams, audience), tell)
        self._window.readdress(streams, audience)
        return result

    async def told(self, work: Work[T], tell: Callable[[T], Sequence[Happening]]) -> tuple[T, Sequence[Event]]:
        """As `together`, with what was recorded."""
        return await asyncio.wrap_future(self._events.together(work, tell, self._publisher()))

    async def read(
        self, stream: str | None = None, after: int = 0, limit: int = 100, *, tenant: str | None = None
    ) -> Sequence[Event]:
        """Events of one stream after a number, or of all streams (`None`) after a sequence number, oldest first."""
        return (await self._events.read(stream, after, limit, tenant)).events

    async def end(self, stream: str) -> int:
        """The number of the newest event of a stream, 0 if there is none: where to follow what happens from now on."""
        return await self._events.end(stream)

    async def follow(
        self, stream: str | None = None, after: int = 0, *, tenant: str | None = None, seen: int = -1
    ) -> AsyncIterator[Event]:
        """Events as `read` gives them, and then each new one as it happens, none missed and none twice.

        `seen` is the sequence number of the event that `after` means, for those who know it: what is newer is often
        in memory. Goes on until the log is closed or the caller stops.
        """
        place = after
        while True:
            news = self._window.news(stream)
            found = self._window.since(seen, stream, tenant)
            if found is None:
                floor = self._window.floor
                page = await self._events.read(stream, place, _PAGE, tenant)
                found = page.events
                seen = found[-1].sequence if len(found) == _PAGE else max(seen, page.newest, floor)
            elif not found:
                if self._window.closed:
                    return
                await news.wait()
                continue
            else:
                seen = found[-1].sequence
            for event in found:
                number = event.sequence if stream is None else event.number
                # The window may hold what the cursor has already passed.
                if number > place:
                    place = number
                    yield event

    async def prune(self, before: datetime) -> int:
        """Forget events older than `before`, and say how many; the last one of a stream that may go on stays."""
        return await self._events.prune(before)

    def _publisher(self) -> Callable[[Event], None]:
        """Shows an event to followers. Not done by whoever appends it: they may be cancelled while it is written."""
        loop = asyncio.get_running_loop()

        def publish(event: Event) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._show, event)

        return publish

    def _show(self, event: Event) -> None:
        self._window.add(event)
        log_event(event)

    def close(self) -> None:
        """Let followers finish with what has been recorded."""
        self._window.close()

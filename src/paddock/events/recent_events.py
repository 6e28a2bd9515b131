"""In-memory window of the newest events, with signals for followers that wait for the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from weakref import WeakValueDictionary

from paddock.model.events import EventRecord
from paddock.model.owners import private_subject_of_view


class RecentEvents:
    """Holds all events after sequence number `floor`, up to `size`; older ones are only in the table."""

    def __init__(self, newest: int, size: int) -> None:
        self.floor = newest
        self._events: deque[EventRecord] = deque()
        self._size = size
        # Weak, so that a signal without waiters is dropped.
        self._signals: WeakValueDictionary[str | None, asyncio.Event] = WeakValueDictionary()
        self.closed = False

    def add(self, event: EventRecord) -> None:
        """Add an event and wake its followers. Events arrive in the order of their sequence numbers."""
        self._events.append(event)
        if len(self._events) > self._size:
            self.floor = self._events.popleft().sequence
        self._set_signal(event.stream)
        self._set_signal(None)

    def forget_stream(self, stream: str) -> None:
        """Drop the events of a stream, which have been deleted from the table."""
        kept = [event for event in self._events if event.stream != stream]
        self._events.clear()
        self._events.extend(kept)

    def change_audience(self, streams: Collection[str], audience: str | None) -> None:
        """Restrict the held events of some streams to one subject, or open them to the tenant."""
        for index, event in enumerate(self._events):
            if event.stream in streams:
                self._events[index] = event.model_copy(update={"audience": audience})

    def events_after(self, sequence: int, stream: str | None, tenant: str | None) -> Sequence[EventRecord] | None:
        """Return events after a sequence number in order, or `None` if some of them are only in the table."""
        if sequence < self.floor:
            return None
        found = []
        subject = private_subject_of_view(tenant)
        for event in reversed(self._events):
            if event.sequence <= sequence:
                break
            if stream not in (None, event.stream) or tenant not in (None, event.tenant):
                continue
            if subject is None or event.audience is None or event.audience == subject:
                found.append(event)
        return found[::-1]

    def next_event_signal(self, stream: str | None) -> asyncio.Event:
        """Return a signal that is set at the next event of a stream, or of any stream (`None`)."""
        signal = self._signals.get(stream)
        if signal is None:
            signal = self._signals[stream] = asyncio.Event()
        return signal

    def close(self) -> None:
        """Wake all followers for the last time."""
        self.closed = True
        for stream in list(self._signals):
            self._set_signal(stream)

    def _set_signal(self, stream: str | None) -> None:
        signal = self._signals.pop(stream, None)
        if signal is not None:
            signal.set()

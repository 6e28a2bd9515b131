"""The newest events in memory, and a bell for those who wait for more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from weakref import WeakValueDictionary

from paddock.model.events import Event
from paddock.model.owners import bounded_to


class Window:
    """Holds every event after `floor`, up to a number of them; older ones are only in the table."""

    def __init__(self, newest: int, size: int) -> None:
        self.floor = newest
        self._events: deque[Event] = deque()
        self._size = size
        # Weak, so that a bell nobody waits for any more is gone.
        self._bells: WeakValueDictionary[str | None, asyncio.Event] = WeakValueDictionary()
        self.closed = False

    def add(self, event: Event) -> None:
        """Take in a new event and wake who waits for it. Events come in the order of their sequence numbers."""
        self._events.append(event)
        if len(self._events) > self._size:
            self.floor = self._events.popleft().sequence
        self._ring(event.stream)
        self._ring(None)

    def erase(self, stream: str) -> None:
        """Forget what is held of a stream; it is no more in the table either."""
        kept = [event for event in self._events if event.stream != stream]
        self._events.clear()
        self._events.extend(kept)

    def readdress(self, streams: Collection[str], audience: str | None) -> None:
        """Show what is held of some streams to one subject only, or to all of the tenant."""
        for place, event in enumerate(self._events):
            if event.stream in streams:
                self._events[place] = event.model_copy(update={"audience": audience})

    def since(self, sequence: int, stream: str | None, tenant: str | None) -> Sequence[Event] | None:
        """Events after a sequence number in order, or `None` if some of them are only in the table."""
        if sequence < self.floor:
            return None
        found = []
        subject = bounded_to(tenant)
        for event in reversed(self._events):
            if event.sequence <= sequence:
                break
            if stream not in (None, event.stream) or tenant not in (None, event.tenant):
                continue
            if subject is None or event.audience is None or event.audience == subject:
                found.append(event)
        return found[::-1]

    def news(self, stream: str | None) -> asyncio.Event:
        """A bell that rings at the next event of a stream, or of any (`None`)."""
        bell = self._bells.get(stream)
        if bell is None:
            bell = self._bells[stream] = asyncio.Event()
        return bell

    def close(self) -> None:
        """Wake everyone for the last time."""
        self.closed = True
        for stream in list(self._bells):
            self._ring(stream)

    def _ring(self, stream: str | None) -> None:
        bell = self._bells.pop(stream, None)
        if bell is not None:
            bell.set()

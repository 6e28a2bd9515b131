"""What happens in a session from one message to the end of its turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from paddock.agents.sessions import Sent
from paddock.api.events import SESSIONS, frame
from paddock.api.following import FOLLOWS, STILL_HERE, alive
from paddock.errors import NotFound
from paddock.events.log import EventLog
from paddock.model.events import Event, EventType

_PAGE = 256


class Stream:
    """The events of one session."""

    def __init__(self, events: EventLog, tenant: str, session_id: str) -> None:
        self._events = events
        self._tenant = tenant
        self.name = f"{SESSIONS}{session_id}"

    async def end(self) -> int:
        return await self._events.end(self.name)

    def follow(self, after: Event | int, silence: float | None = None) -> AsyncIterator[Event | None]:
        """Each event after one, or after a number, and nothing whenever there was none for a while. To be closed."""
        if isinstance(after, Event):
            found = self._events.follow(self.name, after.number, tenant=self._tenant, seen=after.sequence)
        else:
            found = self._events.follow(self.name, after, tenant=self._tenant)
        return alive(found, silence)

    async def arrival(self, sent: Sent) -> Event:
        """The event that told of a message. Raises `NotFound` if it is forgotten."""
        if sent.arrival is not None:
            return sent.arrival
        place = 0
        while found := await self._events.read(self.name, place, _PAGE, tenant=self._tenant):
            for event in found:
                if event.type is EventType.MESSAGE_RECEIVED and event.data["message"]["id"] == sent.message.id:
                    return event
            place = found[-1].number
        raise NotFound(f"what happened after the message {sent.message.id} is not kept any more")

    async def paused(self, at: Event) -> bool:
        """Whether the turn waited for decisions when a message came, so that nothing would follow by itself."""
        if not at.data.get("waits"):
            return False
        before = at.number
        while before > 1:
            after = max(0, before - 1 - _PAGE)
            found = await self._events.read(self.name, after, before - 1 - after, tenant=self._tenant)
            for event in reversed(found):
                if event.type is EventType.TURN_ENDED:
                    return bool(event.data["state"] == "waiting")
                if event.type is EventType.TURN_STARTED:
                    return False
            before = after + 1
        return False

    async def turn(self, first: Event, turn: int) -> AsyncIterator[bytes]:
        """As server-sent events: an event, and what follows it until that turn ends or waits."""
        yield FOLLOWS
        yield frame(first, self.name)
        if await self.paused(first):
            return
        async with aclosing(self.follow(first)) as following:  # type: ignore[type-var]
            async for event in following:
                if event is None:
                    yield STILL_HERE
                    continue
                yield frame(event, self.name)
                if over(event, turn):
                    return


def over(event: Event, turn: int) -> bool:
    """Whether a turn has ended with this, or the session has."""
    return event.type.last or (event.type is EventType.TURN_ENDED and int(event.data["turn"]) >= turn)

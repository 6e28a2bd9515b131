"""The events of a session, from one message to the end of its turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from paddock.agents.sessions.session_service import SentMessage
from paddock.api.http.event_log_responses import SESSION_STREAM_PREFIX, event_to_sse
from paddock.api.http.server_sent_events import HEARTBEAT_COMMENT, STREAM_OPENED, with_heartbeats
from paddock.errors import NotFound
from paddock.events.event_log import EventLog
from paddock.model.events import EventRecord, EventType

_PAGE_SIZE = 256


class SessionEventStream:
    """The event stream of one session."""

    def __init__(self, events: EventLog, tenant: str, session_id: str) -> None:
        self._events = events
        self._tenant = tenant
        self.name = f"{SESSION_STREAM_PREFIX}{session_id}"

    async def last_number(self) -> int:
        return await self._events.newest_number(self.name)

    def follow(self, after: EventRecord | int, silence: float | None = None) -> AsyncIterator[EventRecord | None]:
        """Yield the events after a position, and `None` after each silence. The caller closes it."""
        if isinstance(after, EventRecord):
            events = self._events.follow(self.name, after.number, tenant=self._tenant, after_sequence=after.sequence)
        else:
            events = self._events.follow(self.name, after, tenant=self._tenant)
        return with_heartbeats(events, silence)

    async def find_arrival(self, sent: SentMessage) -> EventRecord:
        """Return the event of a message's arrival. Raises `NotFound` if it was deleted."""
        if sent.event is not None:
            return sent.event
        position = 0
        while page := await self._events.read(self.name, position, _PAGE_SIZE, tenant=self._tenant):
            for event in page:
                if event.type is EventType.MESSAGE_RECEIVED and event.data["message"]["id"] == sent.message.id:
                    return event
            position = page[-1].number
        raise NotFound(f"the events after the message {sent.message.id} have been deleted")

    async def was_waiting(self, arrival: EventRecord) -> bool:
        """Return whether the turn was waiting for decisions when the message arrived.

        Then no events would follow.
        """
        if not arrival.data.get("waits"):
            return False
        before = arrival.number
        while before > 1:
            after = max(0, before - 1 - _PAGE_SIZE)
            page = await self._events.read(self.name, after, before - 1 - after, tenant=self._tenant)
            for event in reversed(page):
                if event.type is EventType.TURN_ENDED:
                    return bool(event.data["state"] == "waiting")
                if event.type is EventType.TURN_STARTED:
                    return False
            before = after + 1
        return False

    async def stream_turn(self, first: EventRecord, turn: int) -> AsyncIterator[bytes]:
        """Yield an event and the following ones, as server-sent events, until the turn ends or waits."""
        yield STREAM_OPENED
        yield event_to_sse(first, self.name)
        if await self.was_waiting(first):
            return
        async with aclosing(self.follow(first)) as events:  # type: ignore[type-var]
            async for event in events:
                if event is None:
                    yield HEARTBEAT_COMMENT
                    continue
                yield event_to_sse(event, self.name)
                if is_turn_end(event, turn):
                    return


def is_turn_end(event: EventRecord, turn: int) -> bool:
    """Return whether this event ends the turn or the session."""
    return event.type.ends_stream or (event.type is EventType.TURN_ENDED and int(event.data["turn"]) >= turn)

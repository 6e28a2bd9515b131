"""Publish an agent's events to the run's stream, merged and rate-limited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from paddock.errors import PaddockError
from paddock.events.event_log import EventLog
from paddock.model.events import EventRecord, EventType
from paddock.model.runs import Run

EVENT_BURST, EVENTS_PER_SECOND = 50.0, 5.0
"""Burst of events, and events per second after it."""
MAX_PENDING_EVENTS = 200
"""Maximum pending events; later ones are dropped."""
MAX_TEXT_CHARACTERS = 16 * 2**10
"""Maximum characters of an event's text; longer texts lose their middle."""
MAX_OUTPUT_CHARACTERS = 4 * 2**20
"""Characters of unrecognised output in all events of a run. Later output is sampled every few seconds; the
logs have more of it."""
REDUCED_TEXT, REDUCED_INTERVAL = 1024, 5.0
FLUSH_INTERVAL = 0.2
EVENT_PAGE_SIZE = 256
log = structlog.get_logger()


class AgentEvent(Protocol):
    """Event parsed from an agent's output."""

    @property
    def type(self) -> EventType: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


class AgentOutputReader(Protocol):
    """Parser of an agent's output. The events do not depend on how the output is split into pieces."""

    @property
    def turns(self) -> int: ...
    @property
    def error(self) -> str | None: ...

    def feed(self, stream: str, data: bytes) -> Sequence[AgentEvent]: ...

    def close(self) -> Sequence[AgentEvent] | None:
        """Return events of an unfinished last line."""
        ...


@dataclass
class _PendingEvent:
    """Event that waits to be published."""

    type: EventType
    data: dict[str, Any]
    cursor: int
    nth: int
    parts: list[str] = field(default_factory=list)
    """Pieces of its text, if more can be appended."""
    size: int = 0
    omitted: int = 0

    def can_append(self, kind: EventType, data: Mapping[str, Any]) -> bool:
        others = {name: value for name, value in data.items() if name != "text"}
        return bool(self.parts) and kind is self.type and others == self.data

    def add(self, text: str, limit: int) -> None:
        self.parts.append(text)
        self.size += len(text)
        if self.size > 2 * limit:
            self.cut(limit)

    def cut(self, limit: int) -> None:
        """Drop the middle of the text."""
        text = "".join(self.parts)
        if len(text) > limit:
            self.omitted += len(text) - limit
            text = f"{text[: limit // 2]}{text[-(limit - limit // 2) :]}"
        self.parts, self.size = [text], len(text)

    def document(self, limit: int) -> dict[str, Any]:
        data = dict(self.data)
        for name, value in data.items():
            if isinstance(value, str) and len(value) > MAX_TEXT_CHARACTERS:
                self.omitted += len(value) - MAX_TEXT_CHARACTERS
                data[name] = f"{value[: MAX_TEXT_CHARACTERS // 2]}\n…\n{value[-MAX_TEXT_CHARACTERS // 2 :]}"
        if self.parts:
            self.cut(limit)
            data["text"] = self.parts[0]
        if self.omitted:
            data["left_out"] = self.omitted
        return {**data, "cursor": self.cursor, "nth": self.nth}


class AgentEventPublisher:
    """Publisher of one run's events.

    Parsed events are numbered. Each published event carries the number of the last parsed event it covers as
    `nth`, and the output position behind it as `cursor`, so that the next server knows what is published.
    """

    def __init__(self, events: EventLog, run: Run) -> None:
        self._events = events
        self._stream = f"run/{run.id}"
        self._tenant = run.tenant
        self._pending: list[_PendingEvent] = []
        self._has_pending = asyncio.Event()
        self._tokens = EVENT_BURST
        self._filled_at = self._output_at = asyncio.get_running_loop().time()
        self._output = 0
        self._appending = asyncio.Lock()
        self.nth = 0
        """Number of the last parsed event."""
        self.published = 0
        """Number of the last published event."""
        self.published_to = 0
        """Output position up to which events are published."""
        self._published_before = 0
        """Output position up to which an earlier server published."""
        self.number = 0
        """Number of the last known event of the stream."""
        self.usage: dict[str, Any] = {}
        """Last published usage."""
        self._model_failure_published = False
        """Whether a failed model request is published, and none was answered since."""
        self.has_agent_events = False
        """Whether the output contained recognised agent events."""

    async def resume(self, after: int, published: int, published_to: int) -> None:
        """Find what an earlier server published after it stored this position."""
        self.number, self.published, self.published_to = after, published, published_to
        page: Sequence[EventRecord] | None = None
        while page is None or len(page) == EVENT_PAGE_SIZE:
            page = await self._events.read(self._stream, self.number, EVENT_PAGE_SIZE, tenant=self._tenant)
            for event in page:
                self.number = event.number
                if event.type is EventType.RUN_STARTED:  # A new attempt starts from zero.
                    self.published, self.published_to, self.usage = 0, 0, {}
                    self._model_failure_published = False
                elif event.type is EventType.RUN_MODEL_FAILED:
                    self._model_failure_published = True
                elif event.type is EventType.RUN_USAGE:
                    self.usage = dict(event.data)
                elif isinstance(nth := event.data.get("nth"), int):
                    self.published = max(self.published, nth)
                    self.published_to = max(self.published_to, event.data["cursor"])
        self._published_before = self.published_to

    def add_events(self, events: Iterable[AgentEvent], cursor: int) -> None:
        """Add events parsed from the output up to a cursor."""
        for event in events:
            self.nth += 1
            self.has_agent_events = self.has_agent_events or event.type not in (
                EventType.RUN_OUTPUT,
                EventType.RUN_ERROR,
            )
            if self.nth > self.published:
                self._add_pending(event.type, event.data, cursor, lines=event.type is EventType.RUN_OUTPUT)

    def add_output(self, stream: str, data: bytes, cursor: int) -> None:
        """Add output without a reader, up to a cursor."""
        data = data[max(0, self._published_before - (cursor - len(data))) :]
        if data:
            text = data.decode(errors="replace")
            self._add_pending(EventType.RUN_OUTPUT, {"stream": stream, "text": text}, cursor, lines=False)

    def add_note(self, stream: str, text: str, cursor: int) -> None:
        """Add a note about the output at a cursor."""
        self._add_pending(EventType.RUN_OUTPUT, {"stream": stream, "text": text}, cursor, lines=False)

    async def run(self) -> None:
        """Publish pending events at a limited rate."""
        while True:
            await self._has_pending.wait()
            # Wait briefly for more text to merge.
            await asyncio.sleep(FLUSH_INTERVAL)
            self._has_pending.clear()
            await self.flush(wait=False)
            if self._pending:
                self._has_pending.set()

    async def flush(self, *, wait: bool = True) -> bool:
        """Publish pending events: all, or as many as the rate allows. Return False if writing failed."""
        async with self._appending:
            while self._pending and (wait or self._rate_allows(self._pending[0])):
                draft = self._pending.pop(0)
                is_output = draft.type is EventType.RUN_OUTPUT
                limit = REDUCED_TEXT if is_output and self._output > MAX_OUTPUT_CHARACTERS else MAX_TEXT_CHARACTERS
                if not await self._append(draft.type, draft.document(limit)):
                    self._pending.insert(0, draft)
                    return False
                self.published, self.published_to = draft.nth, draft.cursor
                if is_output:
                    self._output += draft.size
                    self._output_at = asyncio.get_running_loop().time()
        return True

    def has_published(self, nth: int, cursor: int) -> bool:
        """Return whether everything up to this position is published."""
        busy = bool(self._pending) or self._appending.locked()
        return not busy or (self.published >= nth and self.published_to >= cursor)

    async def publish_usage(self, figures: dict[str, Any]) -> None:
        """Publish usage if it has changed."""
        async with self._appending:
            if figures != self.usage and await self._append(EventType.RUN_USAGE, figures):
                self.usage = figures

    async def publish_model_failure(self, message: str | None, *, retried: bool) -> None:
        """Publish the failure of the latest model requests once; `None` after an answered one."""
        async with self._appending:
            if message is None:
                self._model_failure_published = False
            elif not self._model_failure_published:
                data = {"message": message, "retried": retried}
                self._model_failure_published = await self._append(EventType.RUN_MODEL_FAILED, data)

    async def _append(self, kind: EventType, data: Mapping[str, Any]) -> bool:
        appending = asyncio.ensure_future(self._events.append(self._stream, kind, data, tenant=self._tenant))
        try:
            event: EventRecord = await asyncio.shield(appending)
        except asyncio.CancelledError:
            # The write goes on anyway; wait, so that the next server finds the event.
            await asyncio.wait([appending])
            raise
        except PaddockError as error:
            log.warning("could not append run event; will retry", stream=self._stream, error=str(error))
            return False
        self.number = event.number
        return True

    def _rate_allows(self, draft: _PendingEvent) -> bool:
        now = asyncio.get_running_loop().time()
        flood = (
            draft.type is EventType.RUN_OUTPUT
            and self._output > MAX_OUTPUT_CHARACTERS
            and len(self._pending) < MAX_PENDING_EVENTS
        )
        if flood and now - self._output_at < REDUCED_INTERVAL:
            return False
        self._tokens = min(EVENT_BURST, self._tokens + (now - self._filled_at) * EVENTS_PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _add_pending(self, kind: EventType, data: Mapping[str, Any], cursor: int, *, lines: bool) -> None:
        text = data.get("text")
        joined = isinstance(text, str) and (kind is EventType.RUN_OUTPUT or bool(data.get("join")))
        last = self._pending[-1] if self._pending else None
        if joined and isinstance(text, str):
            text = text if not lines or text.endswith("\n") else f"{text}\n"
            rest = {name: value for name, value in data.items() if name != "text"}
            if last is None or not last.can_append(kind, data):
                if last is None or len(self._pending) < MAX_PENDING_EVENTS:
                    last = _PendingEvent(kind, rest, cursor, self.nth, parts=[""])
                    self._pending.append(last)
                else:
                    last.omitted += len(text)
                    text = ""
            last.cursor, last.nth = cursor, self.nth
            if text:
                last.add(text, MAX_TEXT_CHARACTERS)
        elif last is None or len(self._pending) < MAX_PENDING_EVENTS:
            self._pending.append(_PendingEvent(kind, dict(data), cursor, self.nth))
        else:
            last.cursor, last.nth = cursor, self.nth
            last.omitted += sum(len(value) for value in data.values() if isinstance(value, str))
        self._has_pending.set()

"""Tells of what an agent does: its events in the run's stream, few enough for everybody to follow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from paddock.errors import PaddockError
from paddock.events.log import EventLog
from paddock.model.events import Event, EventType
from paddock.model.runs import Run

AT_ONCE, RATE = 50.0, 5.0
"""Events that may come at once, and then so many a second."""
MOST_WAITING = 200
"""Events that wait to be told before some are left out."""
MOST_TEXT = 16 * 2**10
"""Characters of one event's text; what is longer loses its middle."""
MOST_OUTPUT = 4 * 2**20
"""Characters of output that nobody understands, in all of a run's events; then a little of it every few seconds. The
logs have more."""
LITTLE, SELDOM = 1024, 5.0
EVERY = 0.2
PAGE = 256
log = structlog.get_logger()


class AgentEvent(Protocol):
    """One thing that an agent said or did, as its preset's reader understood it."""

    @property
    def type(self) -> EventType: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


class OutputReader(Protocol):
    """Makes events of what an agent writes, the same ones however the output is cut into pieces."""

    @property
    def turns(self) -> int: ...
    @property
    def error(self) -> str | None: ...

    def feed(self, stream: str, data: bytes) -> Sequence[AgentEvent]: ...

    def close(self) -> Sequence[AgentEvent] | None:
        """No more comes; what an unfinished line held."""
        ...


@dataclass
class _Draft:
    """An event that waits to be told."""

    type: EventType
    data: dict[str, Any]
    cursor: int
    nth: int
    parts: list[str] = field(default_factory=list)
    """Of its text, where more may be added to it."""
    size: int = 0
    left_out: int = 0

    def goes_on_with(self, kind: EventType, data: Mapping[str, Any]) -> bool:
        others = {name: value for name, value in data.items() if name != "text"}
        return bool(self.parts) and kind is self.type and others == self.data

    def add(self, text: str, most: int) -> None:
        self.parts.append(text)
        self.size += len(text)
        if self.size > 2 * most:
            self.cut(most)

    def cut(self, most: int) -> None:
        """Leave out the middle."""
        text = "".join(self.parts)
        if len(text) > most:
            self.left_out += len(text) - most
            text = f"{text[: most // 2]}{text[-(most - most // 2) :]}"
        self.parts, self.size = [text], len(text)

    def document(self, most: int) -> dict[str, Any]:
        data = dict(self.data)
        for name, value in data.items():
            if isinstance(value, str) and len(value) > MOST_TEXT:
                self.left_out += len(value) - MOST_TEXT
                data[name] = f"{value[: MOST_TEXT // 2]}\n…\n{value[-MOST_TEXT // 2 :]}"
        if self.parts:
            self.cut(most)
            data["text"] = self.parts[0]
        if self.left_out:
            data["left_out"] = self.left_out
        return {**data, "cursor": self.cursor, "nth": self.nth}


class Telling:
    """Appends one run's events.

    What a reader makes of the output is numbered. Each event has the number of the last thing that it tells of as
    `nth`, and the place in the output behind it as `cursor`, so that the next server knows what has been told.
    """

    def __init__(self, events: EventLog, run: Run) -> None:
        self._events = events
        self._stream = f"run/{run.id}"
        self._tenant = run.tenant
        self._waiting: list[_Draft] = []
        self._news = asyncio.Event()
        self._tokens = AT_ONCE
        self._filled_at = self._output_at = asyncio.get_running_loop().time()
        self._output = 0
        self._appending = asyncio.Lock()
        self.nth = 0
        """Number of the last thing that the reader has told of."""
        self.told = 0
        """Number of the last that is in the log."""
        self.told_to = 0
        self._told_before = 0
        """Where in the output an earlier server had got to."""
        """The place in the output that has been told of."""
        self.number = 0
        """Number of the last event of the stream that was seen."""
        self.usage: dict[str, Any] = {}
        """The figures told last."""
        self.said = False
        """Whether the agent has said or done anything that its reader understood."""

    async def find(self, after: int, told: int, told_to: int) -> None:
        """Find out what an earlier server has told since it noted this."""
        self.number, self.told, self.told_to = after, told, told_to
        page: Sequence[Event] | None = None
        while page is None or len(page) == PAGE:
            page = await self._events.read(self._stream, self.number, PAGE, tenant=self._tenant)
            for event in page:
                self.number = event.number
                if event.type is EventType.RUN_STARTED:  # Another attempt; what was told is of the one before.
                    self.told, self.told_to, self.usage = 0, 0, {}
                elif event.type is EventType.RUN_USAGE:
                    self.usage = dict(event.data)
                elif isinstance(nth := event.data.get("nth"), int):
                    self.told = max(self.told, nth)
                    self.told_to = max(self.told_to, event.data["cursor"])
        self._told_before = self.told_to

    def add(self, events: Iterable[AgentEvent], cursor: int) -> None:
        """Take what the reader made of the output up to a cursor."""
        for event in events:
            self.nth += 1
            self.said = self.said or event.type not in (EventType.RUN_OUTPUT, EventType.RUN_ERROR)
            if self.nth > self.told:
                self._take(event.type, event.data, cursor, lines=event.type is EventType.RUN_OUTPUT)

    def add_output(self, stream: str, data: bytes, cursor: int) -> None:
        """Take output that has no reader, up to a cursor."""
        data = data[max(0, self._told_before - (cursor - len(data))) :]
        if data:
            text = data.decode(errors="replace")
            self._take(EventType.RUN_OUTPUT, {"stream": stream, "text": text}, cursor, lines=False)

    def add_note(self, stream: str, text: str, cursor: int) -> None:
        """Say something of our own about the output at a cursor."""
        self._take(EventType.RUN_OUTPUT, {"stream": stream, "text": text}, cursor, lines=False)

    async def run(self) -> None:
        """Tell of what is added, as quickly as is good for those who follow."""
        while True:
            await self._news.wait()
            # The little while in which more of the same may come.
            await asyncio.sleep(EVERY)
            self._news.clear()
            await self.flush(wait=False)
            if self._waiting:
                self._news.set()

    async def flush(self, *, wait: bool = True) -> bool:
        """Tell of all that waits, or of as much as is allowed by now; whether that was possible."""
        async with self._appending:
            while self._waiting and (wait or self._allowed(self._waiting[0])):
                draft = self._waiting.pop(0)
                is_output = draft.type is EventType.RUN_OUTPUT
                most = LITTLE if is_output and self._output > MOST_OUTPUT else MOST_TEXT
                if not await self._append(draft.type, draft.document(most)):
                    self._waiting.insert(0, draft)
                    return False
                self.told, self.told_to = draft.nth, draft.cursor
                if is_output:
                    self._output += draft.size
                    self._output_at = asyncio.get_running_loop().time()
        return True

    def settled(self, nth: int, cursor: int) -> bool:
        """Whether all that came before has been told."""
        busy = bool(self._waiting) or self._appending.locked()
        return not busy or (self.told >= nth and self.told_to >= cursor)

    async def tell_usage(self, figures: dict[str, Any]) -> None:
        """Tell of figures, unless they are those told last."""
        async with self._appending:
            if figures != self.usage and await self._append(EventType.RUN_USAGE, figures):
                self.usage = figures

    async def _append(self, kind: EventType, data: Mapping[str, Any]) -> bool:
        appending = asyncio.ensure_future(self._events.append(self._stream, kind, data, tenant=self._tenant))
        try:
            event: Event = await asyncio.shield(appending)
        except asyncio.CancelledError:
            # It is being written whether we wait or not, and whoever goes on must find it.
            await asyncio.wait([appending])
            raise
        except PaddockError as error:
            log.warning("an event of a run could not be told yet", stream=self._stream, error=str(error))
            return False
        self.number = event.number
        return True

    def _allowed(self, draft: _Draft) -> bool:
        now = asyncio.get_running_loop().time()
        flood = draft.type is EventType.RUN_OUTPUT and self._output > MOST_OUTPUT and len(self._waiting) < MOST_WAITING
        if flood and now - self._output_at < SELDOM:
            return False
        self._tokens = min(AT_ONCE, self._tokens + (now - self._filled_at) * RATE)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _take(self, kind: EventType, data: Mapping[str, Any], cursor: int, *, lines: bool) -> None:
        text = data.get("text")
        joined = isinstance(text, str) and (kind is EventType.RUN_OUTPUT or bool(data.get("join")))
        last = self._waiting[-1] if self._waiting else None
        if joined and isinstance(text, str):
            text = text if not lines or text.endswith("\n") else f"{text}\n"
            rest = {name: value for name, value in data.items() if name != "text"}
            if last is None or not last.goes_on_with(kind, data):
                if last is None or len(self._waiting) < MOST_WAITING:
                    last = _Draft(kind, rest, cursor, self.nth, parts=[""])
                    self._waiting.append(last)
                else:
                    last.left_out += len(text)
                    text = ""
            last.cursor, last.nth = cursor, self.nth
            if text:
                last.add(text, MOST_TEXT)
        elif last is None or len(self._waiting) < MOST_WAITING:
            self._waiting.append(_Draft(kind, dict(data), cursor, self.nth))
        else:
            last.cursor, last.nth = cursor, self.nth
            last.left_out += sum(len(value) for value in data.values() if isinstance(value, str))
        self._news.set()

"""Tells what happens in a session piece by piece, gathered and in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from paddock.events.log import EventLog
from paddock.model.session_events import CallDelta, CallOutput, MessageDelta, SessionEvent, ThoughtDelta
from paddock.model.sessions import Session
from paddock.store.database import Work
from paddock.store.session_stream import happening

EVERY = 0.05
"""Seconds for which pieces are gathered before they are told."""
LARGEST = 2048
"""Characters that are told at once."""
_IN_FLIGHT = 4
_MOST_WAITING = 64 * 1024
T = TypeVar("T")
Pieces: TypeAlias = type[MessageDelta | ThoughtDelta | CallDelta | CallOutput]


class Telling:
    """Writes events of a session in their order, without making whoever tells them wait for the disk."""

    def __init__(self, events: EventLog, session: Session) -> None:
        self._events = events
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._waiting: list[SessionEvent] = []
        self._delta: tuple[Pieces, str, list[str]] | None = None
        self._size = 0
        self._flying: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._overdue = False
        self._error: BaseException | None = None

    def tell(self, event: SessionEvent, *, now: bool = False) -> None:
        """Tell something after all that was told before; with the next pieces, unless it shall be now."""
        self._end_delta()
        self._waiting.append(event)
        self._later(now)

    def piece(self, kind: Pieces, of: str, text: str, *, now: bool) -> None:
        """More of a text. Pieces that follow each other are told as one."""
        if self._delta is None or self._delta[:2] != (kind, of):
            self._end_delta()
            self._delta = (kind, of, [])
        self._delta[2].append(text)
        self._size += len(text)
        self._later(now)

    async def room(self) -> None:
        """Wait while the disk is far behind. Raises what kept it from being written."""
        while self._size > _MOST_WAITING and self._flying:
            await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
        if self._error is not None:
            raise self._error

    async def finish(self) -> None:
        """Wait until everything is written. Raises what kept it from being so."""
        self._overdue = False
        self._write()
        while self._flying:
            await asyncio.wait(self._flying)
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Forget what was not told yet."""
        self._overdue = False
        self._take()

    def together(self, work: Work[T], tell: Callable[[T], Sequence[SessionEvent]]) -> asyncio.Task[T]:
        """Change the database and tell of it, with all that was told before and waits; which waits on if it fails."""
        before = self._take()

        def told(result: T) -> Any:
            return happening(self._session, *before, *tell(result))

        def landed(task: asyncio.Task[T]) -> None:
            if task.cancelled() or task.exception() is not None:
                self._waiting[:0] = before

        task = self._send(work, told)
        task.add_done_callback(landed)
        return task

    def _later(self, now: bool) -> None:
        if now or self._size >= LARGEST:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(EVERY, self._flush)

    def _flush(self) -> None:
        if len(self._flying) >= _IN_FLIGHT:
            self._overdue = True
        else:
            self._write()

    def _write(self) -> None:
        told = happening(self._session, *self._take())
        if told:
            self._send(lambda _: None, lambda _: told)

    def _send(self, work: Work[T], tell: Callable[[T], Any]) -> asyncio.Task[T]:
        # Tasks begin in the order they are made, and the log writes in the order it is asked.
        task = self._loop.create_task(self._events.together(work, tell))
        self._flying.add(task)
        task.add_done_callback(self._landed)
        return task

    def _landed(self, task: asyncio.Task[Any]) -> None:
        self._flying.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
        if self._overdue:
            self._overdue = False
            self._flush()

    def _take(self) -> list[SessionEvent]:
        self._end_delta()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        self._size = 0
        return waiting

    def _end_delta(self) -> None:
        if self._delta is not None:
            kind, of, pieces = self._delta
            self._delta = None
            name = "call_id" if kind in (CallDelta, CallOutput) else "message_id"
            self._waiting.append(kind(**{name: of, "text": "".join(pieces)}))

"""Batches events of a session and writes them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from paddock.events.event_log import EventLog
from paddock.model.session_events import CallDelta, CallOutput, MessageDelta, SessionEvent, ThoughtDelta
from paddock.model.sessions import Session
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.database import Work

FLUSH_INTERVAL = 0.05
"""Seconds for which text is collected before it is written."""
MAX_BATCH_CHARACTERS = 2048
"""Characters that trigger a write at once."""
_MAX_WRITE_TASKS = 4
_MAX_WAITING = 64 * 1024
T = TypeVar("T")
DeltaEvent: TypeAlias = type[MessageDelta | ThoughtDelta | CallDelta | CallOutput]


class SessionEventBatcher:
    """Writes events of a session in order, without making the caller wait for the disk."""

    def __init__(self, events: EventLog, session: Session) -> None:
        self._events = events
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._pending: list[SessionEvent] = []
        self._delta: tuple[DeltaEvent, str, list[str]] | None = None
        self._size = 0
        self._write_tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._flush_deferred = False
        self._error: BaseException | None = None

    def add_event(self, event: SessionEvent, *, at_once: bool = False) -> None:
        """Add an event after all earlier ones; written with the next batch, or immediately with `at_once`."""
        self._end_delta()
        self._pending.append(event)
        self._schedule_flush(at_once)

    def add_text(self, event_type: DeltaEvent, target_id: str, text: str, *, at_once: bool) -> None:
        """Add text; consecutive pieces of one target are merged into one event."""
        if self._delta is None or self._delta[:2] != (event_type, target_id):
            self._end_delta()
            self._delta = (event_type, target_id, [])
        self._delta[2].append(text)
        self._size += len(text)
        self._schedule_flush(at_once)

    async def wait_for_space(self) -> None:
        """Wait while too much is unwritten (back-pressure). Raises the error of a failed write."""
        while self._size > _MAX_WAITING and self._write_tasks:
            await asyncio.wait(self._write_tasks, return_when=asyncio.FIRST_COMPLETED)
        if self._error is not None:
            raise self._error

    async def flush(self) -> None:
        """Wait until everything is written. Raises the error of a failed write."""
        self._flush_deferred = False
        self._write_batch()
        while self._write_tasks:
            await asyncio.wait(self._write_tasks)
        if self._error is not None:
            raise self._error

    def discard_pending(self) -> None:
        """Discard events that are not written yet."""
        self._flush_deferred = False
        self._take_pending()

    def commit_with_events(self, work: Work[T], make_events: Callable[[T], Sequence[SessionEvent]]) -> asyncio.Task[T]:
        """Run database work and write its events together with pending ones, which stay pending on failure."""
        pending = self._take_pending()

        def all_events(result: T) -> Any:
            return session_log_entries(self._session, *pending, *make_events(result))

        def restore_on_failure(task: asyncio.Task[T]) -> None:
            if task.cancelled() or task.exception() is not None:
                self._pending[:0] = pending

        task = self._start_write(work, all_events)
        task.add_done_callback(restore_on_failure)
        return task

    def _schedule_flush(self, at_once: bool) -> None:
        if at_once or self._size >= MAX_BATCH_CHARACTERS:
            self._flush_or_defer()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_INTERVAL, self._flush_or_defer)

    def _flush_or_defer(self) -> None:
        if len(self._write_tasks) >= _MAX_WRITE_TASKS:
            self._flush_deferred = True
        else:
            self._write_batch()

    def _write_batch(self) -> None:
        all_events = session_log_entries(self._session, *self._take_pending())
        if all_events:
            self._start_write(lambda _: None, lambda _: all_events)

    def _start_write(self, work: Work[T], make_events: Callable[[T], Any]) -> asyncio.Task[T]:
        # Tasks start in creation order, and the log writes in call order.
        task = self._loop.create_task(self._events.write_with_events(work, make_events))
        self._write_tasks.add(task)
        task.add_done_callback(self._on_written)
        return task

    def _on_written(self, task: asyncio.Task[Any]) -> None:
        self._write_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
        if self._flush_deferred:
            self._flush_deferred = False
            self._flush_or_defer()

    def _take_pending(self) -> list[SessionEvent]:
        self._end_delta()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        self._size = 0
        return pending

    def _end_delta(self) -> None:
        if self._delta is not None:
            event_type, target_id, pieces = self._delta
            self._delta = None
            name = "call_id" if event_type in (CallDelta, CallOutput) else "message_id"
            self._pending.append(event_type(**{name: target_id, "text": "".join(pieces)}))

"""Goes on with turns that nobody works at, and releases the sandboxes of sessions in which nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from paddock.agents.engines.base import Continue
from paddock.agents.workers import Workers
from paddock.events.log import EventLog
from paddock.model.session_events import SessionStateChanged, TurnStarted
from paddock.model.sessions import Session, SessionState
from paddock.store.events import Happening
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

if TYPE_CHECKING:
    from paddock.agents.toolbox import Toolbox
    from paddock.agents.voice import Voice

LOOK_EVERY = 60.0
WAITING_LONGER = 24
"""How many times as long as others sessions that wait for a person keep their sandboxes."""
log = structlog.get_logger()


class Recovery:
    """What is done in sessions without anybody asking for it."""

    def __init__(
        self,
        book: SessionStore,
        events: EventLog,
        workers: Workers,
        toolbox: Toolbox,
        voice: Voice,
        lock: Callable[[str], asyncio.Lock],
        idle_time: float,
    ) -> None:
        self._book = book
        self._events = events
        self._workers = workers
        self._toolbox = toolbox
        self._voice = voice
        self._lock = lock
        self._idle_time = idle_time
        self._tidying: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Go on with the turns that an earlier server left open, but for those that wait for a person."""
        for session, waits in await self._book.open_ones():
            await self._voice.recover(session)
            if session.state is not SessionState.WAITING or not waits:
                await self.restart(session)
        self._tidying = asyncio.create_task(self._tidy(), name="sessions: idle")

    async def close(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)

    def left_alone(self, session: Session) -> bool:
        """Whether a turn is open that nobody works at, because its end could not be written down."""
        at_work = session.state in (SessionState.RUNNING, SessionState.PARKED)
        return at_work and not self._workers.busy(session.id)

    async def restart(self, session: Session) -> None:
        """Have the open turn of a session gone on with."""
        started = TurnStarted(turn=session.turn, cause="restart")
        now = datetime.now(UTC)

        def tell(result: tuple[Session, bool] | None) -> Sequence[Happening]:
            moved = [SessionStateChanged(state=result[0].state)] if result and result[1] else []
            return [] if result is None else happening(session, *moved, started)

        opened = await self._events.together(
            lambda connection: SessionStore.open_turn(connection, session.id, now), tell
        )
        if opened is not None:
            self._workers.start(session.id, Continue(cause="restart"))

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(min(LOOK_EVERY, max(0.05, self._idle_time / 4)))
            try:
                now, idle = datetime.now(UTC), timedelta(seconds=self._idle_time)
                for session in await self._book.resting(now - idle, waiting_before=now - WAITING_LONGER * idle):
                    await self._release(session)
            except Exception as error:  # Whatever it is, others are to be released later.
                log.error("idle sessions could not be looked at and will be again", error=repr(error))

    async def _release(self, session: Session) -> None:
        async with self._lock(session.id):
            current = await self._book.get(session.id)
            if current.changed_at == session.changed_at and not await self._toolbox.attended(current):
                log.info("the sandboxes of an idle session are released", session=session.id)
                await self._toolbox.release(current, "idle")

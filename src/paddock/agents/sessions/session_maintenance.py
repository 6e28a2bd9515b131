"""Resumes interrupted turns, and releases the sandboxes of idle sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from paddock.agents.engines.base import ContinueTurn
from paddock.agents.turns.turn_runner import TurnRunner
from paddock.events.event_log import EventLog
from paddock.model.session_events import SessionStateChanged, TurnStarted
from paddock.model.sessions import Session, SessionState
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.event_store import NewEvent

if TYPE_CHECKING:
    from paddock.agents.model.model_requests import SessionModelClient
    from paddock.agents.tools.toolbox import SessionToolbox

CHECK_INTERVAL = 60.0
WAITING_IDLE_FACTOR = 24
"""Sessions that wait for a person keep their sandboxes this many times longer."""
log = structlog.get_logger()


class SessionMaintenance:
    """Background maintenance of sessions."""

    def __init__(
        self,
        session_store: SessionStore,
        events: EventLog,
        turn_runner: TurnRunner,
        toolbox: SessionToolbox,
        session_model: SessionModelClient,
        lock: Callable[[str], asyncio.Lock],
        idle_time: float,
    ) -> None:
        self._session_store = session_store
        self._events = events
        self._turn_runner = turn_runner
        self._toolbox = toolbox
        self._session_model = session_model
        self._lock = lock
        self._idle_time = idle_time
        self._idle_task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Resume turns that an earlier server left open, except turns that wait for a person."""
        for session, has_pending_approvals in await self._session_store.list_open_sessions():
            await self._session_model.end_interrupted_messages(session)
            if session.state is not SessionState.WAITING or not has_pending_approvals:
                await self.restart_turn(session)
        self._idle_task = asyncio.create_task(self._release_idle_sessions(), name="sessions: idle")

    async def close(self) -> None:
        if self._idle_task is not None:
            self._idle_task.cancel()
            await asyncio.gather(self._idle_task, return_exceptions=True)

    def is_stalled(self, session: Session) -> bool:
        """Return whether a turn is open but not running, because its end could not be stored."""
        is_active = session.state in (SessionState.RUNNING, SessionState.PARKED)
        return is_active and not self._turn_runner.is_running(session.id)

    async def restart_turn(self, session: Session) -> None:
        """Resume the open turn of a session."""
        started = TurnStarted(turn=session.turn, cause="restart")
        now = datetime.now(UTC)

        def turn_events(result: tuple[Session, bool] | None) -> Sequence[NewEvent]:
            state_changes = [SessionStateChanged(state=result[0].state)] if result and result[1] else []
            return [] if result is None else session_log_entries(session, *state_changes, started)

        opened = await self._events.write_with_events(
            lambda connection: SessionStore.open_turn(connection, session.id, now), turn_events
        )
        if opened is not None:
            self._turn_runner.start_turn(session.id, ContinueTurn(cause="restart"))

    async def _release_idle_sessions(self) -> None:
        while True:
            await asyncio.sleep(min(CHECK_INTERVAL, max(0.05, self._idle_time / 4)))
            try:
                now, idle = datetime.now(UTC), timedelta(seconds=self._idle_time)
                for session in await self._session_store.list_idle_sessions(
                    now - idle, waiting_before=now - WAITING_IDLE_FACTOR * idle
                ):
                    await self._release_sandboxes(session)
            except Exception as error:  # An error must not end the loop.
                log.error("could not check idle sessions; will retry", error=repr(error))

    async def _release_sandboxes(self, session: Session) -> None:
        async with self._lock(session.id):
            current = await self._session_store.get(session.id)
            if current.changed_at == session.changed_at and not await self._toolbox.is_attended(current):
                log.info("releasing sandboxes of idle session", session=session.id)
                await self._toolbox.release_sandboxes(current, "idle")

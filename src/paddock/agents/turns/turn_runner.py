"""Runs the turns of sessions: one task per session, with a limit on concurrent turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from paddock.agents.engines.base import (
    ApprovalsDecided,
    ContinueTurn,
    Engine,
    Turn,
    TurnDone,
    TurnInput,
    TurnPaused,
    UserMessage,
)
from paddock.agents.turns.read_tracking import ReadTrackingTurn
from paddock.agents.turns.turn_slot import TurnSlot
from paddock.errors import PaddockError, SessionNotFound, Unavailable
from paddock.events.event_log import EventLog
from paddock.model.session_events import SessionEvent, SessionStateChanged, TurnEnded, TurnError, TurnStarted
from paddock.model.sessions import Session, SessionMessage, SessionState
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore

if TYPE_CHECKING:
    from paddock.agents.approvals.tool_call_service import ToolCallService
    from paddock.agents.engines.registry import EngineRegistry

STOP_TIMEOUT = 30.0
"""Seconds that an engine has to stop after cancellation."""
INTERNAL_ERROR = "INTERNAL_ERROR"
log = structlog.get_logger()


@dataclass
class _RunningTurn:
    """The running turn of one session."""

    slot: TurnSlot
    task: asyncio.Task[None] | None = None
    has_new_decision: bool = False
    """Whether an approval was decided since the last check."""


@dataclass
class _SeenApprovals:
    """Ids of decided approvals that the engine has received in a turn."""

    turn: int
    approvals: set[str] = field(default_factory=set)


class TurnRunner:
    """Runs engines on open turns, and ends the turns when the engines are done."""

    def __init__(
        self,
        session_store: SessionStore,
        events: EventLog,
        engines: EngineRegistry,
        calls: ToolCallService,
        make_turn: Callable[[Session, int, SessionMessage | None], Turn],
        max_running: int,
    ) -> None:
        self._session_store = session_store
        self._events = events
        self._engines = engines
        self._tool_calls = calls
        self._make_turn = make_turn
        self._slots = asyncio.Semaphore(max_running)
        self._load_lock = asyncio.Lock()
        self._loaded_engines: dict[str, Engine] = {}
        self._preload_tasks: set[asyncio.Task[None]] = set()
        self._running_turns: dict[str, _RunningTurn] = {}
        self._seen_approvals: dict[str, _SeenApprovals] = {}
        self._blocked_sessions: set[str] = set()
        self._closed = False

    def is_running(self, session_id: str) -> bool:
        """Return whether a turn of the session is running."""
        return session_id in self._running_turns

    def start_turn(self, session_id: str, turn_input: TurnInput | None, session: Session | None = None) -> None:
        """Run the open turn of a session; without input, continue with decided approvals.

        A caller that has just changed the session may pass it, which saves reading it.
        """
        if self._closed or session_id in self._blocked_sessions:
            return
        previous = self._running_turns.get(session_id)
        running = self._running_turns[session_id] = _RunningTurn(TurnSlot(self._slots))
        work = self._run_task(session_id, turn_input, running, previous, session)
        running.task = asyncio.create_task(work, name=f"session {session_id}")

    def notify_decision(self, session_id: str) -> None:
        """Continue the session's turn after an approval was decided."""
        running = self._running_turns.get(session_id)
        if running is None:
            self.start_turn(session_id, None)
        else:
            running.has_new_decision = True

    def yield_slot(self, session_id: str) -> AbstractAsyncContextManager[None]:
        """Release the session's concurrency slot while its turn waits for a person."""
        running = self._running_turns.get(session_id)
        return nullcontext() if running is None else running.slot.yield_slot()

    @asynccontextmanager
    async def stop_turn(self, session_id: str) -> AsyncIterator[None]:
        """Cancel the session's turn, and start none until the block is left."""
        self._blocked_sessions.add(session_id)
        try:
            running = self._running_turns.get(session_id)
            if running is not None and running.task is not None:
                running.task.cancel()
                _, still_running = await asyncio.wait({running.task}, timeout=STOP_TIMEOUT)
                if still_running:
                    log.error("engine does not stop", session=session_id)
            yield
        finally:
            self._blocked_sessions.discard(session_id)

    def preload_engine(self, name: str) -> None:
        """Load an engine in the background; errors are raised when it is used."""
        if name not in self._loaded_engines and not self._closed:
            task = asyncio.create_task(self._preload(name), name=f"engine {name}")
            self._preload_tasks.add(task)
            task.add_done_callback(self._preload_tasks.discard)

    async def _preload(self, name: str) -> None:
        try:
            await self.get_engine(name)
        except PaddockError as error:
            log.info("could not load engine", engine=name, reason=error.message)

    async def close(self) -> None:
        """Cancel all tasks. Open turns stay open, and are resumed after the next start."""
        self._closed = True
        tasks = [
            *self._preload_tasks,
            *(running.task for running in self._running_turns.values() if running.task is not None),
        ]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_TIMEOUT)

    def forget_approvals(self, session_id: str) -> None:
        """Forget which approvals the engine received; the turn is over."""
        self._seen_approvals.pop(session_id, None)

    async def fail_turn(self, session: Session, code: str, message: str) -> None:
        """End the open turn of a session because of an error."""
        reason = f"the turn failed: {message}"
        await self._tool_calls.withdraw_approvals(session.id, reason)
        await self._tool_calls.abandon_calls(session.id, session.turn, reason)
        await self._close_turn(
            session,
            [TurnError(code=code, message=message, fatal=True)],
            TurnEnded(turn=session.turn, state="failed", reason=message),
            error=message,
        )

    async def end_turn(self, session: Session, ended: TurnEnded) -> Session:
        """End the open turn of a session, if it is still open."""
        return await self._close_turn(session, (), ended, error=None)

    async def _close_turn(
        self, session: Session, previous: Sequence[SessionEvent], ended: TurnEnded, *, error: str | None
    ) -> Session:
        now = datetime.now(UTC)
        changes = {"state": SessionState.IDLE, "error": error}
        events = session_log_entries(session, *previous, ended, SessionStateChanged(state=SessionState.IDLE))
        session_after, _ = await self._events.write_with_events(
            lambda connection: SessionStore.close_turn(connection, session.id, session.turn, changes, now),
            lambda result: events if result[1] else [],
        )
        self.forget_approvals(session.id)
        return session_after

    async def _run_task(
        self,
        session_id: str,
        turn_input: TurnInput | None,
        running: _RunningTurn,
        previous: _RunningTurn | None,
        session: Session | None,
    ) -> None:
        try:
            if previous is not None and previous.task is not None:
                await asyncio.wait({previous.task}, timeout=STOP_TIMEOUT)
                session = None
            if self._slots.locked():
                session = None
            async with running.slot:
                session = session or await self._session_store.get(session_id)
                if session.state is not SessionState.IDLE:
                    await self._run_or_fail(session, turn_input, running)
        except SessionNotFound:
            log.info("session was deleted during its turn", session=session_id)
        except PaddockError as error:
            log.error("could not end turn; will resume", session=session_id, error=error.message)
        except Exception:
            log.exception("could not end turn; will resume", session=session_id)
        finally:
            if self._running_turns.get(session_id) is running:
                del self._running_turns[session_id]

    async def _run_or_fail(self, session: Session, turn_input: TurnInput | None, running: _RunningTurn) -> None:
        try:
            await self._run_engine(session, turn_input, running)
        except SessionNotFound:
            raise
        except PaddockError as error:
            log.info("turn failed", session=session.id, turn=session.turn, code=error.code, reason=error.message)
            await self.fail_turn(session, error.code, error.message)
        except Exception:
            log.exception("turn failed", session=session.id, turn=session.turn)
            await self.fail_turn(session, INTERNAL_ERROR, "internal server error; see the server log")

    async def _run_engine(self, session: Session, turn_input: TurnInput | None, running: _RunningTurn) -> None:
        is_current = turn_input is not None and session.engine in self._loaded_engines
        engine = await self.get_engine(session.engine)
        number = session.turn
        read_ids: set[str] = set()
        last_unread: Sequence[str] = ()
        restarted_without_decision = False
        if turn_input is None:
            turn_input = await self._new_decisions(session, running, begins=True)
        while turn_input is not None:
            # Changes of the session, such as its policy, take effect here.
            session = session if is_current else await self._session_store.get(session.id)
            is_current = False
            first = turn_input.message if isinstance(turn_input, UserMessage) else None
            turn = ReadTrackingTurn(self._make_turn(session, number, first), turn_input)
            turn.read_ids |= read_ids
            outcome = await engine.run(turn, turn_input)
            read_ids = turn.read_ids
            start_cause = turn_input.cause if isinstance(turn_input, ContinueTurn) else "continue"
            if isinstance(outcome, TurnPaused):
                turn_input, has_pending = await self._wait_for_decisions(session, running)
                if turn_input is None and not has_pending:
                    if restarted_without_decision:
                        raise Unavailable("the agent waits for a decision, but no approval is pending")
                    restarted_without_decision, turn_input = True, ContinueTurn(cause="restart")
            else:
                unread = await self._finish_turn(session, outcome, read_ids, ignored_ids=last_unread)
                turn_input = ContinueTurn(cause=start_cause) if unread else None
                last_unread = unread

    async def _wait_for_decisions(self, session: Session, running: _RunningTurn) -> tuple[TurnInput | None, bool]:
        """Return the input to continue with, or whether an approval is still pending.

        Nothing is awaited after the last check of `has_new_decision`: a later decision finds no running turn and
        starts one.
        """
        waiting_events = session_log_entries(session, TurnEnded(turn=session.turn, state="waiting"))
        waiting_emitted = False
        while True:
            decisions = await self._new_decisions(session, running, begins=waiting_emitted)
            if decisions is not None:
                return decisions, False
            if not await self._has_pending_approvals(session.id):
                # A decision between the two checks is found here.
                return await self._new_decisions(session, running, begins=waiting_emitted), False
            if waiting_emitted and not running.has_new_decision:
                return None, True
            if not waiting_emitted:
                await self._events.write_with_events(
                    lambda connection: SessionStore.load_session(connection, session.id),
                    lambda current: waiting_events if current.state is not SessionState.IDLE else [],
                )
                waiting_emitted = True

    async def _has_pending_approvals(self, session_id: str) -> bool:
        return bool(await self._tool_calls.list_pending_approvals(session_id))

    async def _new_decisions(self, session: Session, running: _RunningTurn, *, begins: bool) -> ApprovalsDecided | None:
        """Return decided approvals that the engine has not received; `begins` marks the turn as resumed."""
        running.has_new_decision = False
        seen = self._seen_approvals.get(session.id)
        if seen is None or seen.turn != session.turn:
            seen = self._seen_approvals[session.id] = _SeenApprovals(session.turn)
        decisions = [
            each
            for each in await self._session_store.list_decided_approvals(session.id, session.turn)
            if each.id not in seen.approvals
        ]
        if not decisions:
            return None
        seen.approvals.update(each.id for each in decisions)
        if begins:
            now = datetime.now(UTC)
            started = TurnStarted(turn=session.turn, cause="decisions")
            opened = await self._events.write_with_events(
                lambda connection: SessionStore.open_turn(connection, session.id, now),
                lambda result: (
                    [] if result is None else session_log_entries(session, *_state_change_events(result), started)
                ),
            )
            if opened is None:
                return None
        return ApprovalsDecided(approvals=tuple(decisions))

    async def _finish_turn(
        self, session: Session, outcome: TurnDone, read_ids: set[str], ignored_ids: Sequence[str]
    ) -> Sequence[str]:
        """End the turn, unless there are unread messages; return their ids."""
        if await self._has_pending_approvals(session.id):
            await self._tool_calls.withdraw_approvals(session.id, "the agent ended its turn")
        now = datetime.now(UTC)
        ended = TurnEnded(turn=session.turn, state="done", reason=outcome.reason)
        events = session_log_entries(session, ended, SessionStateChanged(state=SessionState.IDLE))
        changes = {"state": SessionState.IDLE, "error": None}

        # A later message starts a new turn; an earlier one is among the unread ones.
        session_after, closed, unread = await self._events.write_with_events(
            lambda connection: SessionStore.finish_turn(
                connection, session.id, session.turn, changes, now, read_ids=read_ids, ignored_ids=ignored_ids
            ),
            lambda result: events if result[1] else [],
        )
        if closed and unread:
            log.error(
                "engine did not read all messages",
                session=session_after.id,
                engine=session_after.engine,
                left=len(unread),
            )
        if not unread or closed:
            self.forget_approvals(session.id)
            return ()
        return unread

    async def get_engine(self, name: str) -> Engine:
        """Raises `ConfigError` for an engine that cannot be loaded."""
        if name not in self._loaded_engines:
            async with self._load_lock:
                if name not in self._loaded_engines:
                    # Loading the packages of an engine takes seconds.
                    self._loaded_engines[name] = await asyncio.to_thread(self._engines.get, name)
        return self._loaded_engines[name]


def _state_change_events(result: tuple[Session, bool]) -> list[SessionEvent]:
    session, changed = result
    return [SessionStateChanged(state=session.state)] if changed else []

"""Runs the turns of sessions: one task for each session, and not more at a time than may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from paddock.agents.engines.base import Continue, Decisions, Done, Engine, Given, Paused, Turn, UserMessage
from paddock.agents.hearing import HeardTurn
from paddock.agents.slots import Slot
from paddock.errors import PaddockError, SessionNotFound, Unavailable
from paddock.events.log import EventLog
from paddock.model.session_events import SessionEvent, SessionStateChanged, TurnEnded, TurnError, TurnStarted
from paddock.model.sessions import Message, Session, SessionState
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

if TYPE_CHECKING:
    from paddock.agents.calls import Calls
    from paddock.agents.engines.registry import Engines

STOP_WITHIN = 30.0
"""Seconds that an engine has to stop."""
UNKNOWN = "INTERNAL_ERROR"
log = structlog.get_logger()


@dataclass
class _Desk:
    """Where one session is worked at."""

    slot: Slot
    task: asyncio.Task[None] | None = None
    rung: bool = False
    """Whether somebody has decided something since it was last looked."""


@dataclass
class _Given:
    """Which decisions the engine has been given in a turn."""

    turn: int
    approvals: set[str] = field(default_factory=set)


class Workers:
    """Has engines work on open turns, and ends the turns when they are done."""

    def __init__(
        self,
        book: SessionStore,
        events: EventLog,
        engines: Engines,
        calls: Calls,
        make_turn: Callable[[Session, int, Message | None], Turn],
        at_once: int,
    ) -> None:
        self._book = book
        self._events = events
        self._engines = engines
        self._calls = calls
        self._make_turn = make_turn
        self._slots = asyncio.Semaphore(at_once)
        self._loading = asyncio.Lock()
        self._loaded: dict[str, Engine] = {}
        self._preparing: set[asyncio.Task[None]] = set()
        self._desks: dict[str, _Desk] = {}
        self._given: dict[str, _Given] = {}
        self._stopped: set[str] = set()
        self._closed = False

    def busy(self, session_id: str) -> bool:
        """Whether somebody works on the session."""
        return session_id in self._desks

    def start(self, session_id: str, given: Given | None, session: Session | None = None) -> None:
        """Work on the open turn of a session; without anything given, on what was decided.

        Who has just changed the session may hand it on, so that it need not be read.
        """
        if self._closed or session_id in self._stopped:
            return
        before = self._desks.get(session_id)
        desk = self._desks[session_id] = _Desk(Slot(self._slots))
        work = self._work(session_id, given, desk, before, session)
        desk.task = asyncio.create_task(work, name=f"session {session_id}")

    def ring(self, session_id: str) -> None:
        """Something of the session was decided."""
        desk = self._desks.get(session_id)
        if desk is None:
            self.start(session_id, None)
        else:
            desk.rung = True

    def aside(self, session_id: str) -> AbstractAsyncContextManager[None]:
        """While something of a session waits for a person, its turn is none of those that run at once."""
        desk = self._desks.get(session_id)
        return nullcontext() if desk is None else desk.slot.aside()

    @asynccontextmanager
    async def stopped(self, session_id: str) -> AsyncIterator[None]:
        """End what is under way in a session; whatever is decided meanwhile, nobody works at it until this is left."""
        self._stopped.add(session_id)
        try:
            desk = self._desks.get(session_id)
            if desk is not None and desk.task is not None:
                desk.task.cancel()
                _, slow = await asyncio.wait({desk.task}, timeout=STOP_WITHIN)
                if slow:
                    log.error("an engine does not stop", session=session_id)
            yield
        finally:
            self._stopped.discard(session_id)

    def prepare(self, name: str) -> None:
        """Load an engine that will be needed soon; what is wrong with it shows when it is."""
        if name not in self._loaded and not self._closed:
            task = asyncio.create_task(self._prepare(name), name=f"engine {name}")
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    async def _prepare(self, name: str) -> None:
        try:
            await self.engine(name)
        except PaddockError as error:
            log.info("an engine could not be loaded", engine=name, reason=error.message)

    async def close(self) -> None:
        """End everything. Open turns stay open, and are gone on with after the next start."""
        self._closed = True
        tasks = [*self._preparing, *(desk.task for desk in self._desks.values() if desk.task is not None)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_WITHIN)

    def forget(self, session_id: str) -> None:
        """Its turn is over."""
        self._given.pop(session_id, None)

    async def fail(self, session: Session, code: str, message: str) -> None:
        """End the open turn of a session because of an error."""
        reason = f"the turn failed: {message}"
        await self._calls.withdraw(session.id, reason)
        await self._calls.abandon(session.id, session.turn, reason)
        await self._over(
            session,
            [TurnError(code=code, message=message, fatal=True)],
            TurnEnded(turn=session.turn, state="failed", reason=message),
            error=message,
        )

    async def end(self, session: Session, ended: TurnEnded) -> Session:
        """End the open turn of a session, if it is still open."""
        return await self._over(session, (), ended, error=None)

    async def _over(
        self, session: Session, before: Sequence[SessionEvent], ended: TurnEnded, *, error: str | None
    ) -> Session:
        now = datetime.now(UTC)
        changes = {"state": SessionState.IDLE, "error": error}
        told = happening(session, *before, ended, SessionStateChanged(state=SessionState.IDLE))
        found, _ = await self._events.together(
            lambda connection: SessionStore.close_turn(connection, session.id, session.turn, changes, now),
            lambda result: told if result[1] else [],
        )
        self.forget(session.id)
        return found

    async def _work(
        self, session_id: str, given: Given | None, desk: _Desk, before: _Desk | None, session: Session | None
    ) -> None:
        try:
            if before is not None and before.task is not None:
                await asyncio.wait({before.task}, timeout=STOP_WITHIN)
                session = None
            if self._slots.locked():
                session = None
            async with desk.slot:
                session = session or await self._book.get(session_id)
                if session.state is not SessionState.IDLE:
                    await self._see_to(session, given, desk)
        except SessionNotFound:
            log.info("a session was deleted while it was worked at", session=session_id)
        except PaddockError as error:
            log.error("a turn could not be ended; it is gone on with later", session=session_id, error=error.message)
        except Exception:
            log.exception("a turn could not be ended; it is gone on with later", session=session_id)
        finally:
            if self._desks.get(session_id) is desk:
                del self._desks[session_id]

    async def _see_to(self, session: Session, given: Given | None, desk: _Desk) -> None:
        try:
            await self._run(session, given, desk)
        except SessionNotFound:
            raise
        except PaddockError as error:
            log.info("a turn failed", session=session.id, turn=session.turn, code=error.code, reason=error.message)
            await self.fail(session, error.code, error.message)
        except Exception:
            log.exception("a turn failed", session=session.id, turn=session.turn)
            await self.fail(session, UNKNOWN, "something went wrong in the server; its log says what")

    async def _run(self, session: Session, given: Given | None, desk: _Desk) -> None:
        just_read = given is not None and session.engine in self._loaded
        engine = await self.engine(session.engine)
        number = session.turn
        heard: set[str] = set()
        last_unheard: Sequence[str] = ()
        idly = False
        if given is None:
            given = await self._decisions(session, desk, begins=True)
        while given is not None:
            # What people may change meanwhile, such as the policy, counts from here on.
            session = session if just_read else await self._book.get(session.id)
            just_read = False
            first = given.message if isinstance(given, UserMessage) else None
            turn = HeardTurn(self._make_turn(session, number, first), given)
            turn.heard |= heard
            outcome = await engine.run(turn, given)
            heard = turn.heard
            cause = given.cause if isinstance(given, Continue) else "continue"
            if isinstance(outcome, Paused):
                given, waits = await self._paused(session, desk)
                if given is None and not waits:
                    if idly:
                        raise Unavailable("the agent waits for a decision, but nothing is there to be decided")
                    idly, given = True, Continue(cause="restart")
            else:
                unheard = await self._done(session, outcome, heard, again=last_unheard)
                given = Continue(cause=cause) if unheard else None
                last_unheard = unheard

    async def _paused(self, session: Session, desk: _Desk) -> tuple[Given | None, bool]:
        """What to go on with, or else whether something waits for a person, which the turn is told to do.

        Nothing is awaited after the last look at `rung`: whoever decides later finds nobody at work, and starts.
        """
        waiting = happening(session, TurnEnded(turn=session.turn, state="waiting"))
        told = False
        while True:
            fresh = await self._decisions(session, desk, begins=told)
            if fresh is not None:
                return fresh, False
            if not await self._waits(session.id):
                # What was decided between the two looks is found now.
                return await self._decisions(session, desk, begins=told), False
            if told and not desk.rung:
                return None, True
            if not told:
                await self._events.together(
                    lambda connection: SessionStore.current(connection, session.id),
                    lambda current: waiting if current.state is not SessionState.IDLE else [],
                )
                told = True

    async def _waits(self, session_id: str) -> bool:
        return bool(await self._calls.pending(session_id))

    async def _decisions(self, session: Session, desk: _Desk, *, begins: bool) -> Decisions | None:
        """What was decided in the turn and the engine has not been given; `begins` says that the turn had paused."""
        desk.rung = False
        known = self._given.get(session.id)
        if known is None or known.turn != session.turn:
            known = self._given[session.id] = _Given(session.turn)
        fresh = [each for each in await self._book.decided(session.id, session.turn) if each.id not in known.approvals]
        if not fresh:
            return None
        known.approvals.update(each.id for each in fresh)
        if begins:
            now = datetime.now(UTC)
            started = TurnStarted(turn=session.turn, cause="decisions")
            opened = await self._events.together(
                lambda connection: SessionStore.open_turn(connection, session.id, now),
                lambda result: [] if result is None else happening(session, *_moved(result), started),
            )
            if opened is None:
                return None
        return Decisions(approvals=tuple(fresh))

    async def _done(self, session: Session, outcome: Done, heard: set[str], again: Sequence[str]) -> Sequence[str]:
        """End the turn, unless people have written what nobody has read: then the ids of that."""
        if await self._waits(session.id):
            await self._calls.withdraw(session.id, "the agent has ended its turn")
        now = datetime.now(UTC)
        ended = TurnEnded(turn=session.turn, state="done", reason=outcome.reason)
        told = happening(session, ended, SessionStateChanged(state=SessionState.IDLE))
        changes = {"state": SessionState.IDLE, "error": None}

        # Who writes after this has begun a new turn; who wrote before is among the unheard.
        found, is_over, unheard = await self._events.together(
            lambda connection: SessionStore.finish_turn(
                connection, session.id, session.turn, changes, now, heard=heard, given_up=again
            ),
            lambda result: told if result[1] else [],
        )
        if is_over and unheard:
            log.error("an engine did not read all messages", session=found.id, engine=found.engine, left=len(unheard))
        if not unheard or is_over:
            self.forget(session.id)
            return ()
        return unheard

    async def engine(self, name: str) -> Engine:
        """Raises `ConfigError` for one whose packages are missing."""
        if name not in self._loaded:
            async with self._loading:
                if name not in self._loaded:
                    # Whoever is first loads its packages, which takes seconds.
                    self._loaded[name] = await asyncio.to_thread(self._engines.get, name)
        return self._loaded[name]


def _moved(result: tuple[Session, bool]) -> list[SessionEvent]:
    session, moved = result
    return [SessionStateChanged(state=session.state)] if moved else []

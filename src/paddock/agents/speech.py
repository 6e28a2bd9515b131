"""Tells what an agent says, piece by piece, and keeps it at the end."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self

import structlog

from paddock.agents.journal import Journal, Question, Spent, usage_told
from paddock.agents.telling import Telling
from paddock.errors import PaddockError
from paddock.model.session_events import (
    CallDelta,
    CallStarted,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    SessionEvent,
    StepEnded,
    StepStarted,
    ThoughtDelta,
    ThoughtEnded,
    ThoughtStarted,
)
from paddock.model.sessions import Call, Message, Session, SessionUsage, TextContent

log = structlog.get_logger()


class Saying:
    """One message of the agent, from its first piece until it is kept."""

    def __init__(self, journal: Journal, session: Session, turn: int, step: int, by: str | None = None) -> None:
        self.message_id = f"msg_{secrets.token_hex(12)}"
        self.started = False
        self._journal = journal
        self._session = session
        self._turn = turn
        self._step = step
        self._by = by
        self._telling = Telling(journal.events, session)
        self._said: list[str] = []
        self._thought: list[str] = []
        self._thinking = False
        self._ending: asyncio.Task[tuple[Message | None, SessionUsage]] | None = None

    @property
    def size(self) -> int:
        """Characters that were said and thought."""
        return sum(map(len, self._said)) + sum(map(len, self._thought))

    def begin(self) -> None:
        """The model is asked."""
        self._telling.tell(StepStarted(turn=self._turn, step=self._step, by=self._by))

    def text(self, piece: str) -> None:
        self._start()
        self._stop_thinking()
        self._said.append(piece)
        self._telling.piece(MessageDelta, self.message_id, piece, now=len(self._said) == 1)

    def thought(self, piece: str) -> None:
        self._start()
        if not self._thinking:
            self._thinking = True
            self._telling.tell(ThoughtStarted(message_id=self.message_id))
        self._thought.append(piece)
        self._telling.piece(ThoughtDelta, self.message_id, piece, now=len(self._thought) == 1)

    def call(self, call_id: str, name: str) -> None:
        """The agent begins to write a call."""
        first = not self.started
        self._start()
        self._stop_thinking()
        self._telling.tell(CallStarted(message_id=self.message_id, call_id=call_id, name=name), now=first)

    def arguments(self, call_id: str, piece: str) -> None:
        self._telling.piece(CallDelta, call_id, piece, now=False)

    async def room(self) -> None:
        await self._telling.room()

    async def finish(
        self, calls: Sequence[Call], spent: Spent, question: Question | None = None, finish: str = "stop"
    ) -> Message:
        """Keep the message, what it took, and that it answers the question, all at once."""
        self._start()
        self._stop_thinking()
        message = self._message(calls, None)
        record = None
        if question is not None:
            record = self._journal.recording(self._session, question, message, finish, spent)
        kept = await self._end(message, spent, record, calls)
        assert kept is not None
        return kept

    async def cut(self, why: str, spent: Spent) -> None:
        """Keep what was said so far, if anything was, and say that it ends there. Does nothing once it has ended."""
        if self._ending is not None:
            # What could not be kept as an answer has not ended.
            with suppress(Exception):
                await asyncio.shield(self._ending)
                return
        message = self._message((), why) if self._said or self._thought else None
        self._stop_thinking()
        try:
            await self._end(message, spent, None, (), why)
        except PaddockError as error:
            # Whoever cuts it has a reason to tell already; and the session may be gone.
            log.warning("what an agent said could not be kept", session=self._session.id, error=str(error))

    async def _end(
        self,
        message: Message | None,
        spent: Spent,
        record: Callable[[Any], None] | None,
        calls: Sequence[Call],
        cut: str | None = None,
    ) -> Message | None:
        ended: list[SessionEvent] = []
        if self.started:
            text = "".join(self._said)
            ended.append(MessageEnded(message_id=self.message_id, text=text, calls=tuple(calls), cut=cut))
        step = StepEnded(turn=self._turn, step=self._step, calls=len(calls))

        def told(result: tuple[Message | None, SessionUsage]) -> Sequence[SessionEvent]:
            changed = [usage_told(result[1])] if spent != NOTHING else []
            return [*ended, *changed, step]

        work = self._journal.keeping(self._session, message, spent, record)
        ending = self._ending = self._telling.together(work, told)
        # Whether it is kept must not depend on whether somebody is cancelled just now.
        return (await asyncio.shield(ending))[0]

    def _message(self, calls: Sequence[Call], cut: str | None) -> Message:
        text = "".join(self._said)
        return Message(
            id=self.message_id,
            session=self._session.id,
            turn=self._turn,
            role="assistant",
            content=(TextContent(text=text),) if text else (),
            thought="".join(self._thought),
            calls=tuple(calls),
            cut=cut,
            by=self._by,
            at=datetime.now(UTC),
        )

    def _start(self) -> None:
        if not self.started:
            self.started = True
            self._telling.tell(
                MessageStarted(message_id=self.message_id, turn=self._turn, step=self._step, by=self._by)
            )

    def _stop_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._telling.tell(ThoughtEnded(message_id=self.message_id))


NOTHING = Spent(requests=0)
"""What the answers of agent programs take: they ask models by themselves."""


class Spoken:
    """An answer that comes from elsewhere than the model, told in the same way: a `Speech`."""

    def __init__(self, journal: Journal, session: Session, turn: int) -> None:
        self.message_id = ""
        self._journal = journal
        self._session = session
        self._turn = turn
        self._saying: Saying | None = None
        self._finished = False

    async def __aenter__(self) -> Self:
        await self._journal.recover(self._session)
        step = await self._journal.count(self._session, self._turn)
        self._saying = Saying(self._journal, self._session, self._turn, step)
        self.message_id = self._saying.message_id
        self._saying.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._saying is None or self._finished:
            return
        error = exc[1] if len(exc) > 1 else None
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            why = "cancelled"
        elif error is not None:
            why = f"error: {str(error)[:500] or type(error).__name__}"
        else:
            why = "unfinished"
        await self._journal.bounded(self._saying.cut(why, NOTHING))

    async def text(self, piece: str) -> None:
        if piece:
            self._open.text(piece)
            await self._open.room()

    async def thought(self, piece: str) -> None:
        if piece:
            self._open.thought(piece)
            await self._open.room()

    async def finish(self, calls: Sequence[Call] = ()) -> Message:
        message = await self._open.finish(calls, NOTHING)
        self._finished = True
        return message

    @property
    def _open(self) -> Saying:
        if self._saying is None or self._finished:
            raise RuntimeError("a speech is used within `async with`, until it is finished")
        return self._saying

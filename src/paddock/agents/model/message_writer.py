"""Messages of agents: emitted piece by piece, stored when complete."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self

import structlog

from paddock.agents.event_batcher import SessionEventBatcher
from paddock.agents.model.reply_journal import ModelQuestionKey, ModelReplyJournal, RequestUsage, usage_changed_event
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
from paddock.model.sessions import Session, SessionMessage, SessionUsage, TextContent, ToolCall

log = structlog.get_logger()


class StreamedAgentMessage:
    """One message of an agent, from its first piece until it is stored."""

    def __init__(
        self, journal: ModelReplyJournal, session: Session, turn: int, step: int, by: str | None = None
    ) -> None:
        self.message_id = f"msg_{secrets.token_hex(12)}"
        self.started = False
        self._journal = journal
        self._session = session
        self._turn = turn
        self._step = step
        self._author = by
        self._batcher = SessionEventBatcher(journal.events, session)
        self._text_pieces: list[str] = []
        self._thought_pieces: list[str] = []
        self._thinking = False
        self._ending: asyncio.Task[tuple[SessionMessage | None, SessionUsage]] | None = None

    @property
    def size(self) -> int:
        """Characters of text and thoughts written so far."""
        return sum(map(len, self._text_pieces)) + sum(map(len, self._thought_pieces))

    def begin_step(self) -> None:
        """Emit that the model was asked."""
        self._batcher.add_event(StepStarted(turn=self._turn, step=self._step, by=self._author))

    def write_text(self, piece: str) -> None:
        self._emit_start()
        self._end_thought()
        self._text_pieces.append(piece)
        self._batcher.add_text(MessageDelta, self.message_id, piece, at_once=len(self._text_pieces) == 1)

    def write_thought(self, piece: str) -> None:
        self._emit_start()
        if not self._thinking:
            self._thinking = True
            self._batcher.add_event(ThoughtStarted(message_id=self.message_id))
        self._thought_pieces.append(piece)
        self._batcher.add_text(ThoughtDelta, self.message_id, piece, at_once=len(self._thought_pieces) == 1)

    def begin_call(self, call_id: str, name: str) -> None:
        """Emit that the agent began to write a call."""
        is_first = not self.started
        self._emit_start()
        self._end_thought()
        self._batcher.add_event(CallStarted(message_id=self.message_id, call_id=call_id, name=name), at_once=is_first)

    def write_arguments(self, call_id: str, piece: str) -> None:
        self._batcher.add_text(CallDelta, call_id, piece, at_once=False)

    async def wait_for_space(self) -> None:
        await self._batcher.wait_for_space()

    async def finish(
        self,
        calls: Sequence[ToolCall],
        spent: RequestUsage,
        question: ModelQuestionKey | None = None,
        finish: str = "stop",
    ) -> SessionMessage:
        """Store the message, its usage and the question it answers, in one transaction."""
        self._emit_start()
        self._end_thought()
        message = self._message(calls, None)
        reply_record = None
        if question is not None:
            reply_record = self._journal.reply_work(self._session, question, message, finish, spent)
        stored = await self._store_end(message, spent, reply_record, calls)
        assert stored is not None
        return stored

    async def cut_off(self, reason: str, spent: RequestUsage) -> None:
        """Store the text so far and mark the message as cut off. Does nothing once it has ended."""
        if self._ending is not None:
            # A message that could not be stored has not ended.
            with suppress(Exception):
                await asyncio.shield(self._ending)
                return
        message = self._message((), reason) if self._text_pieces or self._thought_pieces else None
        self._end_thought()
        try:
            await self._store_end(message, spent, None, (), reason)
        except PaddockError as error:
            # The caller reports its own reason, and the session may be deleted.
            log.warning("could not store partial message", session=self._session.id, error=str(error))

    async def _store_end(
        self,
        message: SessionMessage | None,
        spent: RequestUsage,
        reply_record: Callable[[Any], None] | None,
        calls: Sequence[ToolCall],
        cut: str | None = None,
    ) -> SessionMessage | None:
        ended: list[SessionEvent] = []
        if self.started:
            text = "".join(self._text_pieces)
            ended.append(MessageEnded(message_id=self.message_id, text=text, calls=tuple(calls), cut=cut))
        step = StepEnded(turn=self._turn, step=self._step, calls=len(calls))

        def closing_events(result: tuple[SessionMessage | None, SessionUsage]) -> Sequence[SessionEvent]:
            usage_events = [usage_changed_event(result[1])] if spent != NO_USAGE else []
            return [*ended, *usage_events, step]

        work = self._journal.message_work(self._session, message, spent, reply_record)
        ending = self._ending = self._batcher.commit_with_events(work, closing_events)
        # Storing must not depend on cancellation of the caller.
        return (await asyncio.shield(ending))[0]

    def _message(self, calls: Sequence[ToolCall], cut: str | None) -> SessionMessage:
        text = "".join(self._text_pieces)
        return SessionMessage(
            id=self.message_id,
            session=self._session.id,
            turn=self._turn,
            role="assistant",
            content=(TextContent(text=text),) if text else (),
            thought="".join(self._thought_pieces),
            calls=tuple(calls),
            cut=cut,
            by=self._author,
            at=datetime.now(UTC),
        )

    def _emit_start(self) -> None:
        if not self.started:
            self.started = True
            self._batcher.add_event(
                MessageStarted(message_id=self.message_id, turn=self._turn, step=self._step, by=self._author)
            )

    def _end_thought(self) -> None:
        if self._thinking:
            self._thinking = False
            self._batcher.add_event(ThoughtEnded(message_id=self.message_id))


NO_USAGE = RequestUsage(requests=0)
"""Usage of replies of agent programs, which ask models themselves and are charged there."""


class ExternalMessageWriter:
    """`MessageWriter` for replies that do not come from the session's own model requests."""

    def __init__(self, journal: ModelReplyJournal, session: Session, turn: int) -> None:
        self.message_id = ""
        self._journal = journal
        self._session = session
        self._turn = turn
        self._message: StreamedAgentMessage | None = None
        self._finished = False

    async def __aenter__(self) -> Self:
        await self._journal.end_interrupted_messages(self._session)
        step = await self._journal.count_step(self._session, self._turn)
        self._message = StreamedAgentMessage(self._journal, self._session, self._turn, step)
        self.message_id = self._message.message_id
        self._message.begin_step()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._message is None or self._finished:
            return
        error = exc[1] if len(exc) > 1 else None
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            reason = "cancelled"
        elif error is not None:
            reason = f"error: {str(error)[:500] or type(error).__name__}"
        else:
            reason = "unfinished"
        await self._journal.run_to_completion(self._message.cut_off(reason, NO_USAGE))

    async def write_text(self, piece: str) -> None:
        if piece:
            self._open.write_text(piece)
            await self._open.wait_for_space()

    async def write_thought(self, piece: str) -> None:
        if piece:
            self._open.write_thought(piece)
            await self._open.wait_for_space()

    async def finish(self, calls: Sequence[ToolCall] = ()) -> SessionMessage:
        message = await self._open.finish(calls, NO_USAGE)
        self._finished = True
        return message

    @property
    def _open(self) -> StreamedAgentMessage:
        if self._message is None or self._finished:
            raise RuntimeError("a message writer is used within `async with`, until it is finished")
        return self._message

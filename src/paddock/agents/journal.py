"""Keeps what models answer before anybody acts on it, so that nothing is asked twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from paddock.agents.engines.base import ToolSpec, TurnLimit
from paddock.events.log import EventLog
from paddock.model.session_events import (
    MessageEnded,
    SessionEvent,
    StepEnded,
    ThoughtEnded,
    UsageChanged,
)
from paddock.model.sessions import Message, Session, SessionUsage
from paddock.store.database import Store, Work
from paddock.store.replies import Recorded, ReplyStore
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

_KEPT_WITHIN = 10.0
"""Seconds for which somebody who was cancelled waits until what was said so far is kept."""
log = structlog.get_logger()


@dataclass(frozen=True)
class Spent:
    """What one question took."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    requests: int = 1


@dataclass(frozen=True)
class Question:
    """What was asked in a turn, as far as finding its answer again goes."""

    turn: int
    digest: str


@dataclass
class _Steps:
    """How far a turn has come."""

    turn: int
    taken: int
    asked: Counter[str] = field(default_factory=Counter)


class Journal:
    """The records of all sessions, as those see them who ask models."""

    def __init__(self, store: Store, events: EventLog, steps: int) -> None:
        self.events = events
        self.book = SessionStore(store)
        self.replies = ReplyStore(store)
        self._most = steps
        self._steps: dict[str, _Steps] = {}
        self._recovered: set[str] = set()
        self._recovering = asyncio.Lock()
        self._endings: set[asyncio.Task[None]] = set()

    async def recall(
        self, session: Session, question: Question, *, fresh: bool = False
    ) -> tuple[Session, Recorded | None]:
        """The session as it is now, and what was answered to the same question in this turn: nothing in a fresh one."""
        if fresh:
            self._known(session, question.turn, 0)
            return session, None
        current, recorded, taken = await self.replies.find(session.id, question.turn, question.digest)
        self._known(session, question.turn, taken)
        return current, recorded

    async def count(self, session: Session, turn: int) -> int:
        """The number of the next step of a turn; those that an earlier server has taken count too."""
        steps = await self._of(session, turn)
        steps.taken += 1
        return steps.taken

    async def limit(self, session: Session, question: Question, *, again: bool) -> None:
        """Raise `TurnLimit` once a turn has taken as many steps as it may.

        Questions that were answered before cost nothing, and an engine that starts anew asks all of them again. But
        one that never gets on asks the same for ever: each may be asked as often as there may be steps.
        """
        steps = await self._of(session, question.turn)
        if (not again and steps.taken >= self._most) or steps.asked[question.digest] >= self._most:
            raise TurnLimit(f"the turn has taken {self._most} steps; send a message to let the agent go on")
        steps.asked[question.digest] += 1

    async def recover(self, session: Session) -> None:
        """Tell the end of messages that an earlier server has begun, once per session and server."""
        if session.id in self._recovered:
            return
        async with self._recovering:
            if session.id in self._recovered:
                return
            told: list[SessionEvent] = []
            for left in await self.replies.unended(session.id):
                if left.thinking:
                    told.append(ThoughtEnded(message_id=left.message_id))
                told.append(MessageEnded(message_id=left.message_id, text=left.text, cut="restart"))
                told.append(StepEnded(turn=left.turn, step=left.step, calls=0))
            if told:
                await self.events.together(lambda _: None, lambda _: happening(session, *told))
            self._recovered.add(session.id)

    def keeping(
        self, session: Session, message: Message | None, spent: Spent, record: Callable[[Any], None] | None = None
    ) -> Work[tuple[Message | None, SessionUsage]]:
        """A unit of work that keeps a message, if there is one, and what it took; `record` may note more."""

        def work(connection: Any) -> tuple[Message | None, SessionUsage]:
            kept = SessionStore.keep(connection, message) if message is not None else None
            if record is not None:
                record(connection)
            usage = added(SessionStore.current(connection, session.id).usage, spent)
            SessionStore.alter(connection, session.id, {"usage": usage}, datetime.now(UTC))
            return kept, usage

        return work

    def recording(self, session: Session, question: Question, message: Message, finish: str, spent: Spent) -> Any:
        """A piece of a transaction that notes which message answers a question."""

        def record(connection: Any) -> None:
            ReplyStore.keep(
                connection,
                session.id,
                question.turn,
                question.digest,
                message.id,
                finish,
                spent.input_tokens,
                spent.output_tokens,
            )

        return record

    async def bounded(self, ending: Coroutine[Any, Any, None]) -> None:
        """Let something come to its end although its caller is cancelled, but not for ever."""
        task = asyncio.create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        try:
            async with asyncio.timeout(_KEPT_WITHIN):
                await asyncio.shield(task)
        except TimeoutError:
            log.error("what an agent said is not kept yet", seconds=_KEPT_WITHIN)

    async def close(self) -> None:
        """Wait for what is being kept."""
        if self._endings:
            await asyncio.wait(self._endings, timeout=_KEPT_WITHIN)

    def forget(self, session_id: str) -> None:
        self._steps.pop(session_id, None)
        self._recovered.discard(session_id)

    async def _of(self, session: Session, turn: int) -> _Steps:
        known = self._steps.get(session.id)
        if known is None or known.turn != turn:
            return self._known(session, turn, await self.replies.steps(session.id, turn))
        return known

    def _known(self, session: Session, turn: int, taken: int) -> _Steps:
        known = self._steps.get(session.id)
        if known is None or known.turn != turn:
            known = self._steps[session.id] = _Steps(turn, taken)
        return known


def added(usage: SessionUsage, spent: Spent) -> SessionUsage:
    """What a session has used, with one question more."""
    costs = [cost for cost in (usage.cost, spent.cost) if cost is not None]
    return SessionUsage(
        requests=usage.requests + spent.requests,
        input_tokens=usage.input_tokens + spent.input_tokens,
        output_tokens=usage.output_tokens + spent.output_tokens,
        cost=sum(costs) if costs else None,
    )


def usage_told(usage: SessionUsage) -> UsageChanged:
    return UsageChanged(usage=usage)


def question_digest(by: str | None, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> str:
    """What a question is recognised by: who asks, all that is said, and which tools there are."""
    return digest_of([by, messages, sorted(tool.name for tool in tools)])


def digest_of(value: Any) -> str:
    """The SHA-256 of something as JSON, whatever the order of its fields."""
    written = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return hashlib.sha256(written.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)

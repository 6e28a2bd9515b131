"""Recorded model replies, so that a restarted turn does not ask again."""

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

from paddock.agents.engines.base import ToolSpec, TurnLimitReached
from paddock.events.event_log import EventLog
from paddock.model.session_events import (
    MessageEnded,
    SessionEvent,
    StepEnded,
    ThoughtEnded,
    UsageChanged,
)
from paddock.model.sessions import Session, SessionMessage, SessionUsage
from paddock.store.chat_sessions.reply_store import ModelReplyStore, RecordedModelReply
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store, Work

_STORE_TIMEOUT = 10.0
"""Seconds that a cancelled caller waits until its partial message is stored."""
log = structlog.get_logger()


@dataclass(frozen=True)
class RequestUsage:
    """Tokens, cost and number of model requests."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    requests: int = 1


@dataclass(frozen=True)
class ModelQuestionKey:
    """Identifies a question of a turn, to find its recorded reply."""

    turn: int
    digest: str


@dataclass
class _TurnSteps:
    """Steps of a turn, and how often each question was asked."""

    turn: int
    count: int
    question_counts: Counter[str] = field(default_factory=Counter)


class ModelReplyJournal:
    """Recorded model replies of all sessions."""

    def __init__(self, store: Store, events: EventLog, steps: int) -> None:
        self.events = events
        self.session_store = SessionStore(store)
        self.replies = ModelReplyStore(store)
        self._max_steps = steps
        self._steps: dict[str, _TurnSteps] = {}
        self._recovered_sessions: set[str] = set()
        self._recovery_lock = asyncio.Lock()
        self._endings: set[asyncio.Task[None]] = set()

    async def find_reply(
        self, session: Session, question: ModelQuestionKey, *, is_new_turn: bool = False
    ) -> tuple[Session, RecordedModelReply | None]:
        """Return the current session and the reply recorded for the question; a fresh turn has none."""
        if is_new_turn:
            self._remember_steps(session, question.turn, 0)
            return session, None
        current, recorded, step_count = await self.replies.find_reply(session.id, question.turn, question.digest)
        self._remember_steps(session, question.turn, step_count)
        return current, recorded

    async def count_step(self, session: Session, turn: int) -> int:
        """Return the number of the turn's next step, including steps before a restart."""
        steps = await self._turn_steps(session, turn)
        steps.count += 1
        return steps.count

    async def check_step_limit(self, session: Session, question: ModelQuestionKey, *, is_repeated: bool) -> None:
        """Raise `TurnLimitReached` once a turn has used up its steps.

        Repeated questions are not counted as steps, because a restarted engine repeats all of them. Each question may
        be repeated as often as a turn may have steps, which stops an engine that loops.
        """
        steps = await self._turn_steps(session, question.turn)
        if (not is_repeated and steps.count >= self._max_steps) or steps.question_counts[
            question.digest
        ] >= self._max_steps:
            raise TurnLimitReached(
                f"the turn has taken {self._max_steps} steps; send a message to let the agent continue"
            )
        steps.question_counts[question.digest] += 1

    async def end_interrupted_messages(self, session: Session) -> None:
        """Emit the end of messages that an earlier server began, once per session and server."""
        if session.id in self._recovered_sessions:
            return
        async with self._recovery_lock:
            if session.id in self._recovered_sessions:
                return
            events: list[SessionEvent] = []
            for unfinished in await self.replies.list_unfinished_messages(session.id):
                if unfinished.thinking:
                    events.append(ThoughtEnded(message_id=unfinished.message_id))
                events.append(MessageEnded(message_id=unfinished.message_id, text=unfinished.text, cut="restart"))
                events.append(StepEnded(turn=unfinished.turn, step=unfinished.step, calls=0))
            if events:
                await self.events.write_with_events(lambda _: None, lambda _: session_log_entries(session, *events))
            self._recovered_sessions.add(session.id)

    def message_work(
        self,
        session: Session,
        message: SessionMessage | None,
        spent: RequestUsage,
        record: Callable[[Any], None] | None = None,
    ) -> Work[tuple[SessionMessage | None, SessionUsage]]:
        """Return the work that stores a message, if any, and adds its usage; `record` may store more."""

        def work(connection: Any) -> tuple[SessionMessage | None, SessionUsage]:
            stored = SessionStore.store_message(connection, message) if message is not None else None
            if record is not None:
                record(connection)
            usage = add_request_usage(SessionStore.load_session(connection, session.id).usage, spent)
            SessionStore.update_session(connection, session.id, {"usage": usage}, datetime.now(UTC))
            return stored, usage

        return work

    def reply_work(
        self, session: Session, question: ModelQuestionKey, message: SessionMessage, finish: str, spent: RequestUsage
    ) -> Any:
        """Return the part of a transaction that records the reply to a question."""

        def record(connection: Any) -> None:
            ModelReplyStore.record_reply(
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

    async def run_to_completion(self, ending: Coroutine[Any, Any, None]) -> None:
        """Run to completion even if the caller is cancelled, within a time limit."""
        task = asyncio.create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        try:
            async with asyncio.timeout(_STORE_TIMEOUT):
                await asyncio.shield(task)
        except TimeoutError:
            log.error("storing a partial message takes too long", seconds=_STORE_TIMEOUT)

    async def close(self) -> None:
        """Wait for messages that are being stored."""
        if self._endings:
            await asyncio.wait(self._endings, timeout=_STORE_TIMEOUT)

    def forget_session(self, session_id: str) -> None:
        self._steps.pop(session_id, None)
        self._recovered_sessions.discard(session_id)

    async def _turn_steps(self, session: Session, turn: int) -> _TurnSteps:
        steps = self._steps.get(session.id)
        if steps is None or steps.turn != turn:
            return self._remember_steps(session, turn, await self.replies.count_steps(session.id, turn))
        return steps

    def _remember_steps(self, session: Session, turn: int, count: int) -> _TurnSteps:
        steps = self._steps.get(session.id)
        if steps is None or steps.turn != turn:
            steps = self._steps[session.id] = _TurnSteps(turn, count)
        return steps


def add_request_usage(usage: SessionUsage, spent: RequestUsage) -> SessionUsage:
    """Add the usage of a request to the usage of a session."""
    costs = [cost for cost in (usage.cost, spent.cost) if cost is not None]
    return SessionUsage(
        requests=usage.requests + spent.requests,
        input_tokens=usage.input_tokens + spent.input_tokens,
        output_tokens=usage.output_tokens + spent.output_tokens,
        cost=sum(costs) if costs else None,
    )


def usage_changed_event(usage: SessionUsage) -> UsageChanged:
    return UsageChanged(usage=usage)


def model_question_digest(by: str | None, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> str:
    """Digest of a question: its author, its messages and the tool names."""
    return json_digest([by, messages, sorted(tool.name for tool in tools)])


def json_digest(value: Any) -> str:
    """Return the SHA-256 of a value as JSON, independent of field order."""
    serialized = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_json_default)
    return hashlib.sha256(serialized.encode(errors="surrogatepass")).hexdigest()


def _json_default(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)

"""Named queries about recorded model replies, so that a restarted turn does not ask again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, func, insert, select

from paddock.model.events import EventType
from paddock.model.sessions import Session, SessionMessage
from paddock.store.chat_sessions.session_log_entries import session_stream_name
from paddock.store.chat_sessions.session_store import load_visible_session
from paddock.store.database import Store
from paddock.store.row_mapping import row_to_model
from paddock.store.tables import events, session_messages, session_replies

SUMMARIES_TURN = 0
"""Pseudo turn of a session's summaries, which are valid in all turns."""
_MAX_SEARCHED_EVENTS = 20_000
"""Number of newest events that are searched for unfinished messages."""
_BOUNDARY_EVENTS = (EventType.MESSAGE_STARTED, EventType.MESSAGE_ENDED)
_CONTENT_EVENTS = (
    EventType.MESSAGE_STARTED,
    EventType.MESSAGE_DELTA,
    EventType.THOUGHT_STARTED,
    EventType.THOUGHT_ENDED,
)


_reply_columns = session_replies.c.finish, session_replies.c.input_tokens, session_replies.c.output_tokens
_same_question = (
    session_replies.c.session == bindparam("session"),
    session_replies.c.turn == bindparam("turn"),
    session_replies.c.digest == bindparam("digest"),
)
_recorded_message_id = select(session_replies.c.message_id).where(*_same_question)
_recorded_reply = (
    select(*(each for each in session_messages.c if each.name != "position"), *_reply_columns)
    .join_from(
        session_replies,
        session_messages,
        (session_messages.c.session == session_replies.c.session)
        & (session_messages.c.id == session_replies.c.message_id),
    )
    .where(*_same_question)
)
_step_count = (
    select(func.count())
    .select_from(session_messages)
    .where(
        session_messages.c.session == bindparam("session"),
        session_messages.c.turn == bindparam("turn"),
        session_messages.c.role == "assistant",
    )
)


class RecordedModelReply(NamedTuple):
    """Recorded reply to a model request."""

    message: SessionMessage
    finish: str
    input_tokens: int
    output_tokens: int


class UnfinishedMessage(NamedTuple):
    """A message that was published in part: its start, but not its end."""

    message_id: str
    turn: int
    step: int
    text: str = ""
    thinking: bool = False
    """Whether a thought was open."""


class ModelReplyStore:
    """Replies to model requests, by the digest of the request."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find_reply(
        self, session_id: str, turn: int, digest: str
    ) -> tuple[Session, RecordedModelReply | None, int]:
        """Return a session, the recorded reply to a request of a turn, if any, and the turn's number of steps.

        Raises `SessionNotFound`.
        """
        values = {"session": session_id, "turn": turn, "digest": digest}

        def work(connection: Connection) -> tuple[Session, RecordedModelReply | None, int]:
            session, steps = (
                load_visible_session(connection, session_id, None),
                _count_steps(connection, session_id, turn),
            )
            row = connection.execute(_recorded_reply, values).mappings().first()
            if row is None:
                return session, None, steps
            message = dict(row)
            reply_values = [message.pop(column.name) for column in _reply_columns]
            return session, RecordedModelReply(row_to_model(SessionMessage, message), *reply_values), steps

        return await self._store.read(work)

    @staticmethod
    def record_reply(
        connection: Connection,
        session_id: str,
        turn: int,
        digest: str,
        message_id: str,
        finish: str,
        input_tokens: int,
        output_tokens: int,
    ) -> None:
        """Record the reply to a request, within a transaction. The first one wins."""
        row = {"session": session_id, "turn": turn, "digest": digest}
        if connection.execute(_recorded_message_id, row).first() is None:
            row |= {"message_id": message_id, "finish": finish}
            connection.execute(
                insert(session_replies), {**row, "input_tokens": input_tokens, "output_tokens": output_tokens}
            )

    async def list_summaries(self, session_id: str) -> Mapping[str, str]:
        """Return summaries of a session, by the digest of the summarised messages."""
        statement = select(session_replies.c.digest, session_replies.c.message_id).where(
            session_replies.c.session == session_id, session_replies.c.turn == SUMMARIES_TURN
        )

        def work(connection: Connection) -> Mapping[str, str]:
            return {row.digest: row.message_id for row in connection.execute(statement)}

        return await self._store.read(work)

    async def count_steps(self, session_id: str, turn: int) -> int:
        """Return the number of recorded replies of a turn."""
        return await self._store.read(lambda connection: _count_steps(connection, session_id, turn))

    async def list_unfinished_messages(self, session_id: str) -> list[UnfinishedMessage]:
        """Return messages that an earlier server left unfinished, oldest first."""
        stream = session_stream_name(session_id)
        newest = select(func.max(events.c.number)).where(events.c.stream == stream)

        def since(number: Any, kinds: Collection[EventType]) -> Select[tuple[int, str, Mapping[str, Any]]]:
            conditions = (events.c.stream == stream, events.c.number >= number, events.c.type.in_(kinds))
            return select(events.c.number, events.c.type, events.c.data).where(*conditions).order_by(events.c.number)

        def work(connection: Connection) -> list[UnfinishedMessage]:
            start_numbers: dict[str, int] = {}
            for number, kind, data in connection.execute(
                since(newest.scalar_subquery() - _MAX_SEARCHED_EVENTS, _BOUNDARY_EVENTS)
            ):
                if kind == EventType.MESSAGE_STARTED:
                    start_numbers[data["message_id"]] = number
                else:
                    start_numbers.pop(data["message_id"], None)
            if not start_numbers:
                return []
            unfinished: dict[str, UnfinishedMessage] = {}
            for _, kind, data in connection.execute(since(min(start_numbers.values()), _CONTENT_EVENTS)):
                message_id = data["message_id"]
                if message_id not in start_numbers:
                    continue
                if kind == EventType.MESSAGE_STARTED:
                    unfinished[message_id] = UnfinishedMessage(message_id, data["turn"], data["step"])
                elif kind == EventType.MESSAGE_DELTA:
                    unfinished[message_id] = unfinished[message_id]._replace(
                        text=unfinished[message_id].text + data["text"]
                    )
                else:
                    thinking = kind == EventType.THOUGHT_STARTED
                    unfinished[message_id] = unfinished[message_id]._replace(thinking=thinking)
            return list(unfinished.values())

        return await self._store.read(work)


def _count_steps(connection: Connection, session_id: str, turn: int) -> int:
    return int(connection.execute(_step_count, {"session": session_id, "turn": turn}).scalar_one())

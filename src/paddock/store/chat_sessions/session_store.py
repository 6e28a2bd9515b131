"""Named queries about chat sessions and their messages.

Changes that publish events are units of work for `EventLog.together`; static methods take its connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, Connection, Text, and_, bindparam, cast, delete, func, insert, or_, select, update
from sqlalchemy.sql.dml import Update

from paddock.errors import Conflict, InvalidInput, QuotaExceeded, SessionNotFound
from paddock.model.owners import is_visible_to_view
from paddock.model.sessions import Approval, ApprovalState, ClientTool, Session, SessionMessage, SessionState
from paddock.store.chat_sessions.message_search import (
    MessageHit,
    escape_like_wildcards,
    index_session_message,
    parse_search_terms,
    remove_session_from_index,
    search_indexed_messages,
)
from paddock.store.database import Store
from paddock.store.row_mapping import fields_to_columns, row_to_model
from paddock.store.tables import (
    approvals,
    checkpoint_writes,
    checkpoints,
    client_tools,
    engine_states,
    session_calls,
    session_messages,
    session_replies,
    sessions,
)
from paddock.store.visibility import same_request_conditions, visible_row_conditions

Messages: TypeAlias = list[SessionMessage]
MessageHits: TypeAlias = list[MessageHit]
MAX_LISTED_ROWS = 100_000
_NO_LIMIT = 2**62
_select_sessions = select(*(column for column in sessions.c if column.name != "request_key"))
_select_messages = select(*(column for column in session_messages.c if column.name != "position"))
_select_approvals = select(*(column for column in approvals.c if column.name in Approval.model_fields))
_TIME_FIELDS = ("at", "created_at", "changed_at")
# Frequent statements are built once: building one takes longer than SQLite takes to run it.
_session_by_id = _select_sessions.where(sessions.c.id == bindparam("session"))
_message_by_id = _select_messages.where(
    session_messages.c.session == bindparam("session"), session_messages.c.id == bindparam("of")
)
_messages_in_order = _select_messages.where(session_messages.c.session == bindparam("session")).order_by(
    session_messages.c.number
)
_messages_after = _messages_in_order.where(session_messages.c.number > bindparam("after")).limit(bindparam("limit"))
_messages_of_turn = _messages_in_order.where(session_messages.c.turn == bindparam("turn"))
_newest_number = select(func.coalesce(func.max(session_messages.c.number), 0)).where(
    session_messages.c.session == bindparam("session")
)
_user_message_ids = (
    select(session_messages.c.id)
    .where(
        session_messages.c.session == bindparam("session"),
        session_messages.c.turn == bindparam("turn"),
        session_messages.c.role == "user",
    )
    .order_by(session_messages.c.number)
)
_pending_approval = (
    select(approvals.c.id)
    .where(approvals.c.session == bindparam("session"), approvals.c.state == ApprovalState.PENDING)
    .limit(1)
)
_client_tools = select(client_tools.c.tools).where(client_tools.c.session == bindparam("of"))
_engine_state = select(engine_states.c.state).where(engine_states.c.session == bindparam("of"))
_update_engine_state = update(engine_states).where(engine_states.c.session == bindparam("of"))
_update_engine_state = _update_engine_state.values(state=bindparam("state"), changed_at=bindparam("changed_at"))


class ReceivedMessage(NamedTuple):
    """Result of receiving a user message."""

    session: Session
    message: SessionMessage
    is_new: bool
    """Whether the message was not stored before."""
    starts_turn: bool = False
    sets_title: bool = False


class SessionStore:
    """Sessions and messages. Methods with a tenant see only that tenant's; `None` sees all."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def store_message(connection: Connection, message: SessionMessage, tenant: str | None = None) -> SessionMessage:
        """Number a message within its session and store it. A message with a known id is left unchanged.

        The tenant is required if the session is not stored yet.
        """
        if existing := _find_message(connection, message.session, message.id):
            return existing
        return _insert_message(
            connection, message, tenant or load_visible_session(connection, message.session, None).tenant
        )

    @staticmethod
    def update_session(connection: Connection, session_id: str, changes: Mapping[str, Any], now: datetime) -> Session:
        """Change fields of a session. Raises `SessionNotFound`."""
        return _update_session(connection, SessionStore.load_session(connection, session_id), changes, now)

    @staticmethod
    def load_session(connection: Connection, session_id: str) -> Session:
        """Raises `SessionNotFound`."""
        return load_visible_session(connection, session_id, None)

    @staticmethod
    def has_pending_approvals(connection: Connection, session_id: str) -> bool:
        """Return whether the session has pending approvals."""
        return connection.execute(_pending_approval, {"session": session_id}).first() is not None

    @staticmethod
    def unread_message_ids(connection: Connection, session_id: str, turn: int, read_ids: Collection[str]) -> list[str]:
        """Return ids of a turn's user messages that are not in `read_ids`."""
        message_ids = connection.execute(_user_message_ids, {"session": session_id, "turn": turn}).scalars()
        return [message_id for message_id in message_ids if message_id not in read_ids]

    @staticmethod
    def receive_message(
        connection: Connection,
        tenant: str,
        message: SessionMessage,
        title: str,
        now: datetime,
        tools: Sequence[ClientTool] | None = None,
    ) -> ReceivedMessage:
        """Store a user message in the open turn, or start a turn with it. `title` is used for sessions without one.

        `tools` replace the session's client tools; without `tools`, a new turn has none.
        Raises `SessionNotFound`, also for another tenant's.
        """
        current = load_visible_session(connection, message.session, tenant)
        if existing := _find_message(connection, message.session, message.id):
            return ReceivedMessage(current, existing, is_new=False)
        starts_turn = current.state is SessionState.IDLE
        stored = _insert_message(connection, message.model_copy(update={"turn": current.turn + starts_turn}), tenant)
        changes: dict[str, Any] = (
            {"turn": stored.turn, "state": SessionState.RUNNING, "error": None} if starts_turn else {}
        )
        if starts_turn or tools is not None:
            SessionStore.set_client_tools(connection, message.session, tools or ())
        sets_title = not current.title and bool(title)
        session = _update_session(connection, current, changes | ({"title": title} if sets_title else {}), now)
        return ReceivedMessage(session, stored, is_new=True, starts_turn=starts_turn, sets_title=sets_title)

    @staticmethod
    def set_client_tools(connection: Connection, session_id: str, tools: Sequence[ClientTool]) -> None:
        """Replace the tools that the session's client runs itself."""
        connection.execute(delete(client_tools).where(client_tools.c.session == session_id))
        if tools:
            documents = [tool.model_dump() for tool in tools]
            connection.execute(insert(client_tools), {"session": session_id, "tools": documents})

    @staticmethod
    def start_turn_with_note(connection: Connection, note: SessionMessage, now: datetime) -> ReceivedMessage:
        """Start a turn with a note. Raises `Conflict` for the first turn and while a turn is open."""
        current = SessionStore.load_session(connection, note.session)
        if current.state is not SessionState.IDLE:
            raise Conflict(f"the session is {current.state}; it continues by itself")
        if not current.turn:
            raise Conflict("there is no turn to continue; send a message")
        stored = SessionStore.store_message(connection, note.model_copy(update={"turn": current.turn + 1}))
        changes = {"turn": stored.turn, "state": SessionState.RUNNING, "error": None}
        return ReceivedMessage(
            _update_session(connection, current, changes, now), stored, is_new=True, starts_turn=True
        )

    @staticmethod
    def open_turn(connection: Connection, session_id: str, now: datetime) -> tuple[Session, bool] | None:
        """Resume an open turn: return the session and whether its state changed; `None` if the turn ended."""
        current = SessionStore.load_session(connection, session_id)
        if current.state is SessionState.IDLE:
            return None
        state = (
            SessionState.WAITING if SessionStore.has_pending_approvals(connection, session_id) else SessionState.RUNNING
        )
        if current.state is state:
            return current, False
        return _update_session(connection, current, {"state": state}, now), True

    @staticmethod
    def close_turn(
        connection: Connection, session_id: str, turn: int, changes: Mapping[str, Any], now: datetime
    ) -> tuple[Session, bool]:
        """Change a session if this turn is open; return whether it was."""
        current = SessionStore.load_session(connection, session_id)
        if current.state is SessionState.IDLE or current.turn != turn:
            return current, False
        return _update_session(connection, current, changes, now), True

    @staticmethod
    def finish_turn(
        connection: Connection,
        session_id: str,
        turn: int,
        changes: Mapping[str, Any],
        now: datetime,
        *,
        read_ids: Collection[str],
        ignored_ids: Sequence[str],
    ) -> tuple[Session, bool, list[str]]:
        """Close a turn unless it has unread user messages, except ignored ones; return their ids."""
        unread = SessionStore.unread_message_ids(connection, session_id, turn, read_ids)
        if set(unread) - set(ignored_ids):
            current = SessionStore.load_session(connection, session_id)
            if current.state is not SessionState.IDLE and current.turn == turn:
                return current, False, unread
        session, closed = SessionStore.close_turn(connection, session_id, turn, changes, now)
        return session, closed, unread if closed else []

    @staticmethod
    def insert_session(
        connection: Connection,
        session: Session,
        request_key: str | None = None,
        max_sessions: int | None = None,
    ) -> tuple[Session, bool]:
        """Insert a session; return it and whether it is new. The same tenant and request key return the earlier one.

        Raises `QuotaExceeded` if the tenant has `max_sessions` sessions.
        """
        if request_key is not None:
            same_request = same_request_conditions(sessions, session.tenant, session.subject, request_key)
            if row := connection.execute(_select_sessions.where(*same_request)).mappings().first():
                return row_to_model(Session, row), False
        count = select(func.count()).select_from(sessions).where(sessions.c.tenant == session.tenant)
        if max_sessions is not None and connection.execute(count).scalar_one() >= max_sessions:
            raise QuotaExceeded(f"the tenant has {max_sessions} sessions, which is the maximum; delete some")
        connection.execute(insert(sessions), session_model_to_row(session) | {"request_key": request_key})
        return session, True

    @staticmethod
    def delete_session(connection: Connection, session_id: str) -> Session | None:
        """Delete a session and its data, except events; `None` if there is none."""
        row = connection.execute(_select_sessions.where(sessions.c.id == session_id)).mappings().first()
        remove_session_from_index(connection, session_id)
        for table in (session_messages, session_calls, approvals, session_replies, engine_states, client_tools):
            connection.execute(delete(table).where(table.c.session == session_id))
        for table in (checkpoints, checkpoint_writes):
            connection.execute(delete(table).where(table.c.thread == session_id))
        connection.execute(delete(sessions).where(sessions.c.id == session_id))
        return row_to_model(Session, row) if row else None

    async def get(self, session_id: str, tenant: str | None = None) -> Session:
        """Return a session. Raises `SessionNotFound`, also for another tenant's."""
        return await self._store.read(lambda connection: load_visible_session(connection, session_id, tenant))

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> list[Session]:
        """Return sessions, last changed first; `before` is a cursor or the last id of the previous page.

        A query filters by title.
        """
        conditions = visible_row_conditions(sessions, tenant)
        if query:
            conditions.append(sessions.c.title.like(f"%{escape_like_wildcards(query)}%", escape="\\"))

        def work(connection: Connection) -> list[Session]:
            page_conditions = [] if before is None else [_after_cursor(*_parse_cursor(connection, before, tenant))]
            statement = _select_sessions.where(*conditions, *page_conditions).order_by(
                sessions.c.changed_at.desc(), sessions.c.id.desc()
            )
            rows = connection.execute(statement.limit(max(1, min(limit, MAX_LISTED_ROWS))))
            return [row_to_model(Session, row) for row in rows.mappings()]

        return await self._store.read(work)

    async def list_messages(
        self, session_id: str, *, after: int = 0, limit: int | None = None, turn: int | None = None
    ) -> Messages:
        """Return messages in order, after a number, of all turns or one."""
        statement = _messages_after if turn is None else _messages_after.where(session_messages.c.turn == turn)
        values = {"session": session_id, "after": after, "limit": _NO_LIMIT if limit is None else limit}
        return await self._store.read(
            lambda connection: [
                row_to_model(SessionMessage, row) for row in connection.execute(statement, values).mappings()
            ]
        )

    async def get_with_turn_messages(self, session_id: str, turn: int) -> tuple[Session | None, Messages]:
        """Return a session, if it exists, with the messages of a turn in order."""
        values = {"session": session_id, "turn": turn}

        def work(connection: Connection) -> tuple[Session | None, Messages]:
            row = connection.execute(_session_by_id, {"session": session_id}).mappings().first()
            messages = [
                row_to_model(SessionMessage, row) for row in connection.execute(_messages_of_turn, values).mappings()
            ]
            return row_to_model(Session, row) if row else None, messages

        return await self._store.read(work)

    async def find_message(self, session_id: str, message_id: str) -> SessionMessage | None:
        return await self._store.read(lambda connection: _find_message(connection, session_id, message_id))

    async def find_message_with_file(self, session_id: str, file: str) -> SessionMessage | None:
        """Return a message with this file."""
        has_file = cast(session_messages.c.content, Text).like(f"%{escape_like_wildcards(file)}%", escape="\\")
        statement = _select_messages.where(session_messages.c.session == session_id, has_file).limit(1)

        def work(connection: Connection) -> SessionMessage | None:
            row = connection.execute(statement).mappings().first()
            return row_to_model(SessionMessage, row) if row else None

        return await self._store.read(work)

    async def search_messages(
        self, tenant: str, query: str, *, session: str | None = None, limit: int = 20
    ) -> MessageHits:
        """Return messages that contain all words of a query, newest first. Raises `InvalidInput`."""
        terms = parse_search_terms(query)
        max_hits = max(1, min(limit, MAX_LISTED_ROWS))
        return await self._store.read(
            lambda connection: search_indexed_messages(connection, tenant, terms, session, max_hits)
        )

    async def list_open_sessions(self) -> Sequence[tuple[Session, bool]]:
        """Return sessions with an open turn, oldest first, and whether each has pending approvals."""
        statement = _select_sessions.where(sessions.c.state != SessionState.IDLE).order_by(sessions.c.changed_at)

        def work(connection: Connection) -> Sequence[tuple[Session, bool]]:
            open_sessions = [row_to_model(Session, row) for row in connection.execute(statement).mappings()]
            return [(session, SessionStore.has_pending_approvals(connection, session.id)) for session in open_sessions]

        return await self._store.read(work)

    async def list_decided_approvals(self, session_id: str, turn: int) -> Sequence[Approval]:
        """Return decided approvals of a turn, in order of decision."""
        statement = _select_approvals.where(
            approvals.c.session == session_id, approvals.c.turn == turn, approvals.c.state != ApprovalState.PENDING
        ).order_by(approvals.c.decided_at, approvals.c.id)
        return await self._store.read(
            lambda connection: [row_to_model(Approval, row) for row in connection.execute(statement).mappings()]
        )

    async def list_idle_sessions(self, before: datetime, *, waiting_before: datetime) -> Sequence[Session]:
        """Return idle sessions with sandboxes; waiting sessions have a time limit of their own."""
        statement = _select_sessions.where(
            or_(
                and_(sessions.c.state == SessionState.IDLE, sessions.c.changed_at < before),
                and_(sessions.c.state == SessionState.WAITING, sessions.c.changed_at < waiting_before),
            ),
            cast(sessions.c.sandboxes, Text) != "{}",
        )
        return await self._store.read(
            lambda connection: [row_to_model(Session, row) for row in connection.execute(statement).mappings()]
        )

    async def list_client_tools(self, session_id: str) -> Sequence[ClientTool]:
        """Return the session's client tools."""
        documents = await self._store.read(
            lambda connection: connection.execute(_client_tools, {"of": session_id}).scalar()
        )
        return [row_to_model(ClientTool, each) for each in documents or ()]

    async def replace_client_tools(self, session_id: str, tools: Sequence[ClientTool]) -> None:
        await self._store.write(lambda connection: SessionStore.set_client_tools(connection, session_id, tools))

    async def load_engine_state(self, session_id: str) -> bytes | None:
        """Return the engine's last saved state."""
        return await self._store.read(lambda connection: connection.execute(_engine_state, {"of": session_id}).scalar())

    async def save_engine_state(self, session_id: str, state: bytes, now: datetime) -> None:
        """Replace the engine's saved state."""
        values = {"state": state, "changed_at": now}

        def work(connection: Connection) -> None:
            if not connection.execute(_update_engine_state, values | {"of": session_id}).rowcount:
                connection.execute(insert(engine_states), values | {"session": session_id})

        await self._store.write(work, flush=False)


def _insert_message(connection: Connection, message: SessionMessage, tenant: str) -> SessionMessage:
    """Insert a message; return it with its number."""
    newest_number = connection.execute(_newest_number, {"session": message.session}).scalar_one()
    stored = message.model_copy(update={"number": newest_number + 1})
    key = connection.execute(insert(session_messages), session_model_to_row(stored)).inserted_primary_key
    assert key is not None
    index_session_message(connection, key[0], tenant, message.session, stored.content)
    return stored


def _update_session(connection: Connection, current: Session, changes: Mapping[str, Any], now: datetime) -> Session:
    updated = Session.model_validate(dict(current) | dict(changes) | {"changed_at": now})
    values = fields_to_columns(sessions, session_model_to_row(updated, {*changes, "changed_at"}))
    connection.execute(_update_statement(tuple(values)), values | {"of": current.id})
    return updated


@lru_cache(64)
def _update_statement(names: tuple[str, ...]) -> Update:
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    return update(sessions).where(sessions.c.id == bindparam("of")).values(values)


def load_visible_session(connection: Connection, session_id: str, tenant: str | None) -> Session:
    """Return a session. Raises `SessionNotFound`."""
    row = connection.execute(_session_by_id, {"session": session_id}).mappings().first()
    if row is None or not is_visible_to_view(tenant, row["tenant"], row["subject"], row["visibility"]):
        raise SessionNotFound(f"There is no session {session_id[:80]!r}.")
    return row_to_model(Session, row)


def _find_message(connection: Connection, session_id: str, message_id: str) -> SessionMessage | None:
    row = connection.execute(_message_by_id, {"session": session_id, "of": message_id}).mappings().first()
    return row_to_model(SessionMessage, row) if row else None


def session_model_to_row(model: Session | SessionMessage, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return a model, or some fields, as column values; nested values become JSON."""
    dumped = model.model_dump(mode="json", include=None if names is None else set(names))
    return dumped | {name: getattr(model, name) for name in _TIME_FIELDS if name in dumped}


def session_cursor(session: Session) -> str:
    """Return the cursor after this session, valid even if the session changes."""
    return f"{session.changed_at.isoformat()}_{session.id}"


def _after_cursor(moment: datetime, session_id: str) -> ColumnElement[bool]:
    same_time = and_(sessions.c.changed_at == moment, sessions.c.id < session_id)
    return or_(sessions.c.changed_at < moment, same_time)


def _parse_cursor(connection: Connection, before: str, tenant: str) -> tuple[datetime, str]:
    moment, separator, session_id = before.partition("_")
    if separator:
        try:
            at = datetime.fromisoformat(moment)
            if at.tzinfo is not None:
                return at, session_id
        except ValueError:
            pass
        raise InvalidInput(f"{before[:80]!r} is not a cursor; use the `next` value of an earlier page")
    return load_visible_session(connection, before, tenant).changed_at, before


__all__ = [
    "MessageHit",
    "MessageHits",
    "Messages",
    "ReceivedMessage",
    "SessionStore",
    "load_visible_session",
    "session_cursor",
    "session_model_to_row",
]

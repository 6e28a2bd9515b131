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
    escape_term,
    find_messages,
    index_message,
    parse_search_terms,
    remove_session,
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
from paddock.store.visibility import same_request_conditions, visible_conditions

Messages: TypeAlias = list[SessionMessage]
Hits: TypeAlias = list[MessageHit]
MOST_LISTED = 100_000
_NO_LIMIT = 2**62
_shown = select(*(column for column in sessions.c if column.name != "request_key"))
_said = select(*(column for column in session_messages.c if column.name != "position"))
_asked = select(*(column for column in approvals.c if column.name in Approval.model_fields))
_MOMENTS = ("at", "created_at", "changed_at")
# Frequent statements are built once: building one takes longer than SQLite takes to run it.
_one = _shown.where(sessions.c.id == bindparam("session"))
_said_by_id = _said.where(session_messages.c.session == bindparam("session"), session_messages.c.id == bindparam("of"))
_in_order = _said.where(session_messages.c.session == bindparam("session")).order_by(session_messages.c.number)
_said_after = _in_order.where(session_messages.c.number > bindparam("after")).limit(bindparam("most"))
_of_turn = _in_order.where(session_messages.c.turn == bindparam("turn"))
_newest = select(func.coalesce(func.max(session_messages.c.number), 0)).where(
    session_messages.c.session == bindparam("session")
)
_written = (
    select(session_messages.c.id)
    .where(
        session_messages.c.session == bindparam("session"),
        session_messages.c.turn == bindparam("turn"),
        session_messages.c.role == "user",
    )
    .order_by(session_messages.c.number)
)
_waiting = (
    select(approvals.c.id)
    .where(approvals.c.session == bindparam("session"), approvals.c.state == ApprovalState.PENDING)
    .limit(1)
)
_client_tools = select(client_tools.c.tools).where(client_tools.c.session == bindparam("of"))
_state = select(engine_states.c.state).where(engine_states.c.session == bindparam("of"))
_save = update(engine_states).where(engine_states.c.session == bindparam("of"))
_save = _save.values(state=bindparam("state"), changed_at=bindparam("changed_at"))


class ReceivedMessage(NamedTuple):
    """Result of receiving a user message."""

    session: Session
    message: SessionMessage
    fresh: bool
    """Whether it is new."""
    begun: bool = False
    """Whether it starts a turn."""
    titled: bool = False


class SessionStore:
    """Sessions and messages. Methods with a tenant see only that tenant's; `None` sees all."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def keep(connection: Connection, message: SessionMessage, tenant: str | None = None) -> SessionMessage:
        """Number a message within its session and store it. A message with a known id is left unchanged.

        The tenant is required if the session is not stored yet.
        """
        if earlier := _message(connection, message.session, message.id):
            return earlier
        return _kept(connection, message, tenant or require_session(connection, message.session, None).tenant)

    @staticmethod
    def alter(connection: Connection, session_id: str, changes: Mapping[str, Any], now: datetime) -> Session:
        """Change fields of a session. Raises `SessionNotFound`."""
        return _altered(connection, SessionStore.current(connection, session_id), changes, now)

    @staticmethod
    def current(connection: Connection, session_id: str) -> Session:
        """Raises `SessionNotFound`."""
        return require_session(connection, session_id, None)

    @staticmethod
    def pending(connection: Connection, session_id: str) -> bool:
        """Return whether the session has pending approvals."""
        return connection.execute(_waiting, {"session": session_id}).first() is not None

    @staticmethod
    def unheard(connection: Connection, session_id: str, turn: int, heard: Collection[str]) -> list[str]:
        """Return ids of a turn's user messages, except the given ones."""
        found = connection.execute(_written, {"session": session_id, "turn": turn}).scalars()
        return [message_id for message_id in found if message_id not in heard]

    @staticmethod
    def receive(
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
        current = require_session(connection, message.session, tenant)
        if earlier := _message(connection, message.session, message.id):
            return ReceivedMessage(current, earlier, fresh=False)
        begins = current.state is SessionState.IDLE
        kept = _kept(connection, message.model_copy(update={"turn": current.turn + begins}), tenant)
        changes: dict[str, Any] = {"turn": kept.turn, "state": SessionState.RUNNING, "error": None} if begins else {}
        if begins or tools is not None:
            SessionStore.set_client_tools(connection, message.session, tools or ())
        titled = not current.title and bool(title)
        altered = _altered(connection, current, changes | ({"title": title} if titled else {}), now)
        return ReceivedMessage(altered, kept, fresh=True, begun=begins, titled=titled)

    @staticmethod
    def set_client_tools(connection: Connection, session_id: str, tools: Sequence[ClientTool]) -> None:
        """Replace the tools that the session's client runs itself."""
        connection.execute(delete(client_tools).where(client_tools.c.session == session_id))
        if tools:
            listed = [tool.model_dump() for tool in tools]
            connection.execute(insert(client_tools), {"session": session_id, "tools": listed})

    @staticmethod
    def next_turn(connection: Connection, note: SessionMessage, now: datetime) -> ReceivedMessage:
        """Start a turn with a note. Raises `Conflict` for the first turn and while a turn is open."""
        current = SessionStore.current(connection, note.session)
        if current.state is not SessionState.IDLE:
            raise Conflict(f"the session is {current.state}; it continues by itself")
        if not current.turn:
            raise Conflict("there is no turn to continue; send a message")
        kept = SessionStore.keep(connection, note.model_copy(update={"turn": current.turn + 1}))
        changes = {"turn": kept.turn, "state": SessionState.RUNNING, "error": None}
        return ReceivedMessage(_altered(connection, current, changes, now), kept, fresh=True, begun=True)

    @staticmethod
    def open_turn(connection: Connection, session_id: str, now: datetime) -> tuple[Session, bool] | None:
        """Resume an open turn: return the session and whether its state changed; `None` if the turn ended."""
        current = SessionStore.current(connection, session_id)
        if current.state is SessionState.IDLE:
            return None
        state = SessionState.WAITING if SessionStore.pending(connection, session_id) else SessionState.RUNNING
        if current.state is state:
            return current, False
        return _altered(connection, current, {"state": state}, now), True

    @staticmethod
    def close_turn(
        connection: Connection, session_id: str, turn: int, changes: Mapping[str, Any], now: datetime
    ) -> tuple[Session, bool]:
        """Change a session if this turn is open; return whether it was."""
        current = SessionStore.current(connection, session_id)
        if current.state is SessionState.IDLE or current.turn != turn:
            return current, False
        return _altered(connection, current, changes, now), True

    @staticmethod
    def finish_turn(
        connection: Connection,
        session_id: str,
        turn: int,
        changes: Mapping[str, Any],
        now: datetime,
        *,
        heard: Collection[str],
        given_up: Sequence[str],
    ) -> tuple[Session, bool, list[str]]:
        """Close a turn unless it has unread user messages; return their ids."""
        unheard = SessionStore.unheard(connection, session_id, turn, heard)
        if set(unheard) - set(given_up):
            current = SessionStore.current(connection, session_id)
            if current.state is not SessionState.IDLE and current.turn == turn:
                return current, False, unheard
        found, is_over = SessionStore.close_turn(connection, session_id, turn, changes, now)
        return found, is_over, unheard if is_over else []

    @staticmethod
    def begin(
        connection: Connection,
        session: Session,
        request_key: str | None = None,
        most: int | None = None,
    ) -> tuple[Session, bool]:
        """Insert a session; return it and whether it is new. The same tenant and request key return the earlier one.

        Raises `QuotaExceeded` if the tenant has `most` sessions.
        """
        if request_key is not None:
            same = same_request_conditions(sessions, session.tenant, session.subject, request_key)
            if row := connection.execute(_shown.where(*same)).mappings().first():
                return row_to_model(Session, row), False
        count = select(func.count()).select_from(sessions).where(sessions.c.tenant == session.tenant)
        if most is not None and connection.execute(count).scalar_one() >= most:
            raise QuotaExceeded(f"the tenant has {most} sessions, which is the maximum; delete some")
        connection.execute(insert(sessions), session_row(session) | {"request_key": request_key})
        return session, True

    @staticmethod
    def remove(connection: Connection, session_id: str) -> Session | None:
        """Delete a session and its data, except events; `None` if there is none."""
        row = connection.execute(_shown.where(sessions.c.id == session_id)).mappings().first()
        remove_session(connection, session_id)
        for table in (session_messages, session_calls, approvals, session_replies, engine_states, client_tools):
            connection.execute(delete(table).where(table.c.session == session_id))
        for table in (checkpoints, checkpoint_writes):
            connection.execute(delete(table).where(table.c.thread == session_id))
        connection.execute(delete(sessions).where(sessions.c.id == session_id))
        return row_to_model(Session, row) if row else None

    async def get(self, session_id: str, tenant: str | None = None) -> Session:
        """Return a session. Raises `SessionNotFound`, also for another tenant's."""
        return await self._store.read(lambda connection: require_session(connection, session_id, tenant))

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> list[Session]:
        """Return sessions, last changed first; `before` is a cursor or the last id of the previous page.

        A query filters by title.
        """
        conditions = visible_conditions(sessions, tenant)
        if query:
            conditions.append(sessions.c.title.like(f"%{escape_term(query)}%", escape="\\"))

        def work(connection: Connection) -> list[Session]:
            here = [] if before is None else [_after(*_place(connection, before, tenant))]
            statement = _shown.where(*conditions, *here).order_by(sessions.c.changed_at.desc(), sessions.c.id.desc())
            rows = connection.execute(statement.limit(max(1, min(limit, MOST_LISTED))))
            return [row_to_model(Session, row) for row in rows.mappings()]

        return await self._store.read(work)

    async def messages(
        self, session_id: str, *, after: int = 0, limit: int | None = None, turn: int | None = None
    ) -> Messages:
        """Return messages in order, after a number, of all turns or one."""
        statement = _said_after if turn is None else _said_after.where(session_messages.c.turn == turn)
        values = {"session": session_id, "after": after, "most": _NO_LIMIT if limit is None else limit}
        return await self._store.read(
            lambda connection: [
                row_to_model(SessionMessage, row) for row in connection.execute(statement, values).mappings()
            ]
        )

    async def with_messages(self, session_id: str, turn: int) -> tuple[Session | None, Messages]:
        """Return a session, if it exists, with the messages of a turn in order."""
        values = {"session": session_id, "turn": turn}

        def work(connection: Connection) -> tuple[Session | None, Messages]:
            row = connection.execute(_one, {"session": session_id}).mappings().first()
            written = [row_to_model(SessionMessage, row) for row in connection.execute(_of_turn, values).mappings()]
            return row_to_model(Session, row) if row else None, written

        return await self._store.read(work)

    async def message(self, session_id: str, message_id: str) -> SessionMessage | None:
        return await self._store.read(lambda connection: _message(connection, session_id, message_id))

    async def naming(self, session_id: str, file: str) -> SessionMessage | None:
        """Return a message with this file."""
        has = cast(session_messages.c.content, Text).like(f"%{escape_term(file)}%", escape="\\")
        statement = _said.where(session_messages.c.session == session_id, has).limit(1)

        def work(connection: Connection) -> SessionMessage | None:
            row = connection.execute(statement).mappings().first()
            return row_to_model(SessionMessage, row) if row else None

        return await self._store.read(work)

    async def search(self, tenant: str, query: str, *, session: str | None = None, limit: int = 20) -> Hits:
        """Return messages that contain all words of a query, newest first. Raises `InvalidInput`."""
        terms = parse_search_terms(query)
        most = max(1, min(limit, MOST_LISTED))
        return await self._store.read(lambda connection: find_messages(connection, tenant, terms, session, most))

    async def open_ones(self) -> Sequence[tuple[Session, bool]]:
        """Return sessions with an open turn, oldest first, and whether each has pending approvals."""
        statement = _shown.where(sessions.c.state != SessionState.IDLE).order_by(sessions.c.changed_at)

        def work(connection: Connection) -> Sequence[tuple[Session, bool]]:
            found = [row_to_model(Session, row) for row in connection.execute(statement).mappings()]
            return [(session, SessionStore.pending(connection, session.id)) for session in found]

        return await self._store.read(work)

    async def decided(self, session_id: str, turn: int) -> Sequence[Approval]:
        """Return decided approvals of a turn, in order of decision."""
        statement = _asked.where(
            approvals.c.session == session_id, approvals.c.turn == turn, approvals.c.state != ApprovalState.PENDING
        ).order_by(approvals.c.decided_at, approvals.c.id)
        return await self._store.read(
            lambda connection: [row_to_model(Approval, row) for row in connection.execute(statement).mappings()]
        )

    async def resting(self, before: datetime, *, waiting_before: datetime) -> Sequence[Session]:
        """Return idle sessions with sandboxes; waiting sessions have a time limit of their own."""
        statement = _shown.where(
            or_(
                and_(sessions.c.state == SessionState.IDLE, sessions.c.changed_at < before),
                and_(sessions.c.state == SessionState.WAITING, sessions.c.changed_at < waiting_before),
            ),
            cast(sessions.c.sandboxes, Text) != "{}",
        )
        return await self._store.read(
            lambda connection: [row_to_model(Session, row) for row in connection.execute(statement).mappings()]
        )

    async def client_tools(self, session_id: str) -> Sequence[ClientTool]:
        """Return the session's client tools."""
        listed = await self._store.read(
            lambda connection: connection.execute(_client_tools, {"of": session_id}).scalar()
        )
        return [row_to_model(ClientTool, each) for each in listed or ()]

    async def replace_client_tools(self, session_id: str, tools: Sequence[ClientTool]) -> None:
        await self._store.write(lambda connection: SessionStore.set_client_tools(connection, session_id, tools))

    async def state(self, session_id: str) -> bytes | None:
        """Return the engine's last saved state."""
        return await self._store.read(lambda connection: connection.execute(_state, {"of": session_id}).scalar())

    async def save_state(self, session_id: str, state: bytes, now: datetime) -> None:
        """Replace the engine's saved state."""
        values = {"state": state, "changed_at": now}

        def work(connection: Connection) -> None:
            if not connection.execute(_save, values | {"of": session_id}).rowcount:
                connection.execute(insert(engine_states), values | {"session": session_id})

        await self._store.write(work, flush=False)


def _kept(connection: Connection, message: SessionMessage, tenant: str) -> SessionMessage:
    """Insert a message; return it with its number."""
    newest = connection.execute(_newest, {"session": message.session}).scalar_one()
    kept = message.model_copy(update={"number": newest + 1})
    key = connection.execute(insert(session_messages), session_row(kept)).inserted_primary_key
    assert key is not None
    index_message(connection, key[0], tenant, message.session, kept.content)
    return kept


def _altered(connection: Connection, current: Session, changes: Mapping[str, Any], now: datetime) -> Session:
    altered = Session.model_validate(dict(current) | dict(changes) | {"changed_at": now})
    values = fields_to_columns(sessions, session_row(altered, {*changes, "changed_at"}))
    connection.execute(_change(tuple(values)), values | {"of": current.id})
    return altered


@lru_cache(64)
def _change(names: tuple[str, ...]) -> Update:
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    return update(sessions).where(sessions.c.id == bindparam("of")).values(values)


def require_session(connection: Connection, session_id: str, tenant: str | None) -> Session:
    """Return a session. Raises `SessionNotFound`."""
    row = connection.execute(_one, {"session": session_id}).mappings().first()
    if row is None or not is_visible_to_view(tenant, row["tenant"], row["subject"], row["visibility"]):
        raise SessionNotFound(f"There is no session {session_id[:80]!r}.")
    return row_to_model(Session, row)


def _message(connection: Connection, session_id: str, message_id: str) -> SessionMessage | None:
    row = connection.execute(_said_by_id, {"session": session_id, "of": message_id}).mappings().first()
    return row_to_model(SessionMessage, row) if row else None


def session_row(model: Session | SessionMessage, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return a model, or some fields, as column values; nested values become JSON."""
    dumped = model.model_dump(mode="json", include=None if names is None else set(names))
    return dumped | {name: getattr(model, name) for name in _MOMENTS if name in dumped}


def session_cursor(session: Session) -> str:
    """Return the cursor after this session, valid even if the session changes."""
    return f"{session.changed_at.isoformat()}_{session.id}"


def _after(moment: datetime, session_id: str) -> ColumnElement[bool]:
    same = and_(sessions.c.changed_at == moment, sessions.c.id < session_id)
    return or_(sessions.c.changed_at < moment, same)


def _place(connection: Connection, before: str, tenant: str) -> tuple[datetime, str]:
    moment, mark, session_id = before.partition("_")
    if mark:
        try:
            at = datetime.fromisoformat(moment)
            if at.tzinfo is not None:
                return at, session_id
        except ValueError:
            pass
        raise InvalidInput(f"{before[:80]!r} is not a cursor; use the `next` value of an earlier page")
    return require_session(connection, before, tenant).changed_at, before


__all__ = [
    "Hits",
    "MessageHit",
    "Messages",
    "ReceivedMessage",
    "SessionStore",
    "require_session",
    "session_cursor",
    "session_row",
]

"""Named queries about chat sessions and their messages.

What changes together with events is a piece of work for `EventLog.together`: the static methods take its connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, Connection, Text, and_, bindparam, cast, delete, func, insert, or_, select, update
from sqlalchemy.sql.dml import Update

from paddock.errors import Conflict, InvalidInput, QuotaExceeded, SessionNotFound
from paddock.model.owners import may_see
from paddock.model.sessions import Approval, ApprovalState, ClientTool, Message, Session, SessionState
from paddock.store.database import Store
from paddock.store.rows import check_columns, to_model
from paddock.store.session_words import Hit, add, escaped, find, forget, terms_of
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
from paddock.store.visible import same_request, visible

Messages: TypeAlias = list[Message]
Hits: TypeAlias = list[Hit]
MOST_LISTED = 100_000
_NO_LIMIT = 2**62
_shown = select(*(column for column in sessions.c if column.name != "request_key"))
_said = select(*(column for column in session_messages.c if column.name != "place"))
_asked = select(*(column for column in approvals.c if column.name in Approval.model_fields))
_MOMENTS = ("at", "created_at", "changed_at")
# What every step of a chat asks is built once: building a statement takes longer than SQLite takes to answer it.
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


class Received(NamedTuple):
    """What became of a message of a person."""

    session: Session
    message: Message
    fresh: bool
    """Whether it was not there before."""
    begun: bool = False
    """Whether a turn begins with it."""
    titled: bool = False


class SessionStore:
    """What is known of every session. Methods that take a tenant see only that tenant's; `None` sees all."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def keep(connection: Connection, message: Message, tenant: str | None = None) -> Message:
        """Give a message the next number of its session and keep it; one whose id is kept already stays as it was.

        The tenant has to be given where the session itself is not there yet.
        """
        if earlier := _message(connection, message.session, message.id):
            return earlier
        return _kept(connection, message, tenant or known(connection, message.session, None).tenant)

    @staticmethod
    def alter(connection: Connection, session_id: str, changes: Mapping[str, Any], now: datetime) -> Session:
        """Change fields of a session. Raises `SessionNotFound`."""
        return _altered(connection, SessionStore.current(connection, session_id), changes, now)

    @staticmethod
    def current(connection: Connection, session_id: str) -> Session:
        """Raises `SessionNotFound`."""
        return known(connection, session_id, None)

    @staticmethod
    def pending(connection: Connection, session_id: str) -> bool:
        """Whether something of the session waits for a person."""
        return connection.execute(_waiting, {"session": session_id}).first() is not None

    @staticmethod
    def unheard(connection: Connection, session_id: str, turn: int, heard: Collection[str]) -> list[str]:
        """Ids of what persons wrote in a turn, but for those that are given."""
        found = connection.execute(_written, {"session": session_id, "turn": turn}).scalars()
        return [message_id for message_id in found if message_id not in heard]

    @staticmethod
    def receive(
        connection: Connection,
        tenant: str,
        message: Message,
        title: str,
        now: datetime,
        tools: Sequence[ClientTool] | None = None,
    ) -> Received:
        """Keep what a person wrote: in the open turn, or as the beginning of one. The title is for those without.

        `tools` replace the session's client tools; without them, a new turn has none.
        Raises `SessionNotFound`, also for another tenant's.
        """
        current = known(connection, message.session, tenant)
        if earlier := _message(connection, message.session, message.id):
            return Received(current, earlier, fresh=False)
        begins = current.state is SessionState.IDLE
        kept = _kept(connection, message.model_copy(update={"turn": current.turn + begins}), tenant)
        changes: dict[str, Any] = {"turn": kept.turn, "state": SessionState.RUNNING, "error": None} if begins else {}
        if begins or tools is not None:
            SessionStore.set_client_tools(connection, message.session, tools or ())
        titled = not current.title and bool(title)
        altered = _altered(connection, current, changes | ({"title": title} if titled else {}), now)
        return Received(altered, kept, fresh=True, begun=begins, titled=titled)

    @staticmethod
    def set_client_tools(connection: Connection, session_id: str, tools: Sequence[ClientTool]) -> None:
        """Replace the tools that the session's client runs itself."""
        connection.execute(delete(client_tools).where(client_tools.c.session == session_id))
        if tools:
            listed = [tool.model_dump() for tool in tools]
            connection.execute(insert(client_tools), {"session": session_id, "tools": listed})

    @staticmethod
    def next_turn(connection: Connection, note: Message, now: datetime) -> Received:
        """Begin a turn with a note. Raises `Conflict` if there was none before it, or that one is open."""
        current = SessionStore.current(connection, note.session)
        if current.state is not SessionState.IDLE:
            raise Conflict(f"the session is {current.state}; it goes on by itself")
        if not current.turn:
            raise Conflict("nothing was said yet that could be gone on with; send a message")
        kept = SessionStore.keep(connection, note.model_copy(update={"turn": current.turn + 1}))
        changes = {"turn": kept.turn, "state": SessionState.RUNNING, "error": None}
        return Received(_altered(connection, current, changes, now), kept, fresh=True, begun=True)

    @staticmethod
    def open_turn(connection: Connection, session_id: str, now: datetime) -> tuple[Session, bool] | None:
        """An open turn is worked at again: the session as it is then, and whether that is news; `None` if it ended."""
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
        """Change a session if this turn of it is open; say whether it was."""
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
        """As `close_turn`, unless persons have written what is not among the heard and not given up: then those ids."""
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
        """Keep a new session, and say whether it is new: an earlier one of the same tenant and request key is returned.

        Raises `QuotaExceeded` where the tenant has `most` already.
        """
        if request_key is not None:
            same = same_request(sessions, session.tenant, session.subject, request_key)
            if row := connection.execute(_shown.where(*same)).mappings().first():
                return to_model(Session, row), False
        count = select(func.count()).select_from(sessions).where(sessions.c.tenant == session.tenant)
        if most is not None and connection.execute(count).scalar_one() >= most:
            raise QuotaExceeded(f"there are {most} sessions already, which is as many as there may be; delete some")
        connection.execute(insert(sessions), row_of(session) | {"request_key": request_key})
        return session, True

    @staticmethod
    def remove(connection: Connection, session_id: str) -> Session | None:
        """Forget a session and all that belongs to it, but for its events; `None` if there is none."""
        row = connection.execute(_shown.where(sessions.c.id == session_id)).mappings().first()
        forget(connection, session_id)
        for table in (session_messages, session_calls, approvals, session_replies, engine_states, client_tools):
            connection.execute(delete(table).where(table.c.session == session_id))
        for table in (checkpoints, checkpoint_writes):
            connection.execute(delete(table).where(table.c.thread == session_id))
        connection.execute(delete(sessions).where(sessions.c.id == session_id))
        return to_model(Session, row) if row else None

    async def get(self, session_id: str, tenant: str | None = None) -> Session:
        """Raises `SessionNotFound`, also for what belongs to another tenant."""
        return await self._store.read(lambda connection: known(connection, session_id, tenant))

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> list[Session]:
        """Sessions, the one that changed last first; `before` is a cursor, or the id of the last one that is known.

        With a query those whose title has it in it.
        """
        conditions = visible(sessions, tenant)
        if query:
            conditions.append(sessions.c.title.like(f"%{escaped(query)}%", escape="\\"))

        def work(connection: Connection) -> list[Session]:
            here = [] if before is None else [_after(*_place(connection, before, tenant))]
            statement = _shown.where(*conditions, *here).order_by(sessions.c.changed_at.desc(), sessions.c.id.desc())
            rows = connection.execute(statement.limit(max(1, min(limit, MOST_LISTED))))
            return [to_model(Session, row) for row in rows.mappings()]

        return await self._store.read(work)

    async def messages(
        self, session_id: str, *, after: int = 0, limit: int | None = None, turn: int | None = None
    ) -> Messages:
        """Messages in order, after a number, of all turns or one."""
        statement = _said_after if turn is None else _said_after.where(session_messages.c.turn == turn)
        values = {"session": session_id, "after": after, "most": _NO_LIMIT if limit is None else limit}
        return await self._store.read(
            lambda connection: [to_model(Message, row) for row in connection.execute(statement, values).mappings()]
        )

    async def with_messages(self, session_id: str, turn: int) -> tuple[Session | None, Messages]:
        """A session, if it is there, with the messages of a turn in order."""
        values = {"session": session_id, "turn": turn}

        def work(connection: Connection) -> tuple[Session | None, Messages]:
            row = connection.execute(_one, {"session": session_id}).mappings().first()
            written = [to_model(Message, row) for row in connection.execute(_of_turn, values).mappings()]
            return to_model(Session, row) if row else None, written

        return await self._store.read(work)

    async def message(self, session_id: str, message_id: str) -> Message | None:
        return await self._store.read(lambda connection: _message(connection, session_id, message_id))

    async def naming(self, session_id: str, file: str) -> Message | None:
        """A message that has this file."""
        has = cast(session_messages.c.content, Text).like(f"%{escaped(file)}%", escape="\\")
        statement = _said.where(session_messages.c.session == session_id, has).limit(1)

        def work(connection: Connection) -> Message | None:
            row = connection.execute(statement).mappings().first()
            return to_model(Message, row) if row else None

        return await self._store.read(work)

    async def search(self, tenant: str, query: str, *, session: str | None = None, limit: int = 20) -> Hits:
        """Messages that have all the words in them, newest first. Raises `InvalidInput` for a senseless query."""
        terms = terms_of(query)
        most = max(1, min(limit, MOST_LISTED))
        return await self._store.read(lambda connection: find(connection, tenant, terms, session, most))

    async def open_ones(self) -> Sequence[tuple[Session, bool]]:
        """Sessions with a turn that has not ended, oldest first, and whether something of them waits for a person."""
        statement = _shown.where(sessions.c.state != SessionState.IDLE).order_by(sessions.c.changed_at)

        def work(connection: Connection) -> Sequence[tuple[Session, bool]]:
            found = [to_model(Session, row) for row in connection.execute(statement).mappings()]
            return [(session, SessionStore.pending(connection, session.id)) for session in found]

        return await self._store.read(work)

    async def decided(self, session_id: str, turn: int) -> Sequence[Approval]:
        """What was asked in a turn and does not wait any more, in the order in which it was decided."""
        statement = _asked.where(
            approvals.c.session == session_id, approvals.c.turn == turn, approvals.c.state != ApprovalState.PENDING
        ).order_by(approvals.c.decided_at, approvals.c.id)
        return await self._store.read(
            lambda connection: [to_model(Approval, row) for row in connection.execute(statement).mappings()]
        )

    async def resting(self, before: datetime, *, waiting_before: datetime) -> Sequence[Session]:
        """Sessions that have sandboxes, and in which nothing has happened since a moment, or another if they wait."""
        statement = _shown.where(
            or_(
                and_(sessions.c.state == SessionState.IDLE, sessions.c.changed_at < before),
                and_(sessions.c.state == SessionState.WAITING, sessions.c.changed_at < waiting_before),
            ),
            cast(sessions.c.sandboxes, Text) != "{}",
        )
        return await self._store.read(
            lambda connection: [to_model(Session, row) for row in connection.execute(statement).mappings()]
        )

    async def client_tools(self, session_id: str) -> Sequence[ClientTool]:
        """Tools that the session's client runs itself."""
        listed = await self._store.read(
            lambda connection: connection.execute(_client_tools, {"of": session_id}).scalar()
        )
        return [to_model(ClientTool, each) for each in listed or ()]

    async def replace_client_tools(self, session_id: str, tools: Sequence[ClientTool]) -> None:
        await self._store.write(lambda connection: SessionStore.set_client_tools(connection, session_id, tools))

    async def state(self, session_id: str) -> bytes | None:
        """What the engine has saved last."""
        return await self._store.read(lambda connection: connection.execute(_state, {"of": session_id}).scalar())

    async def save_state(self, session_id: str, state: bytes, now: datetime) -> None:
        """Keep the engine's place, in place of what was there; on disk before anything that is written later."""
        values = {"state": state, "changed_at": now}

        def work(connection: Connection) -> None:
            if not connection.execute(_save, values | {"of": session_id}).rowcount:
                connection.execute(insert(engine_states), values | {"session": session_id})

        await self._store.write(work, flush=False)


def _kept(connection: Connection, message: Message, tenant: str) -> Message:
    """A new message, with its number."""
    newest = connection.execute(_newest, {"session": message.session}).scalar_one()
    kept = message.model_copy(update={"number": newest + 1})
    place = connection.execute(insert(session_messages), row_of(kept)).inserted_primary_key
    assert place is not None
    add(connection, place[0], tenant, message.session, kept.content)
    return kept


def _altered(connection: Connection, current: Session, changes: Mapping[str, Any], now: datetime) -> Session:
    altered = Session.model_validate(dict(current) | dict(changes) | {"changed_at": now})
    values = check_columns(sessions, row_of(altered, {*changes, "changed_at"}))
    connection.execute(_change(tuple(values)), values | {"of": current.id})
    return altered


@lru_cache(64)
def _change(names: tuple[str, ...]) -> Update:
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    return update(sessions).where(sessions.c.id == bindparam("of")).values(values)


def known(connection: Connection, session_id: str, tenant: str | None) -> Session:
    """A session by its id. Raises `SessionNotFound`."""
    row = connection.execute(_one, {"session": session_id}).mappings().first()
    if row is None or not may_see(tenant, row["tenant"], row["subject"], row["visibility"]):
        raise SessionNotFound(f"There is no session {session_id[:80]!r}.")
    return to_model(Session, row)


def _message(connection: Connection, session_id: str, message_id: str) -> Message | None:
    row = connection.execute(_said_by_id, {"session": session_id, "of": message_id}).mappings().first()
    return to_model(Message, row) if row else None


def row_of(model: Session | Message, names: Collection[str] | None = None) -> dict[str, Any]:
    """A model, or some of its fields, as column values: moments stay, whatever is built of parts becomes JSON data."""
    dumped = model.model_dump(mode="json", include=None if names is None else set(names))
    return dumped | {name: getattr(model, name) for name in _MOMENTS if name in dumped}


def cursor(session: Session) -> str:
    """Where a listing goes on after this session, even if it changes meanwhile."""
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
        raise InvalidInput(f"{before[:80]!r} is no place to go on from; use what an earlier page said")
    return known(connection, before, tenant).changed_at, before


__all__ = ["Hit", "Hits", "Messages", "Received", "SessionStore", "cursor", "known", "row_of"]

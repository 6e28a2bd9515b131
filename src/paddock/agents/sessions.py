"""What callers use: chat sessions of many tenants, from their first message to their end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import structlog

from paddock.agents.agents import DefaultModel, engine_of, kinds_for, model_for
from paddock.agents.bundles import Bundles
from paddock.agents.client_tools import check_names
from paddock.agents.engines.base import Continue, Turn, UserMessage
from paddock.agents.files import Files
from paddock.agents.forks import forked, up_to
from paddock.agents.recovery import Recovery
from paddock.agents.requests import DataPart, NewSession, SessionPatch, TextPart, Written, parts_of, title_of
from paddock.agents.workers import Workers
from paddock.config.schema import Config
from paddock.errors import PaddockError
from paddock.events.log import EventLog
from paddock.fleet.requests import new_id
from paddock.model.events import Event
from paddock.model.owners import Visibility, check_may_share, owner_of_new, request_key_of
from paddock.model.session_events import (
    MessageReceived,
    SessionChanged,
    SessionCreated,
    SessionDeleted,
    SessionEvent,
    SessionStateChanged,
    TurnEnded,
    TurnStarted,
)
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    ClientTool,
    Content,
    Decision,
    FileContent,
    Message,
    Policy,
    Session,
    SessionState,
    TextContent,
)
from paddock.store.database import Store
from paddock.store.events import Happening
from paddock.store.session_stream import happening, stream_of
from paddock.store.sessions import Hit, Hits, Messages, Received, SessionStore, cursor

if TYPE_CHECKING:
    from paddock.agents.calls import Calls
    from paddock.agents.engines.registry import Engines
    from paddock.agents.toolbox import Toolbox
    from paddock.agents.voice import Voice
    from paddock.llm.archive.archive import Archive

__all__ = ["DataPart", "Hit", "NewSession", "Sent", "SessionPatch", "Sessions", "TextPart", "Written", "cursor"]

T = TypeVar("T")
Approvals: TypeAlias = list[Approval]
FINISH_WITHIN = 10.0
"""Seconds that what was asked for has to be finished when the server stops."""
GO_ON = "Go on from where you were."
log = structlog.get_logger()


class Sent(NamedTuple):
    """A message that is on disk."""

    message: Message
    arrival: Event | None
    """What was told of it; nothing if it was said before."""


class Sessions:
    """Keeps sessions and has their turns run. Every method takes the tenant that asks."""

    def __init__(
        self,
        config: Config,
        store: Store,
        events: EventLog,
        engines: Engines,
        calls: Calls,
        toolbox: Toolbox,
        voice: Voice,
        files: Files,
        make_turn: Callable[[Session, int, Message | None], Turn],
        archive: Archive,
        default_model: DefaultModel,
    ) -> None:
        self._config = config
        self._settings = config.chat
        self._events = events
        self._engines = engines
        self._calls = calls
        self._toolbox = toolbox
        self._voice = voice
        self._files = files
        self._book = SessionStore(store)
        self._workers = Workers(self._book, events, engines, calls, make_turn, config.chat.at_once)
        self._bundles = Bundles(config, store, events, engines, files, archive, default_model)
        self._default_model = default_model
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._recovery = Recovery(self._book, events, self._workers, toolbox, voice, self._lock, config.chat.idle_time)

    async def open(self) -> None:
        """Go on with the turns that an earlier server left open."""
        self._calls.on_decided = self._workers.ring
        self._calls.aside = self._workers.aside
        await self._bundles.sweep()
        await self._recovery.open()

    async def close(self) -> None:
        """Let go of everything. Turns stay open, and the next server goes on with them."""
        await self._recovery.close()
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=FINISH_WITHIN)
        await self._workers.close()

    async def create(self, tenant: str, new: NewSession, by: str | None, request_key: str | None = None) -> Session:
        """Begin a session. Asking again with the same `request_key` returns the first.

        Raises `InvalidInput` for an agent, a model or a kind that is not there, `QuotaExceeded` for too many sessions.
        """
        agent = new.agent or self._settings.agent
        now = datetime.now(UTC)
        session = Session(
            id=new_id("ses"),
            tenant=str(tenant),
            title=(new.title or "").strip(),
            agent=agent,
            engine=engine_of(agent, self._engines.names),
            model=model_for(self._config, new.model or await self._default_model()),
            instructions=new.instructions or "",
            kinds=await asyncio.to_thread(kinds_for, self._config, new.kinds),
            policy=new.policy or Policy(),
            budget=new.budget or self._settings.budget,
            created_at=now,
            changed_at=now,
            **{"created_by": by, **self._owner(tenant, new.visibility)},
        )
        begun = await self._begin(session, request_key_of(tenant, request_key))
        self._workers.prepare(begun.engine)
        return begun

    async def get(self, tenant: str, session_id: str) -> Session:
        """Raises `SessionNotFound`."""
        return await self._book.get(session_id, tenant)

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> list[Session]:
        """Sessions, the one that changed last first; `before` is the `cursor` of the last one that is known."""
        return await self._book.list(tenant, limit=limit, before=before, query=query)

    async def messages(self, tenant: str, session_id: str, after: int = 0, limit: int = 100) -> Messages:
        """What was said, in order, after a number. Raises `SessionNotFound`."""
        await self._book.get(session_id, tenant)
        return await self._book.messages(session_id, after=after, limit=limit)

    async def search(self, tenant: str, text: str, *, session: str | None = None, limit: int = 20) -> Hits:
        """Messages that have all the words in them, newest first. Raises `InvalidInput`, `SessionNotFound`."""
        if session is not None:
            await self._book.get(session, tenant)
        return await self._book.search(tenant, text, session=session, limit=limit)

    async def approvals(
        self,
        tenant: str,
        *,
        session: str | None = None,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Approvals:
        """What was asked of people, newest first."""
        return await self._calls.list(tenant, session=session, state=state, before=before, limit=limit)

    async def change(self, tenant: str, session_id: str, patch: SessionPatch, by: str | None) -> Session:
        """Change what a session is; it counts from its next step on. Raises `InvalidInput`, `SessionNotFound`."""
        session = await self._book.get(session_id, tenant)
        if patch.visibility is not None and patch.visibility is not session.visibility:
            check_may_share(tenant, session)
        changes: dict[str, Any] = {
            name: value for name in patch.model_fields_set if (value := getattr(patch, name)) is not None
        }
        if "model" in changes:
            changes["model"] = model_for(self._config, patch.model)
        if "kinds" in changes:
            changes["kinds"] = await asyncio.to_thread(kinds_for, self._config, patch.kinds)
        told = SessionChanged(**changes, by=by)
        if "budget" in patch.model_fields_set:
            changes["budget"] = patch.budget
        if not changes:
            return session
        now = datetime.now(UTC)
        altered = await self._events.readdress(
            lambda connection: SessionStore.alter(connection, session_id, changes, now),
            lambda changed: happening(changed, told),
            [stream_of(session_id)] if "visibility" in changes else [],
            session.model_copy(update=changes).audience,
        )
        if "visibility" in changes:
            await self._toolbox.share(altered)
        return altered

    async def fork(
        self, tenant: str, session_id: str, *, message: str | None = None, title: str | None = None, by: str | None
    ) -> Session:
        """Begin a new session with what was said in another, up to a message. Raises `NotFound`, `QuotaExceeded`."""
        source = await self._book.get(session_id, tenant)
        said = await self._book.messages(session_id)
        if message is not None:
            said = up_to(said, message)
        new = forked(source, said, message, title, by).model_copy(update=self._owner(tenant))
        async with self._bundles.making(new.id):
            await self._files.copy(source.id, new.id)
            await self._bundles.copy(said, new)
            return await self._begin(new)

    async def delete(self, tenant: str, session_id: str) -> None:
        """Stop a session and forget it, with its messages, files and sandboxes. Raises `SessionNotFound`."""
        await self._book.get(session_id, tenant)
        await self._firmly(self._delete(session_id))

    async def usable_client_tools(self, session: Session, tools: Sequence[ClientTool]) -> Sequence[ClientTool]:
        """Return the tools if the session's agent can call them, nothing if it has only tools of its own.

        Raises `ToolNameTaken` for names of tools that the session has.
        """
        if not tools or (await self._workers.engine(session.engine)).own_tools:
            return ()
        check_names(tools, [spec.name for spec in await self._toolbox.server_tools(session)])
        return tools

    async def send(
        self,
        tenant: str,
        session_id: str,
        written: Written,
        by: str | None,
        request_key: str | None = None,
        client_tools: Sequence[ClientTool] | None = None,
    ) -> Sent:
        """Say something to the agent: begins a turn, or is read before its next question if it is at work.

        Once this returns it is on disk; asking again with the same `request_key` does not say it twice.
        `client_tools` are those the client runs itself from now on; a turn that begins without them has none.
        Raises `InvalidInput`, `SessionNotFound`.
        """
        message_id = new_id("msg") if request_key is None else _derived(session_id, request_key)
        if written.content:
            # Files are read from Base64, which may take a while, and kept before the message is.
            reading = asyncio.to_thread(parts_of, written, self._files.largest)
            _, parts = await asyncio.gather(self._book.get(session_id, tenant), reading)
        else:
            parts = parts_of(written, self._files.largest)
        return await self._firmly(self._receive(tenant, session_id, message_id, parts, by, client_tools))

    async def use_client_tools(self, tenant: str, session_id: str, tools: Sequence[ClientTool]) -> None:
        """Replace the tools that the session's client runs itself. Raises `SessionNotFound`."""
        await self._book.get(session_id, tenant)
        if list(tools) != list(await self._book.client_tools(session_id)):
            await self._book.replace_client_tools(session_id, tools)

    async def decide(self, tenant: str, session_id: str, decisions: Sequence[Decision], by: str) -> Approvals:
        """Decide what waits for a person: all of it or nothing. Raises `InvalidInput`, `NotFound`, `Conflict`."""
        await self._book.get(session_id, tenant)
        return await self._firmly(self._decide(tenant, session_id, decisions, by))

    async def cancel(self, tenant: str, session_id: str, by: str | None) -> Session:
        """Stop what is under way in a session; one that is idle stays as it is. Raises `SessionNotFound`."""
        session = await self._book.get(session_id, tenant)
        if session.state is SessionState.IDLE:
            return session
        return await self._firmly(self._cancel(session_id, f"{by or 'somebody'} has cancelled the turn"))

    async def go_on(self, tenant: str, session_id: str, by: str | None) -> Session:
        """Let the agent go on in a turn of its own. Raises `Conflict` while one is under way, `SessionNotFound`."""
        await self._book.get(session_id, tenant)
        return await self._firmly(self._go_on(session_id, by))

    async def attachment(self, tenant: str, session_id: str, sha: str) -> tuple[Path, FileContent]:
        """Where a file of a session is, and what it is. Raises `NotFound`, `SessionNotFound`."""
        await self._book.get(session_id, tenant)
        picture = await self._files.mime(session_id, sha)
        path = self._files.path(session_id, sha)
        if picture is not None:
            return path, FileContent(type="image", file=sha, mime=picture)
        message = await self._book.naming(session_id, sha)
        for part in message.content if message else ():
            if isinstance(part, FileContent) and part.file == sha:
                return path, part
        return path, FileContent(file=sha)

    async def export(self, tenant: str, session_id: str) -> AsyncGenerator[bytes, None]:
        """A session as one file, for another server or for keeping. Raises `SessionNotFound`."""
        async with aclosing(self._bundles.write(await self._book.get(session_id, tenant))) as pieces:
            async for piece in pieces:
                yield piece

    async def import_bundle(self, tenant: str, chunks: AsyncIterator[bytes], by: str | None) -> Session:
        """Open what was exported as a new session; nothing of it is run. Raises `InvalidInput`, `TooLarge`."""
        return await self._bundles.read(tenant, chunks, by)

    def _owner(self, tenant: str, visibility: Visibility | None = None) -> dict[str, Any]:
        owner = owner_of_new(tenant, visibility or self._config.sharing.default)
        return owner.model_dump(exclude={"created_by"} if owner.created_by is None else None)

    async def _begin(self, session: Session, request_key: str | None = None) -> Session:
        told = SessionCreated(title=session.title, agent=session.agent, model=session.model, kinds=session.kinds)
        found, _ = await self._events.together(
            lambda connection: SessionStore.begin(connection, session, request_key, self._settings.sessions),
            lambda result: happening(session, told) if result[1] else [],
        )
        return found

    async def _receive(
        self,
        tenant: str,
        session_id: str,
        message_id: str,
        parts: Sequence[str | tuple[DataPart, bytes]],
        by: str | None,
        client_tools: Sequence[ClientTool] | None,
    ) -> Sent:
        async with self._lock(session_id):
            content: list[Content] = []
            for part in parts:
                if isinstance(part, str):
                    content.append(TextContent(text=part))
                else:
                    await self._book.get(session_id)  # What is deleted meanwhile gets no files.
                    given, data = part
                    content.append(await self._files.put(session_id, data, name=given.name, mime=given.mime))
            now = datetime.now(UTC)
            message = Message(
                id=message_id, session=session_id, turn=0, role="user", content=tuple(content), by=by, at=now
            )
            title = title_of(message.text) or next((p.name for p in content if isinstance(p, FileContent)), "")
            received, told = await self._events.told(
                lambda connection: SessionStore.receive(connection, tenant, message, title, now, client_tools), _told
            )
            if received.begun:
                self._workers.start(session_id, UserMessage(message=received.message), received.session)
            elif received.fresh and self._recovery.left_alone(received.session):
                await self._recovery.restart(received.session)
            return Sent(received.message, told[0] if told else None)

    async def _decide(self, tenant: str, session_id: str, decisions: Sequence[Decision], by: str) -> Approvals:
        decided = await self._calls.decide(tenant, session_id, decisions, by)
        self._workers.ring(session_id)
        return decided

    async def _cancel(self, session_id: str, reason: str) -> Session:
        async with self._lock(session_id):
            return await self._stop(session_id, reason)

    async def _stop(self, session_id: str, reason: str) -> Session:
        async with self._workers.stopped(session_id):
            session = await self._book.get(session_id)
            if session.state is SessionState.IDLE:
                return session
            await self._calls.withdraw(session_id, reason)
            await self._calls.abandon(session_id, session.turn, reason)
            return await self._workers.end(session, TurnEnded(turn=session.turn, state="cancelled", reason=reason))

    async def _go_on(self, session_id: str, by: str | None) -> Session:
        async with self._lock(session_id):
            session = await self._book.get(session_id)
            if self._recovery.left_alone(session):
                await self._recovery.restart(session)
                return session
            now = datetime.now(UTC)
            # Written down, so that an engine that is started again finds what its turn began with.
            note = Message(
                id=new_id("msg"),
                session=session_id,
                turn=session.turn,
                role="note",
                content=(TextContent(text=GO_ON),),
                by=by,
                at=now,
            )
            begun = await self._events.together(
                lambda connection: SessionStore.next_turn(connection, note, now),
                lambda begun: happening(
                    begun.session,
                    MessageReceived(message=begun.message),
                    SessionStateChanged(state=begun.session.state),
                    TurnStarted(turn=begun.session.turn, cause="continue"),
                ),
            )
            self._workers.start(session_id, Continue())
            return begun.session

    async def _delete(self, session_id: str) -> None:
        async with self._lock(session_id):
            session = await self._stop(session_id, "the session is deleted")
            for letting_go in (
                self._toolbox.forget(session),
                self._release(session),
                self._voice.forget(session_id),
            ):
                try:
                    await letting_go
                except PaddockError as error:
                    log.warning("something of a deleted session stays", session=session_id, reason=error.message)
            await self._files.remove(session_id)
            await self._events.together(
                lambda connection: SessionStore.remove(connection, session_id),
                lambda removed: [] if removed is None else happening(removed, SessionDeleted()),
                erases=stream_of(session_id),
            )

    async def _release(self, session: Session) -> None:
        engine = await self._workers.engine(session.engine)
        await engine.release(session)

    def _lock(self, session_id: str) -> asyncio.Lock:
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        return lock

    async def _firmly(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something to its end, even if who asked for it goes away meanwhile."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)


def _told(received: Received) -> Sequence[Happening]:
    if not received.fresh:
        return []
    session = received.session
    told: list[SessionEvent] = [MessageReceived(message=received.message, waits=not received.begun)]
    if received.titled:
        told.append(SessionChanged(title=session.title))
    if received.begun:
        told += [SessionStateChanged(state=session.state), TurnStarted(turn=session.turn, cause="message")]
    return happening(session, *told)


def _derived(session_id: str, request_key: str) -> str:
    return f"msg-{hashlib.sha256(f'{session_id}/{request_key}'.encode(errors='surrogatepass')).hexdigest()[:32]}"

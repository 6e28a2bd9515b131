"""Chat sessions of all tenants: the interface that the API uses."""

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

from paddock.agents.engines.base import ContinueTurn, Turn, UserMessage
from paddock.agents.session_files import SessionFiles
from paddock.agents.sessions.agent_choice import AvailableModels, engine_for_agent, resolve_sandbox_kinds
from paddock.agents.sessions.session_bundles import SessionBundles
from paddock.agents.sessions.session_forks import build_forked_session, messages_up_to
from paddock.agents.sessions.session_maintenance import SessionMaintenance
from paddock.agents.sessions.session_requests import (
    CreateSessionRequest,
    MessageDataPart,
    MessageRequest,
    MessageTextPart,
    UpdateSessionRequest,
    derive_title,
    parse_message_parts,
)
from paddock.agents.tools.client_tools import check_tool_names
from paddock.agents.turns.turn_runner import TurnRunner
from paddock.config.schema import Config
from paddock.errors import PaddockError
from paddock.events.event_log import EventLog
from paddock.fleet.fleet_requests import new_id
from paddock.model.events import EventRecord
from paddock.model.owners import Visibility, check_may_share, owner_scoped_request_key, ownership_of_new_object
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
    ApprovalDecision,
    ApprovalState,
    ClientTool,
    FileContent,
    MessageContent,
    Policy,
    Session,
    SessionMessage,
    SessionState,
    TextContent,
)
from paddock.store.chat_sessions.session_log_entries import session_log_entries, session_stream_name
from paddock.store.chat_sessions.session_store import (
    MessageHit,
    MessageHits,
    Messages,
    ReceivedMessage,
    SessionStore,
    session_cursor,
)
from paddock.store.database import Store
from paddock.store.event_store import NewEvent

if TYPE_CHECKING:
    from paddock.agents.approvals.tool_call_service import ToolCallService
    from paddock.agents.engines.registry import EngineRegistry
    from paddock.agents.model.model_requests import SessionModelClient
    from paddock.agents.tools.toolbox import SessionToolbox
    from paddock.llm.archive.archive import ExchangeArchive

__all__ = [
    "CreateSessionRequest",
    "MessageDataPart",
    "MessageHit",
    "MessageRequest",
    "MessageTextPart",
    "SentMessage",
    "SessionService",
    "UpdateSessionRequest",
    "session_cursor",
]

T = TypeVar("T")
Approvals: TypeAlias = list[Approval]
CLOSE_TIMEOUT = 10.0
"""Seconds that running requests have to finish when the server stops."""
CONTINUE_NOTE = "Go on from where you were."
log = structlog.get_logger()


class SentMessage(NamedTuple):
    """A message that is stored."""

    message: SessionMessage
    event: EventRecord | None
    """The event of its arrival; None for a repeated request."""


class SessionService:
    """Create, change and delete sessions, and run their turns. Methods take the calling tenant."""

    def __init__(
        self,
        config: Config,
        store: Store,
        events: EventLog,
        engines: EngineRegistry,
        calls: ToolCallService,
        toolbox: SessionToolbox,
        session_model: SessionModelClient,
        files: SessionFiles,
        make_turn: Callable[[Session, int, SessionMessage | None], Turn],
        archive: ExchangeArchive,
        models: AvailableModels,
    ) -> None:
        self._config = config
        self._settings = config.chat
        self._events = events
        self._engines = engines
        self._tool_calls = calls
        self._toolbox = toolbox
        self._session_model = session_model
        self._files = files
        self._session_store = SessionStore(store)
        self._turn_runner = TurnRunner(self._session_store, events, engines, calls, make_turn, config.chat.at_once)
        self._bundles = SessionBundles(config, store, events, engines, files, archive, models)
        self._models = models
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._maintenance = SessionMaintenance(
            self._session_store, events, self._turn_runner, toolbox, session_model, self._lock, config.chat.idle_time
        )

    async def open(self) -> None:
        """Resume the turns that an earlier server left open."""
        self._tool_calls.on_decided = self._turn_runner.notify_decision
        self._tool_calls.yield_slot = self._turn_runner.yield_slot
        await self._bundles.remove_unfinished()
        await self._maintenance.open()

    async def close(self) -> None:
        """Stop all work. Turns stay open; the next server resumes them."""
        await self._maintenance.close()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_TIMEOUT)
        await self._turn_runner.close()

    async def create(
        self, tenant: str, new: CreateSessionRequest, by: str | None, request_key: str | None = None
    ) -> Session:
        """Create a session; a repeated `request_key` returns the first one.

        Raises `InvalidInput` for an unknown agent, model or kind and for a network that cannot be granted,
        `QuotaExceeded` for too many sessions.
        """
        agent = new.agent or self._settings.agent
        if new.network is not None:
            self._toolbox.check_network(str(tenant), new.network)
        now = datetime.now(UTC)
        session = Session(
            id=new_id("ses"),
            tenant=str(tenant),
            title=(new.title or "").strip(),
            agent=agent,
            engine=engine_for_agent(agent, self._engines.names),
            model=self._models.resolve(new.model or await self._models.default()),
            instructions=new.instructions or "",
            kinds=await asyncio.to_thread(resolve_sandbox_kinds, self._config, new.kinds),
            network=new.network,
            mcp=new.mcp,
            policy=new.policy or Policy(),
            budget=new.budget or self._settings.budget,
            created_at=now,
            changed_at=now,
            **{"created_by": by, **self._owner_fields(tenant, new.visibility)},
        )
        if session.mcp:
            self._toolbox.check_mcp_servers(session)
        created = await self._insert_session(session, owner_scoped_request_key(tenant, request_key))
        self._turn_runner.preload_engine(created.engine)
        return created

    async def get(self, tenant: str, session_id: str) -> Session:
        """Raises `SessionNotFound`."""
        return await self._session_store.get(session_id, tenant)

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> list[Session]:
        """List sessions, most recently changed first; `before` is the `cursor` of the last known one."""
        return await self._session_store.list(tenant, limit=limit, before=before, query=query)

    async def list_messages(self, tenant: str, session_id: str, after: int = 0, limit: int = 100) -> Messages:
        """List messages in order, after a message number. Raises `SessionNotFound`."""
        await self._session_store.get(session_id, tenant)
        return await self._session_store.list_messages(session_id, after=after, limit=limit)

    async def search_messages(
        self, tenant: str, text: str, *, session: str | None = None, limit: int = 20
    ) -> MessageHits:
        """Find messages that contain all the words, newest first. Raises `InvalidInput`, `SessionNotFound`."""
        if session is not None:
            await self._session_store.get(session, tenant)
        return await self._session_store.search_messages(tenant, text, session=session, limit=limit)

    async def list_approvals(
        self,
        tenant: str,
        *,
        session: str | None = None,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Approvals:
        """List approvals, newest first."""
        return await self._tool_calls.list_approvals(tenant, session=session, state=state, before=before, limit=limit)

    async def update(self, tenant: str, session_id: str, patch: UpdateSessionRequest, by: str | None) -> Session:
        """Change settings of a session, effective from its next step. Raises `InvalidInput`, `SessionNotFound`."""
        session = await self._session_store.get(session_id, tenant)
        if patch.visibility is not None and patch.visibility is not session.visibility:
            check_may_share(tenant, session)
        changes: dict[str, Any] = {
            name: value for name in patch.model_fields_set if (value := getattr(patch, name)) is not None
        }
        if "model" in changes:
            changes["model"] = self._models.resolve(patch.model)
        if "kinds" in changes:
            changes["kinds"] = await asyncio.to_thread(resolve_sandbox_kinds, self._config, patch.kinds)
        if patch.network is not None:
            self._toolbox.check_network(session.tenant, patch.network)
        if patch.mcp:
            self._toolbox.check_mcp_servers(session.model_copy(update={"mcp": patch.mcp}))
        event = SessionChanged(**{name: value for name, value in changes.items() if name != "mcp"}, by=by)
        if "mcp" in patch.model_fields_set:
            changes["mcp"] = patch.mcp
        if "budget" in patch.model_fields_set:
            changes["budget"] = patch.budget
        if "network" in patch.model_fields_set and patch.network is None:
            changes["network"] = None
            event = event.model_copy(update={"default_network": True})
        if not changes:
            return session
        now = datetime.now(UTC)
        session_after = await self._events.change_audience(
            lambda connection: SessionStore.update_session(connection, session_id, changes, now),
            lambda changed: session_log_entries(changed, event),
            [session_stream_name(session_id)] if "visibility" in changes else [],
            session.model_copy(update=changes).audience,
        )
        if "visibility" in changes:
            await self._toolbox.share_sandboxes(session_after)
        if "network" in changes:
            await self._toolbox.change_network(session_after)
        return session_after

    async def fork(
        self, tenant: str, session_id: str, *, message: str | None = None, title: str | None = None, by: str | None
    ) -> Session:
        """Create a session with the messages of another one, up to a message. Raises `NotFound`, `QuotaExceeded`."""
        source = await self._session_store.get(session_id, tenant)
        messages = await self._session_store.list_messages(session_id)
        if message is not None:
            messages = messages_up_to(messages, message)
        new = build_forked_session(source, messages, message, title, by).model_copy(update=self._owner_fields(tenant))
        async with self._bundles.staging_directory(new.id):
            await self._files.copy_files(source.id, new.id)
            await self._bundles.copy_messages(messages, new)
            return await self._insert_session(new)

    async def delete(self, tenant: str, session_id: str) -> None:
        """Stop a session and delete it with its messages, files and sandboxes. Raises `SessionNotFound`."""
        await self._session_store.get(session_id, tenant)
        await self._run_to_completion(self._delete(session_id))

    async def usable_client_tools(self, session: Session, tools: Sequence[ClientTool]) -> Sequence[ClientTool]:
        """Return the tools if the session's agent can call them; agents with their own tools cannot.

        Raises `ToolNameTaken` if the session already has a tool of that name.
        """
        if not tools or (await self._turn_runner.get_engine(session.engine)).has_own_tools:
            return ()
        check_tool_names(tools, [spec.name for spec in await self._toolbox.list_server_tools(session)])
        return tools

    async def send_message(
        self,
        tenant: str,
        session_id: str,
        request: MessageRequest,
        by: str | None,
        request_key: str | None = None,
        client_tools: Sequence[ClientTool] | None = None,
    ) -> SentMessage:
        """Send a message to the agent: starts a turn, or is read before the next question of a running one.

        The message is stored when this returns; a repeated `request_key` does not send it twice.
        `client_tools` are the tools that the client runs from now on; without them a new turn has none.
        Raises `InvalidInput`, `SessionNotFound`.
        """
        message_id = new_id("msg") if request_key is None else _derive_message_id(session_id, request_key)
        if request.content:
            # Decoding Base64 may take a while; files are stored before the message.
            decode = asyncio.to_thread(parse_message_parts, request, self._files.max_size)
            _, parts = await asyncio.gather(self._session_store.get(session_id, tenant), decode)
        else:
            parts = parse_message_parts(request, self._files.max_size)
        return await self._run_to_completion(
            self._receive_message(tenant, session_id, message_id, parts, by, client_tools)
        )

    async def replace_client_tools(self, tenant: str, session_id: str, tools: Sequence[ClientTool]) -> None:
        """Replace the tools that the session's client runs. Raises `SessionNotFound`."""
        await self._session_store.get(session_id, tenant)
        if list(tools) != list(await self._session_store.list_client_tools(session_id)):
            await self._session_store.replace_client_tools(session_id, tools)

    async def decide_approvals(
        self, tenant: str, session_id: str, decisions: Sequence[ApprovalDecision], by: str
    ) -> Approvals:
        """Decide pending approvals, all or none. Raises `InvalidInput`, `NotFound`, `Conflict`."""
        await self._session_store.get(session_id, tenant)
        return await self._run_to_completion(self._decide(tenant, session_id, decisions, by))

    async def cancel_turn(self, tenant: str, session_id: str, by: str | None) -> Session:
        """Cancel the running turn of a session; idle sessions are unchanged. Raises `SessionNotFound`."""
        session = await self._session_store.get(session_id, tenant)
        if session.state is SessionState.IDLE:
            return session
        return await self._run_to_completion(self._cancel(session_id, f"{by or 'a client'} cancelled the turn"))

    async def continue_turn(self, tenant: str, session_id: str, by: str | None) -> Session:
        """Start a turn without a message. Raises `Conflict` while a turn is running, `SessionNotFound`."""
        await self._session_store.get(session_id, tenant)
        return await self._run_to_completion(self._continue_turn(session_id, by))

    async def find_attachment(self, tenant: str, session_id: str, sha: str) -> tuple[Path, FileContent]:
        """Return the path and the description of a file of a session. Raises `NotFound`, `SessionNotFound`."""
        await self._session_store.get(session_id, tenant)
        image_type = await self._files.image_type(session_id, sha)
        path = self._files.file_path(session_id, sha)
        if image_type is not None:
            return path, FileContent(type="image", file=sha, mime=image_type)
        message = await self._session_store.find_message_with_file(session_id, sha)
        for part in message.content if message else ():
            if isinstance(part, FileContent) and part.file == sha:
                return path, part
        return path, FileContent(file=sha)

    async def export_bundle(self, tenant: str, session_id: str) -> AsyncGenerator[bytes, None]:
        """Export a session as one file. Raises `SessionNotFound`."""
        async with aclosing(self._bundles.export_session(await self._session_store.get(session_id, tenant))) as pieces:
            async for piece in pieces:
                yield piece

    async def import_bundle(self, tenant: str, chunks: AsyncIterator[bytes], by: str | None) -> Session:
        """Import an exported session as a new one; nothing in it is run. Raises `InvalidInput`, `TooLarge`."""
        return await self._bundles.import_session(tenant, chunks, by)

    def _owner_fields(self, tenant: str, visibility: Visibility | None = None) -> dict[str, Any]:
        owner = ownership_of_new_object(tenant, visibility or self._config.sharing.default)
        return owner.model_dump(exclude={"created_by"} if owner.created_by is None else None)

    async def _insert_session(self, session: Session, request_key: str | None = None) -> Session:
        event = SessionCreated(title=session.title, agent=session.agent, model=session.model, kinds=session.kinds)
        stored, _ = await self._events.write_with_events(
            lambda connection: SessionStore.insert_session(connection, session, request_key, self._settings.sessions),
            lambda result: session_log_entries(session, event) if result[1] else [],
        )
        return stored

    async def _receive_message(
        self,
        tenant: str,
        session_id: str,
        message_id: str,
        parts: Sequence[str | tuple[MessageDataPart, bytes]],
        by: str | None,
        client_tools: Sequence[ClientTool] | None,
    ) -> SentMessage:
        async with self._lock(session_id):
            content: list[MessageContent] = []
            for part in parts:
                if isinstance(part, str):
                    content.append(TextContent(text=part))
                else:
                    await self._session_store.get(session_id)  # A session deleted meanwhile gets no files.
                    part_fields, data = part
                    content.append(
                        await self._files.store_file(session_id, data, name=part_fields.name, mime=part_fields.mime)
                    )
            now = datetime.now(UTC)
            message = SessionMessage(
                id=message_id, session=session_id, turn=0, role="user", content=tuple(content), by=by, at=now
            )
            title = derive_title(message.text) or next((p.name for p in content if isinstance(p, FileContent)), "")
            received, event = await self._events.write_returning_events(
                lambda connection: SessionStore.receive_message(connection, tenant, message, title, now, client_tools),
                _received_events,
            )
            if received.starts_turn:
                self._turn_runner.start_turn(session_id, UserMessage(message=received.message), received.session)
            elif received.is_new and self._maintenance.is_stalled(received.session):
                await self._maintenance.restart_turn(received.session)
            return SentMessage(received.message, event[0] if event else None)

    async def _decide(self, tenant: str, session_id: str, decisions: Sequence[ApprovalDecision], by: str) -> Approvals:
        decided = await self._tool_calls.decide_approvals(tenant, session_id, decisions, by)
        self._turn_runner.notify_decision(session_id)
        return decided

    async def _cancel(self, session_id: str, reason: str) -> Session:
        async with self._lock(session_id):
            return await self._stop_turn(session_id, reason)

    async def _stop_turn(self, session_id: str, reason: str) -> Session:
        async with self._turn_runner.stop_turn(session_id):
            session = await self._session_store.get(session_id)
            if session.state is SessionState.IDLE:
                return session
            await self._tool_calls.withdraw_approvals(session_id, reason)
            await self._tool_calls.abandon_calls(session_id, session.turn, reason)
            return await self._turn_runner.end_turn(
                session, TurnEnded(turn=session.turn, state="cancelled", reason=reason)
            )

    async def _continue_turn(self, session_id: str, by: str | None) -> Session:
        async with self._lock(session_id):
            session = await self._session_store.get(session_id)
            if self._maintenance.is_stalled(session):
                await self._maintenance.restart_turn(session)
                return session
            now = datetime.now(UTC)
            # Stored, so that a restarted engine finds the input of its turn.
            note = SessionMessage(
                id=new_id("msg"),
                session=session_id,
                turn=session.turn,
                role="note",
                content=(TextContent(text=CONTINUE_NOTE),),
                by=by,
                at=now,
            )
            created = await self._events.write_with_events(
                lambda connection: SessionStore.start_turn_with_note(connection, note, now),
                lambda created: session_log_entries(
                    created.session,
                    MessageReceived(message=created.message),
                    SessionStateChanged(state=created.session.state),
                    TurnStarted(turn=created.session.turn, cause="continue"),
                ),
            )
            self._turn_runner.start_turn(session_id, ContinueTurn())
            return created.session

    async def _delete(self, session_id: str) -> None:
        async with self._lock(session_id):
            session = await self._stop_turn(session_id, "the session was deleted")
            for cleanup in (
                self._toolbox.delete_sandboxes(session),
                self._release_engine(session),
                self._session_model.revoke_key(session_id),
            ):
                try:
                    await cleanup
                except PaddockError as error:
                    log.warning("session cleanup incomplete", session=session_id, reason=error.message)
            await self._files.remove_files(session_id)
            await self._events.write_with_events(
                lambda connection: SessionStore.delete_session(connection, session_id),
                lambda removed: [] if removed is None else session_log_entries(removed, SessionDeleted()),
                erased_stream=session_stream_name(session_id),
            )

    async def _release_engine(self, session: Session) -> None:
        engine = await self._turn_runner.get_engine(session.engine)
        await engine.release(session)

    def _lock(self, session_id: str) -> asyncio.Lock:
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        return lock

    async def _run_to_completion(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to completion, even if the caller is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)


def _received_events(received: ReceivedMessage) -> Sequence[NewEvent]:
    if not received.is_new:
        return []
    session = received.session
    events: list[SessionEvent] = [MessageReceived(message=received.message, waits=not received.starts_turn)]
    if received.sets_title:
        events.append(SessionChanged(title=session.title))
    if received.starts_turn:
        events += [SessionStateChanged(state=session.state), TurnStarted(turn=session.turn, cause="message")]
    return session_log_entries(session, *events)


def _derive_message_id(session_id: str, request_key: str) -> str:
    return f"msg-{hashlib.sha256(f'{session_id}/{request_key}'.encode(errors='surrogatepass')).hexdigest()[:32]}"

"""A server with the real API and scripted sessions: tests define the events of each turn."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import uvicorn
from websockets.sync.client import ClientConnection, connect

from paddock.agents.session_files import SessionFiles
from paddock.agents.sessions.session_requests import CreateSessionRequest, MessageRequest, UpdateSessionRequest
from paddock.agents.sessions.session_service import SentMessage, SessionService
from paddock.api.application import create_api_app
from paddock.api.http.uvicorn_protocols import LimitedHttpProtocol, LimitedWebSocketProtocol
from paddock.api.services import ApiServices
from paddock.app.server import PaddockServer, build_server
from paddock.auth.logins import BrowserLogins
from paddock.config.schema import Config
from paddock.errors import Conflict, InvalidInput, NotFound, SessionNotFound
from paddock.model.session_events import (
    ApprovalDecided,
    ApprovalRequired,
    MessageReceived,
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
    Session,
    SessionMessage,
    SessionState,
    TextContent,
    tool_call_digest,
)
from paddock.sandbox.images import ImageBuildJobs
from paddock.store.chat_sessions.session_store import MessageHit, SessionStore
from paddock.store.database import Store
from paddock.store.event_store import NewEvent
from paddock.store.login_store import LoginStore
from paddock.store.model_exchanges.usage_series import UsageSeriesStore
from paddock.store.object_counts import ObjectCounts

T = TypeVar("T")
TIMEOUT = 20.0
TurnScript = Callable[[Session, int], Sequence[SessionEvent]]
"""Returns the events of a turn, including the last one."""


def finish_turn(session: Session, turn: int) -> Sequence[SessionEvent]:
    return [TurnEnded(turn=turn, state="done")]


class ScriptedSessions:
    """Stores sessions in the real tables and emits events to the real log. No agent runs."""

    def __init__(self, paddock: PaddockServer, files: SessionFiles) -> None:
        self._store: Store = paddock.store
        self._events = paddock.events
        self._files = files
        self._session_store = SessionStore(paddock.store)
        self._approvals: dict[str, Approval] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.turn_script: TurnScript = finish_turn

    async def create(self, tenant: str, new: CreateSessionRequest, by: str, request_key: str | None = None) -> Session:
        if new.agent not in (None, "langgraph"):
            raise InvalidInput(f"there is no agent {new.agent!r}; there is langgraph")
        now = datetime.now(UTC)
        requested = {name: value for name, value in new.model_dump().items() if value is not None}
        session = Session.model_validate(
            {
                **{"agent": "langgraph", "engine": "langgraph", "model": "script", "kinds": ("code",)},
                **{"id": f"ses-{secrets.token_hex(8)}", "tenant": tenant, "created_by": by},
                **{"created_at": now, "changed_at": now, **requested},
            }
        )
        stored, is_new = await self._store.write(
            lambda connection: SessionStore.insert_session(connection, session, request_key)
        )
        if is_new:
            await self.emit(
                stored, SessionCreated(title=stored.title, agent=stored.agent, model=stored.model, kinds=stored.kinds)
            )
        return stored

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> Sequence[Session]:
        return await self._session_store.list(tenant, limit=limit, before=before, query=query)

    async def get(self, tenant: str, session_id: str) -> Session:
        return await self._session_store.get(session_id, tenant)

    async def update(self, tenant: str, session_id: str, patch: UpdateSessionRequest, by: str) -> Session:
        await self.get(tenant, session_id)
        changes = patch.model_dump(exclude_unset=True)
        now = datetime.now(UTC)
        return await self._store.write(
            lambda connection: SessionStore.update_session(connection, session_id, changes, now)
        )

    async def fork(self, tenant: str, session_id: str, *, message: str | None, title: str | None, by: str) -> Session:
        await self.get(tenant, session_id)
        if message is not None and await self._session_store.find_message(session_id, message) is None:
            raise NotFound(f"There is no message {message}.")
        return await self.create(tenant, CreateSessionRequest(title=title), by)

    async def delete(self, tenant: str, session_id: str) -> None:
        session = await self.get(tenant, session_id)
        await self._store.write(lambda connection: SessionStore.delete_session(connection, session_id))
        await self.emit(session, SessionDeleted())

    async def list_messages(
        self, tenant: str, session_id: str, after: int = 0, limit: int = 100
    ) -> Sequence[SessionMessage]:
        await self.get(tenant, session_id)
        return await self._session_store.list_messages(session_id, after=after, limit=limit)

    async def search_messages(
        self, tenant: str, text: str, *, session: str | None = None, limit: int = 20
    ) -> Sequence[MessageHit]:
        return await self._session_store.search_messages(tenant, text, session=session, limit=limit)

    async def send_message(
        self,
        tenant: str,
        session_id: str,
        written: MessageRequest,
        by: str,
        request_key: str | None = None,
        client_tools: Sequence[ClientTool] | None = None,
    ) -> SentMessage:
        session = await self.get(tenant, session_id)
        message_id = (
            f"msg-{hashlib.sha256(request_key.encode()).hexdigest()[:16] if request_key else secrets.token_hex(8)}"
        )
        if (existing := await self._session_store.find_message(session_id, message_id)) is not None:
            return SentMessage(existing, None)
        busy = session.state is not SessionState.IDLE
        turn = session.turn if busy else session.turn + 1
        document = written.model_dump()
        texts = [document["text"]] if document["text"] else [part["text"] for part in document["content"]]
        now = datetime.now(UTC)
        content = tuple(TextContent(text=text) for text in texts)
        message = SessionMessage(
            id=message_id, session=session_id, turn=turn, role="user", content=content, by=by, at=now
        )

        def write_message(connection: Any) -> SessionMessage:
            if not busy:
                SessionStore.update_session(connection, session_id, {"turn": turn, "state": SessionState.RUNNING}, now)
            return SessionStore.store_message(connection, message)

        def events_of(stored: SessionMessage) -> Sequence[NewEvent]:
            events: list[SessionEvent] = [MessageReceived(message=stored, waits=busy)]
            events += [] if busy else [TurnStarted(turn=turn, cause="message")]
            return [NewEvent(f"session/{session_id}", each.event, each.data(), tenant) for each in events]

        stored, events = await self._events.write_returning_events(write_message, events_of)
        if not busy:
            self.start_turn(session, turn)
        return SentMessage(stored, events[0])

    async def decide_approvals(
        self, tenant: str, session_id: str, decisions: Sequence[ApprovalDecision], by: str
    ) -> Sequence[Approval]:
        session = await self.get(tenant, session_id)
        decided = []
        for decision in decisions:
            approval = self._approvals.get(decision.approval)
            if approval is None or approval.session != session_id:
                raise NotFound(f"There is no approval {decision.approval}.")
            if approval.digest != decision.digest:
                raise Conflict("that is not what is asked; look at it again")
            if approval.state is not ApprovalState.PENDING:
                raise Conflict("that was decided already")
            state = {"approve": "approved", "edit": "edited", "reject": "rejected", "answer": "answered"}
            decided.append(approval.model_copy(update={"state": ApprovalState(state[decision.action])}))
        for each in decided:
            self._approvals[each.id] = each
            await self.emit(
                session, ApprovalDecided(approval_id=each.id, call_id=each.call_id, state=each.state, by=by)
            )
        if not await self.list_approvals(tenant, session=session_id, state=ApprovalState.PENDING):
            await self._set_state(session_id, SessionState.RUNNING)
            await self.emit(session, TurnStarted(turn=session.turn, cause="decisions"))
            self.start_turn(session, session.turn)
        return decided

    async def usable_client_tools(self, session: Session, tools: Sequence[ClientTool]) -> Sequence[ClientTool]:
        return tools

    async def replace_client_tools(self, tenant: str, session_id: str, tools: Sequence[ClientTool]) -> None:
        pass

    async def cancel_turn(self, tenant: str, session_id: str, by: str) -> Session:
        session = await self.get(tenant, session_id)
        if session.state is not SessionState.IDLE:
            await self.emit(session, TurnEnded(turn=session.turn, state="cancelled"))
        return await self._set_state(session_id, SessionState.IDLE)

    async def continue_turn(self, tenant: str, session_id: str, by: str) -> Session:
        session = await self.get(tenant, session_id)
        if session.state is not SessionState.IDLE:
            raise Conflict("it is at work")
        session = await self._set_state(session_id, SessionState.RUNNING)
        await self.emit(session, TurnStarted(turn=session.turn, cause="continue"))
        self.start_turn(session, session.turn)
        return session

    async def list_approvals(
        self,
        tenant: str,
        *,
        session: str | None = None,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[Approval]:
        approvals = [
            each
            for each in reversed(self._approvals.values())
            if each.tenant == tenant and session in (None, each.session) and state in (None, each.state)
        ]
        ids = [each.id for each in approvals]
        approvals = approvals[ids.index(before) + 1 :] if before else approvals
        return approvals[:limit]

    async def find_attachment(self, tenant: str, session_id: str, sha: str) -> tuple[Path, FileContent]:
        await self.get(tenant, session_id)
        mime = await self._files.image_type(session_id, sha) or "text/html"
        return self._files.file_path(session_id, sha), FileContent(file=sha, name="a page.html", mime=mime)

    async def export_bundle(self, tenant: str, session_id: str) -> AsyncIterator[bytes]:
        yield (await self.get(tenant, session_id)).model_dump_json().encode()

    async def import_bundle(self, tenant: str, chunks: AsyncIterator[bytes], by: str) -> Session:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
        if size < 10:
            raise InvalidInput("that is no bundle")
        return await self.create(tenant, CreateSessionRequest(title=f"{size} bytes"), by)

    async def emit(self, session: Session, *events: SessionEvent) -> None:
        for each in events:
            await self._events.append(f"session/{session.id}", each.event, each.data(), tenant=session.tenant)

    def require_approval(self, session: Session, turn: int, call_id: str, **more: Any) -> ApprovalRequired:
        """Return the event of an approval that waits for a person."""
        arguments = {"command": "rm -r /"}
        values = {
            **{"id": f"apr-{secrets.token_hex(8)}", "session": session.id, "tenant": session.tenant, "turn": turn},
            **{"call_id": call_id, "name": "code_run", "arguments": arguments},
            **{"digest": tool_call_digest("code_run", arguments), "created_at": datetime.now(UTC), **more},
        }
        approval = Approval.model_validate(values)
        self._approvals[approval.id] = approval
        return ApprovalRequired(approval=approval)

    def start_turn(self, session: Session, turn: int) -> None:
        task = asyncio.create_task(self._run_turn(session, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_turn(self, session: Session, turn: int) -> None:
        for event in self.turn_script(session, turn):
            if isinstance(event, SessionStateChanged):
                await self._set_state(session.id, event.state)
            if isinstance(event, TurnEnded):
                await self._set_state(
                    session.id, SessionState.WAITING if event.state == "waiting" else SessionState.IDLE
                )
            try:
                await self.emit(await self._session_store.get(session.id), event)
            except SessionNotFound:
                return

    async def _set_state(self, session_id: str, state: SessionState) -> Session:
        now = datetime.now(UTC)
        return await self._store.write(
            lambda connection: SessionStore.update_session(connection, session_id, {"state": state}, now)
        )


class ScriptedChatServer:
    """A server in this process with helpers for tests."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, paddock: PaddockServer, sessions: ScriptedSessions, files: SessionFiles
    ) -> None:
        self._loop = loop
        self.paddock = paddock
        self.sessions = sessions
        self.files = files
        self.url = ""
        self.key = ""

    def run_in_server_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's own event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT)

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT, trust_env=False)

    def connect(self, session: str, *, key: str | None = None, waiting: int = 16, **more: Any) -> ClientConnection:
        query = "&".join(f"{name}={value}" for name, value in more.items())
        return connect(
            f"{self.url.replace('http', 'ws', 1)}/v1/sessions/{session}/ws?{query}",
            additional_headers={"Authorization": f"Bearer {key or self.key}"},
            open_timeout=TIMEOUT,
            close_timeout=1,
            proxy=None,
            max_size=None,
            max_queue=waiting,
        )

    def create_session(self, **body: Any) -> str:
        with self.client() as client:
            return str(client.post("/v1/sessions", json=body).json()["id"])


@contextmanager
def run_scripted_chat_server(
    directory: Path, settings: Mapping[str, Any] | None = None
) -> Iterator[ScriptedChatServer]:
    """Run a server with scripted sessions."""
    document = {"data": str(directory / "data"), "sandboxes": {"default_image": "host", "min_free_disk": 0}}
    config = Config.model_validate({**document, **(settings or {})})
    ready: list[ScriptedChatServer | BaseException] = []
    started = threading.Event()
    stopping: list[Callable[[], object]] = []

    async def serve() -> None:
        async with build_server(config) as paddock:
            files = SessionFiles(config.data / "sessions", config.chat.file_size)
            stand_in = ScriptedSessions(paddock, files)
            app = create_api_app(
                ApiServices(
                    config=config,
                    fleet=paddock.fleet,
                    keys=paddock.keys,
                    counts=ObjectCounts(paddock.store),
                    series=UsageSeriesStore(paddock.store),
                    mcp_edge=paddock.services.mcp_edge,
                    mcp_services=paddock.mcp,
                    ready=paddock.store.check,
                    logins=BrowserLogins(paddock.keys, LoginStore(paddock.store)),
                    images=paddock.images,
                    builds=ImageBuildJobs(paddock.images),
                    events=paddock.events,
                    gateway=paddock.gateway,
                    runs=paddock.runs,
                    live=paddock.live,
                    sessions=cast(SessionService, stand_in),
                    networks=paddock.services.networks,
                    connections=paddock.services.connections,
                    vaults=paddock.services.vaults,
                    previews=paddock.services.previews,
                    preview_links=paddock.services.preview_links,
                )
            )
            options = uvicorn.Config(
                app,
                http=LimitedHttpProtocol,
                ws=LimitedWebSocketProtocol,
                ws_max_size=16 * 2**20,
                ws_per_message_deflate=False,
                port=0,
                lifespan="off",
                log_config=None,
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(options)
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            chat = ScriptedChatServer(asyncio.get_running_loop(), paddock, stand_in, files)
            chat.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            await paddock.keys.ensure_local_key(paddock.local_key_path)
            chat.key = paddock.local_key_path.read_text().strip()

            def stop() -> None:
                paddock.events.close()
                server.should_exit = True

            loop = asyncio.get_running_loop()
            stopping.append(lambda: loop.call_soon_threadsafe(stop))
            ready.append(chat)
            started.set()
            await serving

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            ready.append(error)
            started.set()
            raise

    thread = threading.Thread(target=work, name="chatting", daemon=True)
    thread.start()
    assert started.wait(60)
    chat = ready[0]
    assert isinstance(chat, ScriptedChatServer), chat
    try:
        yield chat
    finally:
        stopping[0]()
        thread.join(30)
        assert not thread.is_alive()


def data_lines(response: httpx.Response) -> Iterator[str]:
    """Yield the `data:` lines of server-sent events."""
    rest = b""
    for piece in response.iter_bytes():
        # The line iterator of httpx also splits at U+2028 and the like.
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.removeprefix(b"data: ").decode() for line in lines if line.startswith(b"data: "))


def event_documents(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in data_lines(answer))

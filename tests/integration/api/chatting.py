"""The real API over a stand-in for the sessions behind it, whose turns tell what a test has written down for them."""

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

from paddock.agents.files import Files
from paddock.agents.requests import NewSession, SessionPatch, Written
from paddock.agents.sessions import Sent, Sessions
from paddock.api.application import make_app
from paddock.api.connections import Connection, WebSocketConnection
from paddock.api.services import Services
from paddock.app import Paddock, build
from paddock.auth.logins import Logins
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
    ApprovalState,
    ClientTool,
    Decision,
    FileContent,
    Message,
    Session,
    SessionState,
    TextContent,
    digest,
)
from paddock.sandbox.images import BuildJobs
from paddock.store.counts import Counts
from paddock.store.database import Store
from paddock.store.events import Happening
from paddock.store.logins import LoginStore
from paddock.store.series import SeriesStore
from paddock.store.sessions import Hit, SessionStore

T = TypeVar("T")
PATIENCE = 20.0
Play = Callable[[Session, int], Sequence[SessionEvent]]
"""What a turn tells, its last event included."""


def just_done(session: Session, turn: int) -> Sequence[SessionEvent]:
    return [TurnEnded(turn=turn, state="done")]


class StandIn:
    """Keeps sessions in the real tables and tells of them in the real log. No agent works in them."""

    def __init__(self, paddock: Paddock, files: Files) -> None:
        self._store: Store = paddock.store
        self._events = paddock.events
        self._files = files
        self._book = SessionStore(paddock.store)
        self._approvals: dict[str, Approval] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.play: Play = just_done

    async def create(self, tenant: str, new: NewSession, by: str, request_key: str | None = None) -> Session:
        if new.agent not in (None, "langgraph"):
            raise InvalidInput(f"there is no agent {new.agent!r}; there is langgraph")
        now = datetime.now(UTC)
        given = {name: value for name, value in new.model_dump().items() if value is not None}
        made = Session.model_validate(
            {
                **{"agent": "langgraph", "engine": "langgraph", "model": "script", "kinds": ("code",)},
                **{"id": f"ses-{secrets.token_hex(8)}", "tenant": tenant, "created_by": by},
                **{"created_at": now, "changed_at": now, **given},
            }
        )
        kept, new_one = await self._store.write(lambda connection: SessionStore.begin(connection, made, request_key))
        if new_one:
            await self.tell(
                kept, SessionCreated(title=kept.title, agent=kept.agent, model=kept.model, kinds=kept.kinds)
            )
        return kept

    async def list(
        self, tenant: str, *, limit: int = 50, before: str | None = None, query: str | None = None
    ) -> Sequence[Session]:
        return await self._book.list(tenant, limit=limit, before=before, query=query)

    async def get(self, tenant: str, session_id: str) -> Session:
        return await self._book.get(session_id, tenant)

    async def change(self, tenant: str, session_id: str, patch: SessionPatch, by: str) -> Session:
        await self.get(tenant, session_id)
        changes = patch.model_dump(exclude_unset=True)
        now = datetime.now(UTC)
        return await self._store.write(lambda connection: SessionStore.alter(connection, session_id, changes, now))

    async def fork(self, tenant: str, session_id: str, *, message: str | None, title: str | None, by: str) -> Session:
        await self.get(tenant, session_id)
        if message is not None and await self._book.message(session_id, message) is None:
            raise NotFound(f"There is no message {message}.")
        return await self.create(tenant, NewSession(title=title), by)

    async def delete(self, tenant: str, session_id: str) -> None:
        session = await self.get(tenant, session_id)
        await self._store.write(lambda connection: SessionStore.remove(connection, session_id))
        await self.tell(session, SessionDeleted())

    async def messages(self, tenant: str, session_id: str, after: int = 0, limit: int = 100) -> Sequence[Message]:
        await self.get(tenant, session_id)
        return await self._book.messages(session_id, after=after, limit=limit)

    async def search(self, tenant: str, text: str, *, session: str | None = None, limit: int = 20) -> Sequence[Hit]:
        return await self._book.search(tenant, text, session=session, limit=limit)

    async def send(
        self,
        tenant: str,
        session_id: str,
        written: Written,
        by: str,
        request_key: str | None = None,
        client_tools: Sequence[ClientTool] | None = None,
    ) -> Sent:
        session = await self.get(tenant, session_id)
        known = f"msg-{hashlib.sha256(request_key.encode()).hexdigest()[:16] if request_key else secrets.token_hex(8)}"
        if (earlier := await self._book.message(session_id, known)) is not None:
            return Sent(earlier, None)
        busy = session.state is not SessionState.IDLE
        turn = session.turn if busy else session.turn + 1
        document = written.model_dump()
        texts = [document["text"]] if document["text"] else [part["text"] for part in document["content"]]
        now = datetime.now(UTC)
        content = tuple(TextContent(text=text) for text in texts)
        message = Message(id=known, session=session_id, turn=turn, role="user", content=content, by=by, at=now)

        def work(connection: Any) -> Message:
            if not busy:
                SessionStore.alter(connection, session_id, {"turn": turn, "state": SessionState.RUNNING}, now)
            return SessionStore.keep(connection, message)

        def telling(kept: Message) -> Sequence[Happening]:
            told: list[SessionEvent] = [MessageReceived(message=kept, waits=busy)]
            told += [] if busy else [TurnStarted(turn=turn, cause="message")]
            return [Happening(f"session/{session_id}", each.event, each.data(), tenant) for each in told]

        kept, told = await self._events.told(work, telling)
        if not busy:
            self.start(session, turn)
        return Sent(kept, told[0])

    async def decide(self, tenant: str, session_id: str, decisions: Sequence[Decision], by: str) -> Sequence[Approval]:
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
            await self.tell(
                session, ApprovalDecided(approval_id=each.id, call_id=each.call_id, state=each.state, by=by)
            )
        if not await self.approvals(tenant, session=session_id, state=ApprovalState.PENDING):
            await self._state(session_id, SessionState.RUNNING)
            await self.tell(session, TurnStarted(turn=session.turn, cause="decisions"))
            self.start(session, session.turn)
        return decided

    async def usable_client_tools(self, session: Session, tools: Sequence[ClientTool]) -> Sequence[ClientTool]:
        return tools

    async def use_client_tools(self, tenant: str, session_id: str, tools: Sequence[ClientTool]) -> None:
        pass

    async def cancel(self, tenant: str, session_id: str, by: str) -> Session:
        session = await self.get(tenant, session_id)
        if session.state is not SessionState.IDLE:
            await self.tell(session, TurnEnded(turn=session.turn, state="cancelled"))
        return await self._state(session_id, SessionState.IDLE)

    async def go_on(self, tenant: str, session_id: str, by: str) -> Session:
        session = await self.get(tenant, session_id)
        if session.state is not SessionState.IDLE:
            raise Conflict("it is at work")
        session = await self._state(session_id, SessionState.RUNNING)
        await self.tell(session, TurnStarted(turn=session.turn, cause="continue"))
        self.start(session, session.turn)
        return session

    async def approvals(
        self,
        tenant: str,
        *,
        session: str | None = None,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[Approval]:
        found = [
            each
            for each in reversed(self._approvals.values())
            if each.tenant == tenant and session in (None, each.session) and state in (None, each.state)
        ]
        places = [each.id for each in found]
        found = found[places.index(before) + 1 :] if before else found
        return found[:limit]

    async def attachment(self, tenant: str, session_id: str, sha: str) -> tuple[Path, FileContent]:
        await self.get(tenant, session_id)
        mime = await self._files.mime(session_id, sha) or "text/html"
        return self._files.path(session_id, sha), FileContent(file=sha, name="a page.html", mime=mime)

    async def export(self, tenant: str, session_id: str) -> AsyncIterator[bytes]:
        yield (await self.get(tenant, session_id)).model_dump_json().encode()

    async def import_bundle(self, tenant: str, chunks: AsyncIterator[bytes], by: str) -> Session:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
        if size < 10:
            raise InvalidInput("that is no bundle")
        return await self.create(tenant, NewSession(title=f"{size} bytes"), by)

    async def tell(self, session: Session, *events: SessionEvent) -> None:
        for each in events:
            await self._events.append(f"session/{session.id}", each.event, each.data(), tenant=session.tenant)

    def ask(self, session: Session, turn: int, call_id: str, **more: Any) -> ApprovalRequired:
        """Something that waits for a person."""
        arguments = {"command": "rm -r /"}
        values = {
            **{"id": f"apr-{secrets.token_hex(8)}", "session": session.id, "tenant": session.tenant, "turn": turn},
            **{"call_id": call_id, "name": "code_run", "arguments": arguments},
            **{"digest": digest("code_run", arguments), "created_at": datetime.now(UTC), **more},
        }
        approval = Approval.model_validate(values)
        self._approvals[approval.id] = approval
        return ApprovalRequired(approval=approval)

    def start(self, session: Session, turn: int) -> None:
        task = asyncio.create_task(self._run(session, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, session: Session, turn: int) -> None:
        for event in self.play(session, turn):
            if isinstance(event, SessionStateChanged):
                await self._state(session.id, event.state)
            if isinstance(event, TurnEnded):
                await self._state(session.id, SessionState.WAITING if event.state == "waiting" else SessionState.IDLE)
            try:
                await self.tell(await self._book.get(session.id), event)
            except SessionNotFound:
                return

    async def _state(self, session_id: str, state: SessionState) -> Session:
        now = datetime.now(UTC)
        return await self._store.write(
            lambda connection: SessionStore.alter(connection, session_id, {"state": state}, now)
        )


class Chat:
    """A server in this process, and what tests need of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, paddock: Paddock, sessions: StandIn, files: Files) -> None:
        self._loop = loop
        self.paddock = paddock
        self.sessions = sessions
        self.files = files
        self.url = ""
        self.key = ""

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """In the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)

    def socket(self, session: str, *, key: str | None = None, waiting: int = 16, **more: Any) -> ClientConnection:
        query = "&".join(f"{name}={value}" for name, value in more.items())
        return connect(
            f"{self.url.replace('http', 'ws', 1)}/v1/sessions/{session}/ws?{query}",
            additional_headers={"Authorization": f"Bearer {key or self.key}"},
            open_timeout=PATIENCE,
            close_timeout=1,
            proxy=None,
            max_size=None,
            max_queue=waiting,
        )

    def created(self, **body: Any) -> str:
        with self.client() as client:
            return str(client.post("/v1/sessions", json=body).json()["id"])


@contextmanager
def chatting(directory: Path, settings: Mapping[str, Any] | None = None) -> Iterator[Chat]:
    """A server whose sessions are a stand-in."""
    document = {"data": str(directory / "data"), "sandboxes": {"default_image": "host", "min_free_disk": 0}}
    config = Config.model_validate({**document, **(settings or {})})
    ready: list[Chat | BaseException] = []
    started = threading.Event()
    stopping: list[Callable[[], object]] = []

    async def serve() -> None:
        async with build(config) as paddock:
            files = Files(config.data / "sessions", config.chat.file_size)
            stand_in = StandIn(paddock, files)
            app = make_app(
                Services(
                    config=config,
                    fleet=paddock.fleet,
                    keys=paddock.keys,
                    counts=Counts(paddock.store),
                    series=SeriesStore(paddock.store),
                    ready=paddock.store.check,
                    logins=Logins(paddock.keys, LoginStore(paddock.store)),
                    images=paddock.images,
                    builds=BuildJobs(paddock.images),
                    events=paddock.events,
                    gateway=paddock.gateway,
                    runs=paddock.runs,
                    live=paddock.live,
                    sessions=cast(Sessions, stand_in),
                )
            )
            options = uvicorn.Config(
                app,
                http=Connection,
                ws=WebSocketConnection,
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
            chat = Chat(asyncio.get_running_loop(), paddock, stand_in, files)
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
    assert isinstance(chat, Chat), chat
    try:
        yield chat
    finally:
        stopping[0]()
        thread.join(30)
        assert not thread.is_alive()


def data_lines(answer: httpx.Response) -> Iterator[str]:
    """What stands behind `data:` in server-sent events."""
    rest = b""
    for piece in answer.iter_bytes():
        # httpx's own lines also end where only text ends a line, such as at U+2028.
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.removeprefix(b"data: ").decode() for line in lines if line.startswith(b"data: "))


def documents(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in data_lines(answer))

"""AG-UI: a session as a front end speaks to it that knows no Paddock. https://ag-ui.com"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

import structlog
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paddock.agents.requests import NewSession, Written
from paddock.api.access import SessionWriter
from paddock.api.agui_events import Run, Said
from paddock.api.errors import documented
from paddock.api.following import HEARTBEAT, STILL_HERE, STREAM_HEADERS
from paddock.api.json_bodies import LongJson
from paddock.api.services import Services
from paddock.api.session_messages import MOST_DECISIONS, DecisionBody, MessageBody, SessionBody, chosen, made
from paddock.api.session_stream import Stream, over
from paddock.errors import InvalidInput, PaddockError, SessionNotFound
from paddock.model.events import Event, EventType
from paddock.model.keys import Principal
from paddock.model.sessions import Approval, ApprovalState, Decision, Session, SessionState

log = structlog.get_logger()
SILENCE = 2.0
"""Seconds without anything new after which a run that waits for a person is over, though its turn is not."""
_FILES = ("image", "audio", "video", "document")
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events of AG-UI, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class _Input(BaseModel):
    """What may be unknown is passed over: clients of other versions send more."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class ResumeEntry(_Input):
    interrupt_id: str = Field(max_length=100)
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class InputMessage(_Input):
    id: str = Field(min_length=1, max_length=200)
    role: str
    content: Any = None


class RunAgentInput(_Input):
    thread_id: str = Field(min_length=1, max_length=150)
    """A session's id, or any other name: a session is made for it then."""
    run_id: str = Field(min_length=1, max_length=200)
    messages: list[InputMessage] = []
    """The last one counts, if it is a user's; all others the session knows."""
    resume: list[ResumeEntry] | None = Field(default=None, max_length=MOST_DECISIONS)
    forwarded_props: Any = None
    """`session` is what a new session is to be; `resume` counts as the one above."""


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Sessions"], route_class=LongJson)
    sessions = services.sessions
    stopping: set[asyncio.Task[None]] = set()

    @router.post("/agui", responses={**documented(404, 409, 429), **_ANSWER}, response_model=None)
    async def run_agent(body: RunAgentInput, principal: SessionWriter) -> Response:
        """Send the last message, or decide what waits, and be told what happens until the turn ends, as AG-UI has it.

        The same message sent again is not said again; what happened since is told again. A client that hangs up
        before the run ends stops the turn.
        """
        entries = _entries(body)
        said = None if entries else _last(body)
        written = None if said is None else _written(said)
        by = principal.name
        session = await _session(services, principal, body, by)
        stream = Stream(services.events, principal.tenant, session.id)
        after: Event | int
        if said is None or written is None:
            after, turn = await stream.end(), session.turn
            pending = await sessions.approvals(principal.tenant, session=session.id, state=ApprovalState.PENDING)
            decisions = [_decision(entry, pending) for entry in entries]
            await sessions.decide(principal.tenant, session.id, decisions, by)
            run, follows = Run(body.thread_id, body.run_id, session), True
        else:
            sent = await sessions.send(
                principal.tenant, session.id, written, by, request_key=f"agui:{session.id}:{said.id}"
            )
            after, turn = await stream.arrival(sent), sent.message.turn
            run, follows = Run(body.thread_id, body.run_id, session, sent.message.id), not await stream.paused(after)
        telling = _Telling(services, principal, session, stream, run, stopping)
        return StreamingResponse(telling.frames(after, turn, follows), 200, STREAM_HEADERS, "text/event-stream")

    return router


class _Telling:
    """A run, from where it begins to its end."""

    def __init__(
        self,
        services: Services,
        principal: Principal,
        session: Session,
        stream: Stream,
        run: Run,
        stopping: set[asyncio.Task[None]],
    ) -> None:
        """`stopping` holds the tasks that stop turns of clients that have hung up."""
        self._stopping = stopping
        self._sessions = services.sessions
        self._principal = principal
        self._session = session
        self._stream = stream
        self._run = run

    async def frames(self, after: Event | int, turn: int, follows: bool) -> AsyncIterator[bytes]:
        """The run's frames. Closed before their end, because the client has hung up, they stop the turn."""
        is_whole = False
        try:
            async with aclosing(self._frames(after, turn, follows)) as frames:
                async for frame in frames:
                    yield frame
            is_whole = True
        finally:
            if not is_whole:
                # The client's request is being cancelled, so the turn is stopped in a task of its own.
                task = asyncio.create_task(self._stop(turn), name=f"stop turn of {self._session.id}")
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)

    async def _stop(self, turn: int) -> None:
        tenant = self._principal.tenant
        try:
            session = await self._sessions.get(tenant, self._session.id)
            if session.turn == turn and session.state is SessionState.RUNNING:
                await self._sessions.cancel(tenant, session.id, self._principal.name)
        except PaddockError as error:
            log.warning("could not stop turn of aborted run", session=self._session.id, error=error.message)

    async def _frames(self, after: Event | int, turn: int, follows: bool) -> AsyncGenerator[bytes, None]:
        yield _frames(self._run.begin())
        if not follows and (pending := await self._pending()):
            yield _frames(self._run.interrupted(pending))
            return
        silent = 0.0
        async with aclosing(self._stream.follow(after, SILENCE)) as following:  # type: ignore[type-var]
            async for event in following:
                if event is None:
                    silent += SILENCE
                    if silent % HEARTBEAT < SILENCE:
                        yield STILL_HERE
                    if pending := await self._stuck():
                        yield _frames(self._run.interrupted(pending))
                        return
                    continue
                yield _frames(self._run.tell(event))
                if over(event, turn) and (end := await self._end(event)):
                    yield end
                    return
        yield _frames(self._run.failed("the server stops; the turn goes on when it is back", "UNAVAILABLE"))

    async def _end(self, event: Event) -> bytes | None:
        if event.type is not EventType.TURN_ENDED:
            return _frames(self._run.failed("the session was deleted", SessionNotFound.code))
        match event.data["state"]:
            case "waiting":
                # If all was decided meanwhile, the turn goes on.
                pending = await self._pending()
                return _frames(self._run.interrupted(pending)) if pending else None
            case "cancelled":
                return _frames(self._run.cancelled())
            case "failed":
                return _frames(self._run.failed(event.data.get("reason")))
            case _:
                return _frames(self._run.done())

    async def _stuck(self) -> Sequence[Approval]:
        """What waits for a person while nothing else happens."""
        session = await self._sessions.get(self._principal.tenant, self._session.id)
        return await self._pending() if session.state is SessionState.WAITING else ()

    async def _pending(self) -> Sequence[Approval]:
        found = await self._sessions.approvals(
            self._principal.tenant, session=self._session.id, state=ApprovalState.PENDING
        )
        return sorted(found, key=lambda approval: approval.created_at)


async def _session(services: Services, principal: Principal, body: RunAgentInput, by: str) -> Session:
    """That of the thread."""
    try:
        return await services.sessions.get(principal.tenant, body.thread_id)
    except SessionNotFound:
        wanted = made(SessionBody, _forwarded(body).get("session") or {})
        return await services.sessions.create(
            principal.tenant, made(NewSession, chosen(wanted)), by, request_key=f"agui:{body.thread_id}"
        )


def _forwarded(body: RunAgentInput) -> Mapping[str, Any]:
    return body.forwarded_props if isinstance(body.forwarded_props, dict) else {}


def _entries(body: RunAgentInput) -> Sequence[ResumeEntry]:
    if body.resume:
        return body.resume
    given = _forwarded(body).get("resume") or []
    if not isinstance(given, list) or len(given) > MOST_DECISIONS:
        raise InvalidInput(f"forwardedProps.resume: a list of at most {MOST_DECISIONS} answers, as resume has them")
    return [made(ResumeEntry, each) for each in given]


def _decision(entry: ResumeEntry, pending: Sequence[Approval]) -> Decision:
    """An answer to an interrupt: an object with an `action`, or what people mean by yes, no or some words."""
    approval = next((each for each in pending if each.id == entry.interrupt_id), None)
    if approval is None:
        raise InvalidInput(f"resume: nothing waits under the id {entry.interrupt_id}")
    known = {"approval": approval.id, "digest": approval.digest}
    payload = entry.payload
    if entry.status == "cancelled":
        return made(DecisionBody, {**known, "action": "reject"}).decision()
    if isinstance(payload, str):
        if approval.type == "question":
            return made(DecisionBody, {**known, "action": "answer", "answer": payload}).decision()
        payload = {"action": payload}
    if isinstance(payload, dict) and "action" not in payload and isinstance(payload.get("approved"), bool):
        payload = {**{key: value for key, value in payload.items() if key != "approved"}, "action": payload["approved"]}
    if isinstance(payload, bool):
        payload = {"action": payload}
    if not isinstance(payload, dict):
        raise InvalidInput('resume: a payload is such as {"action": "approve"}')
    if isinstance(payload.get("action"), bool):
        payload = {**payload, "action": "approve" if payload["action"] else "reject"}
    return made(DecisionBody, {**known, **payload, "approval": approval.id}).decision()


def _last(body: RunAgentInput) -> InputMessage:
    if not body.messages or body.messages[-1].role != "user":
        raise InvalidInput("messages: the last one must be a user's; or decide what waits with resume")
    return body.messages[-1]


def _written(message: InputMessage) -> Written:
    if isinstance(message.content, str):
        return made(Written, made(MessageBody, {"text": message.content}).document())
    if not isinstance(message.content, list):
        raise InvalidInput("messages: the content of a user's message is text, or a list of parts")
    return made(Written, made(MessageBody, {"content": [_part(part) for part in message.content]}).document())


def _part(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise InvalidInput("messages: a part of a message is an object")
    if part.get("type") == "text":
        return {"type": "text", "text": part.get("text")}
    source = part.get("source")
    if part.get("type") not in _FILES or not isinstance(source, dict) or source.get("type") != "data":
        raise InvalidInput("messages: parts are text, or files whose source is data; addresses are not fetched")
    return {"type": "file", "mime": source.get("mimeType"), "data": source.get("value")}


def _frames(events: Iterator[Said]) -> bytes:
    # Half a character, which some model wrote, can only be named.
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()

"""AG-UI: a session as a front end speaks to it that knows no Paddock. https://ag-ui.com"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Any

import structlog
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from paddock.agents.client_tools import ToolNameTaken, is_client_call
from paddock.agents.requests import NewSession
from paddock.agents.sessions import Sessions
from paddock.api.access import SessionWriter
from paddock.api.agui_events import Run, Said
from paddock.api.agui_input import (
    RunAgentInput,
    client_tools,
    context_of,
    forwarded,
    known_results,
    last_message,
    refusals,
    result_decisions,
    resume_decision,
    resume_entries,
    written_message,
)
from paddock.api.errors import documented
from paddock.api.following import HEARTBEAT, STILL_HERE, STREAM_HEADERS
from paddock.api.json_bodies import LongJson
from paddock.api.services import Services
from paddock.api.session_messages import SessionBody, chosen, made
from paddock.api.session_stream import Stream, over
from paddock.errors import Conflict, InvalidInput, PaddockError, SessionNotFound
from paddock.model.events import Event, EventType
from paddock.model.keys import Principal
from paddock.model.sessions import Approval, ApprovalState, Message, Session, SessionState

log = structlog.get_logger()
SILENCE = 2.0
"""Seconds without anything new after which a run that waits for a person is over, though its turn is not."""
MOST_MESSAGES = 100_000
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events of AG-UI, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Sessions"], route_class=LongJson)
    sessions = services.sessions
    stopping: set[asyncio.Task[None]] = set()

    @router.post("/agui", responses={**documented(404, 409, 429), **_ANSWER}, response_model=None)
    async def run_agent(body: RunAgentInput, principal: SessionWriter) -> Response:
        """Send the last message, or decide what waits, and be told what happens until the turn ends, as AG-UI has it.

        The same message sent again is not said again; what happened since is told again. `tools` are called by the
        agent and run by the client: the run ends, and the next one brings the results as tool messages. A client
        that hangs up before the run ends stops the turn.
        """
        entries, said = resume_entries(body), last_message(body)
        context, wanted = context_of(body), client_tools(body)
        written = None if said is None else written_message(said, context)
        by, tenant = principal.name, principal.tenant
        session = await _session(services, principal, body, by)
        stream = Stream(services.events, tenant, session.id)
        run = Run(body.thread_id, body.run_id, session, known_results=known_results(body))
        try:
            tools = await sessions.usable_client_tools(session, wanted)
        except ToolNameTaken as error:
            refused = _frames(chain(run.begin(), run.failed(error.message, error.code)))
            return Response(refused, 200, STREAM_HEADERS, "text/event-stream")
        run.ignored_tools = tuple(tool.name for tool in wanted) if wanted and not tools else ()
        after: Event | int
        if said is None or written is None:
            after, turn = await stream.end(), session.turn
            pending = await sessions.approvals(tenant, session=session.id, state=ApprovalState.PENDING)
            results = result_decisions(body, pending, await _news(sessions, tenant, session, context))
            if not entries and not results:
                raise InvalidInput(
                    "messages: no call waits for the results of the tool messages; send a user's message"
                )
            decisions = [*(resume_decision(entry, pending) for entry in entries), *results]
            await sessions.use_client_tools(tenant, session.id, tools)
            await sessions.decide(tenant, session.id, decisions, by)
            follows = True
        else:
            sent = await sessions.send(
                tenant, session.id, written, by, request_key=f"agui:{session.id}:{said.id}", client_tools=tools
            )
            run.own = sent.message.id
            after, turn = await stream.arrival(sent), sent.message.turn
            answered = after.data.get("waits") and await _answer_calls(sessions, tenant, body, sent.message, by)
            follows = bool(answered) or not await stream.paused(after)
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
        if not follows and (pending := await self._interrupts()):
            yield _frames(self._run.interrupted(pending))
            return
        silent = 0.0
        async with aclosing(self._stream.follow(after, SILENCE)) as following:  # type: ignore[type-var]
            async for event in following:
                if event is None:
                    silent += SILENCE
                    if silent % HEARTBEAT < SILENCE:
                        yield STILL_HERE
                    if end := await self._stuck():
                        yield end
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
                return await self._waiting()
            case "cancelled":
                return _frames(self._run.cancelled())
            case "failed":
                return _frames(self._run.failed(event.data.get("reason")))
            case _:
                return _frames(self._run.done())

    async def _waiting(self) -> bytes | None:
        """The end of a run whose turn waits; `None` if all was decided meanwhile, so that the turn goes on."""
        if not await self._pending():
            return None
        # Client calls are no interrupts: the client runs them once the run is over.
        pending = await self._interrupts()
        return _frames(self._run.interrupted(pending) if pending else self._run.done())

    async def _stuck(self) -> bytes | None:
        """The end of a run whose agent waits within its turn, while nothing else happens."""
        session = await self._sessions.get(self._principal.tenant, self._session.id)
        return await self._waiting() if session.state is SessionState.WAITING else None

    async def _interrupts(self) -> Sequence[Approval]:
        return [approval for approval in await self._pending() if not is_client_call(approval)]

    async def _pending(self) -> Sequence[Approval]:
        found = await self._sessions.approvals(
            self._principal.tenant, session=self._session.id, state=ApprovalState.PENDING
        )
        return sorted(found, key=lambda approval: approval.created_at)


async def _answer_calls(sessions: Sessions, tenant: str, body: RunAgentInput, message: Message, by: str) -> bool:
    """Answer client calls older than the message: with their results, or else as not run."""
    found = await sessions.approvals(tenant, session=message.session, state=ApprovalState.PENDING)
    waiting = [each for each in found if is_client_call(each) and each.created_at <= message.at]
    results = result_decisions(body, waiting, "")
    answered = {each.approval for each in results}
    decisions = [*results, *refusals([each for each in waiting if each.id not in answered])]
    if not decisions:
        return False
    try:
        await sessions.decide(tenant, message.session, decisions, by)
    except Conflict as error:
        # Another client has just answered, so the turn goes on all the same.
        log.info("client calls were answered already", session=message.session, reason=error.message)
    return True


async def _news(sessions: Sessions, tenant: str, session: Session, context: str) -> str:
    """The context of a run, unless this turn has it already."""
    if not context:
        return ""
    messages = await sessions.messages(tenant, session.id, limit=MOST_MESSAGES)
    told = [part.text for each in messages if each.turn == session.turn for part in each.content if part.type == "text"]
    return "" if any(context in text for text in told) else context


async def _session(services: Services, principal: Principal, body: RunAgentInput, by: str) -> Session:
    """That of the thread."""
    try:
        return await services.sessions.get(principal.tenant, body.thread_id)
    except SessionNotFound:
        wanted = made(SessionBody, forwarded(body).get("session") or {})
        return await services.sessions.create(
            principal.tenant, made(NewSession, chosen(wanted)), by, request_key=f"agui:{body.thread_id}"
        )


def _frames(events: Iterator[Said]) -> bytes:
    # Half a character, which some model wrote, can only be named.
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()

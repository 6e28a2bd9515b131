"""AG-UI: run a session from front ends that know the AG-UI protocol only. https://ag-ui.com"""

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

from paddock.agents.approvals.approval_decisions import is_client_call
from paddock.agents.sessions.session_requests import CreateSessionRequest
from paddock.agents.sessions.session_service import SessionService
from paddock.agents.tools.client_tools import ToolNameTaken
from paddock.api.http.authorization import SessionWriter
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.long_json_route import LongJsonRoute
from paddock.api.http.server_sent_events import HEARTBEAT_COMMENT, HEARTBEAT_SECONDS, STREAM_HEADERS
from paddock.api.services import ApiServices
from paddock.api.sessions.agui_events import AguiEvent, AguiEventTranslator
from paddock.api.sessions.agui_input import (
    RunAgentInput,
    build_message_request,
    client_call_rejections,
    find_sent_message,
    format_context_entries,
    list_result_call_ids,
    parse_client_tools,
    parse_forwarded_properties,
    parse_resume_entries,
    resume_entry_to_decision,
    tool_result_decisions,
)
from paddock.api.sessions.session_bodies import StartSessionRequest, dump_set_fields, validate_document
from paddock.api.sessions.session_event_stream import SessionEventStream, is_turn_end
from paddock.errors import Conflict, InvalidInput, PaddockError, SessionNotFound
from paddock.model.events import EventRecord, EventType
from paddock.model.keys import Principal
from paddock.model.sessions import Approval, ApprovalState, Session, SessionMessage, SessionState

log = structlog.get_logger()
QUIET_SECONDS = 2.0
"""Seconds without events after which a run ends if its turn waits for a person."""
MAX_MESSAGES = 100_000
_RUN_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events of AG-UI, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(
        prefix="/v1", tags=["Sessions"], route_class=LongJsonRoute.with_workers(services.gateway.workers)
    )
    sessions = services.sessions
    stopping: set[asyncio.Task[None]] = set()

    @router.post("/agui", responses={**openapi_errors(404, 409, 429), **_RUN_RESPONSES}, response_model=None)
    async def run_agent(body: RunAgentInput, principal: SessionWriter) -> Response:
        """Send the last message, or decide pending approvals, and stream AG-UI events until the turn ends.

        A message sent again is not repeated; its events are streamed again. `tools` are called by the agent and run by
        the client: the run ends, and the next run brings the results as tool messages. A client that disconnects
        before the run ends cancels the turn.
        """
        entries, message = parse_resume_entries(body), find_sent_message(body)
        context, client_tools = format_context_entries(body), parse_client_tools(body)
        message_request = None if message is None else build_message_request(message, context)
        by, tenant = principal.name, principal.tenant
        session = await _get_or_create_session(services, principal, body, by)
        stream = SessionEventStream(services.events, tenant, session.id)
        translator = AguiEventTranslator(body.thread_id, body.run_id, session, known_results=list_result_call_ids(body))
        try:
            tools = await sessions.usable_client_tools(session, client_tools)
        except ToolNameTaken as error:
            refusal = _encode_frames(chain(translator.start(), translator.finish_failed(error.message, error.code)))
            return Response(refusal, 200, STREAM_HEADERS, "text/event-stream")
        translator.ignored_tools = tuple(tool.name for tool in client_tools) if client_tools and not tools else ()
        after: EventRecord | int
        if message is None or message_request is None:
            after, turn = await stream.last_number(), session.turn
            pending = await sessions.list_approvals(tenant, session=session.id, state=ApprovalState.PENDING)
            results = tool_result_decisions(body, pending, await _new_context(sessions, tenant, session, context))
            if not entries and not results:
                raise InvalidInput(
                    "messages: no call waits for the results of the tool messages; send a user's message"
                )
            decisions = [*(resume_entry_to_decision(entry, pending) for entry in entries), *results]
            await sessions.replace_client_tools(tenant, session.id, tools)
            await sessions.decide_approvals(tenant, session.id, decisions, by)
            is_followed = True
        else:
            sent = await sessions.send_message(
                tenant,
                session.id,
                message_request,
                by,
                request_key=f"agui:{session.id}:{message.id}",
                client_tools=tools,
            )
            translator.own_message = sent.message.id
            after, turn = await stream.find_arrival(sent), sent.message.turn
            answered = after.data.get("waits") and await _answer_client_calls(sessions, tenant, body, sent.message, by)
            is_followed = bool(answered) or not await stream.was_waiting(after)
        run_stream = _RunStream(services, principal, session, stream, translator, stopping)
        return StreamingResponse(run_stream.frames(after, turn, is_followed), 200, STREAM_HEADERS, "text/event-stream")

    return router


class _RunStream:
    """Streams the events of one run, from start to end."""

    def __init__(
        self,
        services: ApiServices,
        principal: Principal,
        session: Session,
        stream: SessionEventStream,
        translator: AguiEventTranslator,
        stopping: set[asyncio.Task[None]],
    ) -> None:
        """`stopping` holds the tasks that cancel turns of disconnected clients."""
        self._stopping = stopping
        self._sessions = services.sessions
        self._principal = principal
        self._session = session
        self._stream = stream
        self._translator = translator

    async def frames(self, after: EventRecord | int, turn: int, is_followed: bool) -> AsyncIterator[bytes]:
        """Yield the run's frames; cancel the turn if the client disconnects."""
        is_complete = False
        try:
            async with aclosing(self._run_frames(after, turn, is_followed)) as frames:
                async for frame in frames:
                    yield frame
            is_complete = True
        finally:
            if not is_complete:
                # This request is being cancelled, so the turn is cancelled in a separate task.
                task = asyncio.create_task(self._cancel_turn(turn), name=f"stop turn of {self._session.id}")
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)

    async def _cancel_turn(self, turn: int) -> None:
        tenant = self._principal.tenant
        try:
            session = await self._sessions.get(tenant, self._session.id)
            if session.turn == turn and session.state is SessionState.RUNNING:
                await self._sessions.cancel_turn(tenant, session.id, self._principal.name)
        except PaddockError as error:
            log.warning("could not cancel turn of aborted run", session=self._session.id, error=error.message)

    async def _run_frames(self, after: EventRecord | int, turn: int, is_followed: bool) -> AsyncGenerator[bytes, None]:
        yield _encode_frames(self._translator.start())
        if not is_followed and (pending := await self._pending_interrupts()):
            yield _encode_frames(self._translator.finish_interrupted(pending))
            return
        silent_seconds = 0.0
        async with aclosing(self._stream.follow(after, QUIET_SECONDS)) as session_events:  # type: ignore[type-var]
            async for event in session_events:
                if event is None:
                    silent_seconds += QUIET_SECONDS
                    if silent_seconds % HEARTBEAT_SECONDS < QUIET_SECONDS:
                        yield HEARTBEAT_COMMENT
                    if end := await self._end_if_waiting():
                        yield end
                        return
                    continue
                yield _encode_frames(self._translator.translate(event))
                if is_turn_end(event, turn) and (end := await self._end_of_run(event)):
                    yield end
                    return
        yield _encode_frames(
            self._translator.finish_failed(
                "the server is stopping; the turn continues after its restart", "UNAVAILABLE"
            )
        )

    async def _end_of_run(self, event: EventRecord) -> bytes | None:
        if event.type is not EventType.TURN_ENDED:
            return _encode_frames(self._translator.finish_failed("the session was deleted", SessionNotFound.code))
        match event.data["state"]:
            case "waiting":
                return await self._end_if_pending()
            case "cancelled":
                return _encode_frames(self._translator.finish_cancelled())
            case "failed":
                return _encode_frames(self._translator.finish_failed(event.data.get("reason")))
            case _:
                return _encode_frames(self._translator.finish())

    async def _end_if_pending(self) -> bytes | None:
        """Return the end of the run, or `None` if all approvals were decided meanwhile."""
        if not await self._pending_approvals():
            return None
        # Client calls are not interrupts: the client runs them after the run has ended.
        pending = await self._pending_interrupts()
        return _encode_frames(self._translator.finish_interrupted(pending) if pending else self._translator.finish())

    async def _end_if_waiting(self) -> bytes | None:
        """Return the end of the run if its agent waits within the turn."""
        session = await self._sessions.get(self._principal.tenant, self._session.id)
        return await self._end_if_pending() if session.state is SessionState.WAITING else None

    async def _pending_interrupts(self) -> Sequence[Approval]:
        return [approval for approval in await self._pending_approvals() if not is_client_call(approval)]

    async def _pending_approvals(self) -> Sequence[Approval]:
        approvals = await self._sessions.list_approvals(
            self._principal.tenant, session=self._session.id, state=ApprovalState.PENDING
        )
        return sorted(approvals, key=lambda approval: approval.created_at)


async def _answer_client_calls(
    sessions: SessionService, tenant: str, body: RunAgentInput, message: SessionMessage, by: str
) -> bool:
    """Answer client calls older than the message, with their results or as rejected."""
    pending = await sessions.list_approvals(tenant, session=message.session, state=ApprovalState.PENDING)
    client_calls = [each for each in pending if is_client_call(each) and each.created_at <= message.at]
    results = tool_result_decisions(body, client_calls, "")
    answered_ids = {each.approval for each in results}
    decisions = [*results, *client_call_rejections([each for each in client_calls if each.id not in answered_ids])]
    if not decisions:
        return False
    try:
        await sessions.decide_approvals(tenant, message.session, decisions, by)
    except Conflict as error:
        # Another client has just answered, so the turn continues anyway.
        log.info("client calls were answered already", session=message.session, reason=error.message)
    return True


async def _new_context(sessions: SessionService, tenant: str, session: Session, context: str) -> str:
    """Return the run's context, or an empty string if this turn has it already."""
    if not context:
        return ""
    messages = await sessions.list_messages(tenant, session.id, limit=MAX_MESSAGES)
    texts = [
        part.text for each in messages if each.turn == session.turn for part in each.content if part.type == "text"
    ]
    return "" if any(context in text for text in texts) else context


async def _get_or_create_session(services: ApiServices, principal: Principal, body: RunAgentInput, by: str) -> Session:
    """Return the thread's session; create it if it does not exist."""
    try:
        return await services.sessions.get(principal.tenant, body.thread_id)
    except SessionNotFound:
        session_request = validate_document(StartSessionRequest, parse_forwarded_properties(body).get("session") or {})
        return await services.sessions.create(
            principal.tenant,
            validate_document(CreateSessionRequest, dump_set_fields(session_request)),
            by,
            request_key=f"agui:{body.thread_id}",
        )


def _encode_frames(events: Iterator[AguiEvent]) -> bytes:
    # ASCII escapes, because models may write lone surrogates.
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()

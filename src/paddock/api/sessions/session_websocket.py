"""A chat session over one WebSocket: events to the client, messages and decisions from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.agents.json_schema_validation import MAX_DEPTH, is_nested_at_most
from paddock.agents.sessions.session_requests import MessageRequest
from paddock.api.http.authorization import parse_query_parameters, require_principal
from paddock.api.http.body_limits import SERVER_MAX_BODY_LIMIT
from paddock.api.http.body_models import RequestBody
from paddock.api.http.error_responses import describe_validation_errors, sanitize_message
from paddock.api.http.event_log_responses import EVENT_ID_NAME, SESSION_STREAM_PREFIX, event_to_json
from paddock.api.http.server_sent_events import parse_resume_position
from paddock.api.http.uvicorn_protocols import TAKEOVER_EXTENSION
from paddock.api.http.websockets import receive_websocket_frames, run_websocket_until_one_ends
from paddock.api.services import ApiServices
from paddock.api.sessions.session_bodies import ResumeSessionRequest, SendMessageRequest, validate_document
from paddock.errors import InvalidInput, PaddockError, TooLarge
from paddock.llm.offload.json_decoding import decode_json_in_worker
from paddock.llm.offload.worker_tasks import InvalidJson
from paddock.model.json_value_counter import has_more_values
from paddock.model.keys import Principal, Scope

NORMAL, GOING_AWAY, TOO_SLOW = 1000, 1001, 1013
SEND_TIMEOUT = 30.0
"""Seconds in which a client has to receive a frame."""
CLOSE_TIMEOUT = 5.0
INVALID_FRAME = "INVALID_FRAME"
_LONG_FRAME = 2**20
"""Bytes of a frame above which a worker process parses it."""

FrameId = Annotated[str | None, Field(min_length=1, max_length=200)]


class MessageFrame(SendMessageRequest):
    type: Literal["message"]
    id: FrameId = None
    """Identifies the frame in its acknowledgement; a message sent again with the same id is not repeated."""


class ResumeFrame(ResumeSessionRequest):
    type: Literal["resume"]
    id: FrameId = None


class ControlFrame(RequestBody):
    type: Literal["cancel", "continue", "ping"]
    id: FrameId = None


Frame = MessageFrame | ResumeFrame | ControlFrame
_FRAMES: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="type")])


def create_websocket_routes(services: ApiServices) -> list[WebSocketRoute]:
    async def session(websocket: WebSocket) -> None:
        """Follow a session; keys with the write scope may also send messages and decisions."""
        principal = require_principal(websocket.scope, Scope.SESSIONS_READ)
        found_session = await services.sessions.get(principal.tenant, websocket.path_params["session_id"])
        after = parse_resume_position(parse_query_parameters(websocket.scope).get("after"), 0, EVENT_ID_NAME, "after")
        await websocket.accept()
        connection = SessionWebSocketConnection(services, principal, found_session.id, websocket)
        await run_websocket_until_one_ends(
            services.loop, websocket, connection.send_events(after), connection.receive_frames()
        )

    return [WebSocketRoute("/v1/sessions/{session_id}/ws", session)]


class SessionWebSocketConnection:
    """One client's connection to a session."""

    def __init__(self, services: ApiServices, principal: Principal, session_id: str, websocket: WebSocket) -> None:
        self._services = services
        self._principal = principal
        self._session = session_id
        self._websocket = websocket

    async def send_events(self, after: int) -> None:
        """Send each event after a position. Events are read from the log, so slow clients need no buffer."""
        following = self._services.events.follow(
            f"{SESSION_STREAM_PREFIX}{self._session}", after, tenant=self._principal.tenant
        )
        async with aclosing(following) as events:  # type: ignore[type-var]
            async for event in events:
                if not await self._send_text(event_to_json(event)):
                    return await self.close(TOO_SLOW, f"too slow; reconnect with after={event.number - 1}")
                if event.type.ends_stream:
                    return await self.close(NORMAL, "the session was deleted")
        return await self.close(GOING_AWAY, "the server is stopping; reconnect")

    async def receive_frames(self) -> None:
        async for message in receive_websocket_frames(self._websocket):
            response = await self._answer_frame(message.get("text"))
            if not await self._send_text(json.dumps(response)):
                return await self.close(TOO_SLOW, "too slow")
        return None

    async def _answer_frame(self, text: str | None) -> Mapping[str, Any]:
        frame_id: str | None = None
        try:
            document = await self._parse_json(text or "")
            frame_id = document["id"] if isinstance(document.get("id"), str) else None
            frame = _parse_frame(document)
            return {**await self._execute(frame), **({"id": frame_id} if frame_id else {})}
        except PaddockError as error:
            problem = {"type": "error", "code": error.code, "message": sanitize_message(error.message)}
            return {**problem, **({"id": frame_id} if frame_id else {})}

    async def _execute(self, frame: Frame) -> dict[str, Any]:
        sessions, tenant = self._services.sessions, self._principal.tenant
        if isinstance(frame, ControlFrame) and frame.type == "ping":
            return {"type": "pong"}
        self._principal.require(Scope.SESSIONS_WRITE)
        by = self._principal.name
        if isinstance(frame, MessageFrame):
            message_request = validate_document(MessageRequest, frame.to_document())
            message = (
                await sessions.send_message(tenant, self._session, message_request, by, request_key=frame.id)
            ).message
            return {"type": "ack", "message": message.id, "turn": message.turn}
        if isinstance(frame, ResumeFrame):
            decided = await sessions.decide_approvals(tenant, self._session, frame.to_decisions(), by)
            return {"type": "ack", "approvals": [{"id": each.id, "state": each.state} for each in decided]}
        change = sessions.cancel_turn if frame.type == "cancel" else sessions.continue_turn
        return {"type": "ack", "state": (await change(tenant, self._session, by)).state}

    async def _parse_json(self, text: str) -> dict[str, Any]:
        """Parse a frame; a worker process parses long ones, which would block other clients."""
        data = text.encode(errors="replace")
        try:
            if len(data) > _LONG_FRAME:
                document = await decode_json_in_worker(
                    self._services.gateway.workers, data, SERVER_MAX_BODY_LIMIT.values
                )
            elif has_more_values(data, SERVER_MAX_BODY_LIMIT.values):
                raise _InvalidFrame(f"the frame has more than {SERVER_MAX_BODY_LIMIT.values} values in it")
            else:
                document = json.loads(text)
        except TooLarge as error:
            raise _InvalidFrame(error.message) from None
        except (ValueError, RecursionError, InvalidJson):
            raise _InvalidFrame('frames are JSON in text, such as {"type": "message", "text": "…"}') from None
        return _check_document(document)

    async def _send_text(self, text: str) -> bool:
        """Send a frame; return whether the client received it in time."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                await self._websocket.send_text(text)
        except TimeoutError:
            return False
        return True

    async def close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._websocket.close(code, reason)
        except TimeoutError:
            # The client reads nothing, and unsent data would keep the connection open forever.
            if (takeover := self._websocket.scope.get("extensions", {}).get(TAKEOVER_EXTENSION)) is not None:
                takeover.abort()


class _InvalidFrame(InvalidInput):
    code = INVALID_FRAME


def _check_document(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise _InvalidFrame("a frame is a JSON object")
    if not is_nested_at_most(document, 2 * MAX_DEPTH):
        raise _InvalidFrame("the frame is nested too deeply")
    return document


def _parse_frame(document: Mapping[str, Any]) -> Frame:
    try:
        return _FRAMES.validate_python(document)
    except ValidationError as error:
        problems = [{**problem, "loc": ("frame", *problem["loc"][1:])} for problem in error.errors()]
        raise _InvalidFrame(describe_validation_errors(problems)) from None

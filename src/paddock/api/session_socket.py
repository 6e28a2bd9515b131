"""A chat session over one WebSocket: everything that happens in it, and what a person says and decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from paddock.agents.requests import Written
from paddock.agents.schemas import DEEPEST, shallow
from paddock.api.access import principal_of, query_of
from paddock.api.connections import TAKE
from paddock.api.errors import clean, explain
from paddock.api.events import SESSIONS, WHAT, told
from paddock.api.following import place
from paddock.api.services import Services
from paddock.api.session_messages import MessageBody, ResumeBody, made
from paddock.api.sockets import converse
from paddock.api.wire import Asked
from paddock.errors import InvalidInput, PaddockError
from paddock.model.keys import Principal, Scope

NORMAL, GOING_AWAY, TOO_SLOW = 1000, 1001, 1013
PATIENCE = 30.0
"""Seconds in which a client has to take what it is sent."""
GOODBYE = 5.0
INVALID = "INVALID_FRAME"

FrameId = Annotated[str | None, Field(min_length=1, max_length=200)]


class SayFrame(MessageBody):
    type: Literal["message"]
    id: FrameId = None
    """Names the frame in its answer; a message that was said under the same id is not said again."""


class DecideFrame(ResumeBody):
    type: Literal["resume"]
    id: FrameId = None


class PlainFrame(Asked):
    type: Literal["cancel", "continue", "ping"]
    id: FrameId = None


Frame = SayFrame | DecideFrame | PlainFrame
_FRAMES: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="type")])


def sockets(services: Services) -> list[WebSocketRoute]:
    async def session(websocket: WebSocket) -> None:
        """Watch a session and, with a key that may, speak in it."""
        principal = principal_of(websocket.scope, Scope.SESSIONS_READ)
        found = await services.sessions.get(principal.tenant, websocket.path_params["session_id"])
        after = place(query_of(websocket.scope).get("after"), 0, WHAT, "after")
        await websocket.accept()
        talk = Talk(services, principal, found.id, websocket)
        await converse(talk.show(after), talk.heed())

    return [WebSocketRoute("/v1/sessions/{session_id}/ws", session)]


class Talk:
    """One client at one session."""

    def __init__(self, services: Services, principal: Principal, session_id: str, websocket: WebSocket) -> None:
        self._services = services
        self._principal = principal
        self._session = session_id
        self._websocket = websocket

    async def show(self, after: int) -> None:
        """Every event after a place, as it happens. Nothing is kept for those who are slow: they read from the log."""
        following = self._services.events.follow(f"{SESSIONS}{self._session}", after, tenant=self._principal.tenant)
        async with aclosing(following) as events:  # type: ignore[type-var]
            async for event in events:
                if not await self._sent(told(event)):
                    return await self.close(TOO_SLOW, f"too slow; come back with after={event.number - 1}")
                if event.type.last:
                    return await self.close(NORMAL, "the session was deleted")
        return await self.close(GOING_AWAY, "the server stops; come back")

    async def heed(self) -> None:
        while (message := await self._websocket.receive())["type"] == "websocket.receive":
            answer = await self._answer(message.get("text"))
            if not await self._sent(json.dumps(answer)):
                return await self.close(TOO_SLOW, "too slow")
        return None

    async def _answer(self, text: str | None) -> Mapping[str, Any]:
        known: str | None = None
        try:
            document = _parsed(text)
            known = document["id"] if isinstance(document.get("id"), str) else None
            frame = _frame(document)
            return {**await self._done(frame), **({"id": known} if known else {})}
        except PaddockError as error:
            problem = {"type": "error", "code": error.code, "message": clean(error.message)}
            return {**problem, **({"id": known} if known else {})}

    async def _done(self, frame: Frame) -> dict[str, Any]:
        sessions, tenant = self._services.sessions, self._principal.tenant
        if isinstance(frame, PlainFrame) and frame.type == "ping":
            return {"type": "pong"}
        self._principal.require(Scope.SESSIONS_WRITE)
        by = self._principal.name
        if isinstance(frame, SayFrame):
            written = made(Written, frame.document())
            message = (await sessions.send(tenant, self._session, written, by, request_key=frame.id)).message
            return {"type": "ack", "message": message.id, "turn": message.turn}
        if isinstance(frame, DecideFrame):
            decided = await sessions.decide(tenant, self._session, frame.all(), by)
            return {"type": "ack", "approvals": [{"id": each.id, "state": each.state} for each in decided]}
        change = sessions.cancel if frame.type == "cancel" else sessions.go_on
        return {"type": "ack", "state": (await change(tenant, self._session, by)).state}

    async def _sent(self, text: str) -> bool:
        """Whether the client has taken it in time."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._websocket.send_text(text)
        except TimeoutError:
            return False
        return True

    async def close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(GOODBYE):
                await self._websocket.close(code, reason)
        except TimeoutError:
            # It takes nothing at all, and what waits to be sent would hold the connection for ever.
            if (take := self._websocket.scope.get("extensions", {}).get(TAKE)) is not None:
                take.abort()


class _InvalidFrame(InvalidInput):
    code = INVALID


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text or "")
    except (ValueError, RecursionError):
        raise _InvalidFrame('frames are JSON in text, such as {"type": "message", "text": "…"}') from None
    if not isinstance(document, dict):
        raise _InvalidFrame("a frame is a JSON object")
    if not shallow(document, 2 * DEEPEST):
        raise _InvalidFrame("the frame is nested too deeply")
    return document


def _frame(document: Mapping[str, Any]) -> Frame:
    try:
        return _FRAMES.validate_python(document)
    except ValidationError as error:
        problems = [{**problem, "loc": ("frame", *problem["loc"][1:])} for problem in error.errors()]
        raise _InvalidFrame(explain(problems)) from None

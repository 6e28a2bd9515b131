"""The server's implementation of the turn that an engine works on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paddock.agents.approvals.tool_call_service import ToolCallService
from paddock.agents.engines.base import CallVerdict, MessageWriter, ReplyPiece, ToolSpec
from paddock.agents.model.model_requests import SessionModelClient
from paddock.agents.tools.toolbox import SessionToolbox
from paddock.agents.turns.message_cache import SessionMessageCache
from paddock.agents.turns.takeover_pause import TakeoverPause
from paddock.events.event_log import EventLog
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import CallResult, QuestionChoice, Session, SessionMessage, ToolCall
from paddock.store.chat_sessions.session_log_entries import session_stream_name
from paddock.store.chat_sessions.session_store import SessionStore


@dataclass(frozen=True)
class TurnFactory:
    """Creates the turns of the server from their shared dependencies."""

    session_store: SessionStore
    events: EventLog
    tool_calls: ToolCallService
    model: SessionModelClient
    toolbox: SessionToolbox
    takeover_pause: TakeoverPause
    message_cache: SessionMessageCache

    def create_turn(self, session: Session, number: int, first_message: SessionMessage | None = None) -> LiveTurn:
        return LiveTurn(self, session, number, first_message)


class LiveTurn:
    """A turn of a session, backed by the server's records.

    A turn that starts with its `first` message, just received, has no earlier records to read.
    """

    def __init__(
        self, dependencies: TurnFactory, session: Session, number: int, first_message: SessionMessage | None = None
    ) -> None:
        self.session = session
        self.number = number
        self._dependencies = dependencies
        self._first_message = first_message
        self._may_have_replies = first_message is None
        self._specs: Mapping[str, ToolSpec] | None = None

    async def system_prompt(self) -> str:
        return await self._dependencies.toolbox.system_prompt(self.session)

    async def list_tools(self) -> Sequence[ToolSpec]:
        return tuple((await self._tools()).values())

    async def history(self) -> Sequence[SessionMessage]:
        messages = await self._dependencies.message_cache.get_messages(self.session.id)
        return [message for message in messages if message.turn < self.number]

    def ask_model(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[ReplyPiece, None]:
        is_new_turn, self._may_have_replies = not self._may_have_replies, True
        return self._dependencies.model.ask_model(
            self.session, self.number, messages, tools, by=by, is_new_turn=is_new_turn
        )

    async def call_tool(self, call: ToolCall, *, wait: bool = True) -> CallResult:
        return await self._dependencies.tool_calls.run_call(
            self.session, self.number, call, await self._tools(), wait=wait
        )

    async def authorize_call(
        self,
        call: ToolCall,
        *,
        question: str = "",
        choices: Sequence[QuestionChoice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> CallVerdict:
        return await self._dependencies.tool_calls.authorize_call(
            self.session, self.number, call, question=question, choices=choices, effect=effect, kind=kind
        )

    async def record_result(self, call: ToolCall, result: CallResult, *, kind: str | None = None) -> None:
        await self._dependencies.tool_calls.record_result(self.session, self.number, call, result, kind=kind)

    async def unread_messages(self, known: Collection[str]) -> Sequence[SessionMessage]:
        first_message, self._first_message = self._first_message, None
        if first_message is not None and not await self._dependencies.takeover_pause.pause_if_held(self.session):
            return [] if first_message.id in known else [first_message]
        current, messages = await self._dependencies.session_store.get_with_turn_messages(self.session.id, self.number)
        if current is not None and await self._dependencies.takeover_pause.pause_if_held(current):
            messages = await self._dependencies.session_store.list_messages(self.session.id, turn=self.number)
        return [message for message in messages if message.role in ("user", "note") and message.id not in known]

    def start_message(self) -> MessageWriter:
        return self._dependencies.model.start_message(self.session, self.number)

    async def emit(self, event: SessionEvent) -> None:
        await self._dependencies.events.append(
            session_stream_name(self.session.id), event.event, event.data(), tenant=self.session.tenant
        )

    async def load_state(self) -> bytes | None:
        return await self._dependencies.session_store.load_engine_state(self.session.id)

    async def save_state(self, state: bytes) -> None:
        await self._dependencies.session_store.save_engine_state(self.session.id, state, datetime.now(UTC))

    async def _tools(self) -> Mapping[str, ToolSpec]:
        if self._specs is None:
            self._specs = {spec.name: spec for spec in await self._dependencies.toolbox.list_tools(self.session)}
        return self._specs

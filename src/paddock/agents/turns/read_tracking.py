"""Turn wrapper that records which messages the engine has read, so that none is left unread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any

from paddock.agents.engines.base import CallVerdict, MessageWriter, ReplyPiece, ToolSpec, Turn, TurnInput, UserMessage
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import CallResult, QuestionChoice, SessionMessage, ToolCall


class ReadTrackingTurn:
    """Forwards to another turn and records the ids of messages that the engine reads."""

    def __init__(self, turn: Turn, turn_input: TurnInput) -> None:
        self.session = turn.session
        self.number = turn.number
        self.read_ids: set[str] = set()
        self._turn = turn
        self.mark_input_read(turn_input)

    def mark_input_read(self, turn_input: TurnInput) -> None:
        """Count the message of the turn's input as read."""
        if isinstance(turn_input, UserMessage):
            self.read_ids.add(turn_input.message.id)

    async def unread_messages(self, known: Collection[str]) -> Sequence[SessionMessage]:
        messages = await self._turn.unread_messages(known)
        self.read_ids.update(known)
        self.read_ids.update(message.id for message in messages)
        return messages

    async def system_prompt(self) -> str:
        return await self._turn.system_prompt()

    async def list_tools(self) -> Sequence[ToolSpec]:
        return await self._turn.list_tools()

    async def history(self) -> Sequence[SessionMessage]:
        return await self._turn.history()

    def ask_model(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[ReplyPiece, None]:
        return self._turn.ask_model(messages, tools, by=by)

    async def call_tool(self, call: ToolCall, *, wait: bool = True) -> CallResult:
        return await self._turn.call_tool(call, wait=wait)

    async def authorize_call(
        self,
        call: ToolCall,
        *,
        question: str = "",
        choices: Sequence[QuestionChoice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> CallVerdict:
        return await self._turn.authorize_call(call, question=question, choices=choices, effect=effect, kind=kind)

    async def record_result(self, call: ToolCall, result: CallResult, *, kind: str | None = None) -> None:
        await self._turn.record_result(call, result, kind=kind)

    def start_message(self) -> MessageWriter:
        return self._turn.start_message()

    async def emit(self, event: SessionEvent) -> None:
        await self._turn.emit(event)

    async def load_state(self) -> bytes | None:
        return await self._turn.load_state()

    async def save_state(self, state: bytes) -> None:
        await self._turn.save_state(state)

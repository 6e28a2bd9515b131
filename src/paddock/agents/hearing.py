"""A turn that remembers which messages its engine has been told of, so that none is left unread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any

from paddock.agents.engines.base import Given, Piece, Speech, ToolSpec, Turn, UserMessage, Verdict
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import Call, CallResult, Choice, Message


class HeardTurn:
    """Passes everything on, and listens to what is read."""

    def __init__(self, turn: Turn, given: Given) -> None:
        self.session = turn.session
        self.number = turn.number
        self.heard: set[str] = set()
        self._turn = turn
        self.give(given)

    def give(self, given: Given) -> None:
        """The engine is started with this."""
        if isinstance(given, UserMessage):
            self.heard.add(given.message.id)

    async def unread(self, known: Collection[str]) -> Sequence[Message]:
        found = await self._turn.unread(known)
        self.heard.update(known)
        self.heard.update(message.id for message in found)
        return found

    async def prompt(self) -> str:
        return await self._turn.prompt()

    async def tools(self) -> Sequence[ToolSpec]:
        return await self._turn.tools()

    async def history(self) -> Sequence[Message]:
        return await self._turn.history()

    def ask(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[Piece, None]:
        return self._turn.ask(messages, tools, by=by)

    async def call(self, call: Call, *, wait: bool = True) -> CallResult:
        return await self._turn.call(call, wait=wait)

    async def consult(
        self,
        call: Call,
        *,
        question: str = "",
        choices: Sequence[Choice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> Verdict:
        return await self._turn.consult(call, question=question, choices=choices, effect=effect, kind=kind)

    async def settle(self, call: Call, result: CallResult, *, kind: str | None = None) -> None:
        await self._turn.settle(call, result, kind=kind)

    def speaking(self) -> Speech:
        return self._turn.speaking()

    async def tell(self, event: SessionEvent) -> None:
        await self._turn.tell(event)

    async def load(self) -> bytes | None:
        return await self._turn.load()

    async def save(self, state: bytes) -> None:
        await self._turn.save(state)

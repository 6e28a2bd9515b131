"""The turn that an engine is handed, and the parts that it is made of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paddock.agents.calls import Calls
from paddock.agents.engines.base import Piece, Speech, ToolSpec, Verdict
from paddock.agents.memory import Memory
from paddock.agents.parking import Parking
from paddock.agents.toolbox import Toolbox
from paddock.agents.voice import Voice
from paddock.events.log import EventLog
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import Call, CallResult, Choice, Message, Session
from paddock.store.session_stream import stream_of
from paddock.store.sessions import SessionStore


@dataclass(frozen=True)
class Parts:
    """What every turn of the server is made of."""

    book: SessionStore
    events: EventLog
    calls: Calls
    voice: Voice
    toolbox: Toolbox
    parking: Parking
    memory: Memory

    def turn(self, session: Session, number: int, first: Message | None = None) -> LiveTurn:
        return LiveTurn(self, session, number, first)


class LiveTurn:
    """A turn of a session, on the records of the server.

    One that begins with its `first` message, just received, has no records yet that were worth reading.
    """

    def __init__(self, parts: Parts, session: Session, number: int, first: Message | None = None) -> None:
        self.session = session
        self.number = number
        self._parts = parts
        self._first = first
        self._asked = first is None
        self._specs: Mapping[str, ToolSpec] | None = None

    async def prompt(self) -> str:
        return await self._parts.toolbox.prompt(self.session)

    async def tools(self) -> Sequence[ToolSpec]:
        return tuple((await self._tools()).values())

    async def history(self) -> Sequence[Message]:
        kept = await self._parts.memory.messages(self.session.id)
        return [message for message in kept if message.turn < self.number]

    def ask(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[Piece, None]:
        fresh, self._asked = not self._asked, True
        return self._parts.voice.ask(self.session, self.number, messages, tools, by=by, fresh=fresh)

    async def call(self, call: Call, *, wait: bool = True) -> CallResult:
        return await self._parts.calls.perform(self.session, self.number, call, await self._tools(), wait=wait)

    async def consult(
        self,
        call: Call,
        *,
        question: str = "",
        choices: Sequence[Choice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> Verdict:
        return await self._parts.calls.consult(
            self.session, self.number, call, question=question, choices=choices, effect=effect, kind=kind
        )

    async def settle(self, call: Call, result: CallResult, *, kind: str | None = None) -> None:
        await self._parts.calls.settle(self.session, self.number, call, result, kind=kind)

    async def unread(self, known: Collection[str]) -> Sequence[Message]:
        first, self._first = self._first, None
        if first is not None and not await self._parts.parking.pause(self.session):
            return [] if first.id in known else [first]
        current, written = await self._parts.book.with_messages(self.session.id, self.number)
        if current is not None and await self._parts.parking.pause(current):
            written = await self._parts.book.messages(self.session.id, turn=self.number)
        return [message for message in written if message.role in ("user", "note") and message.id not in known]

    def speaking(self) -> Speech:
        return self._parts.voice.speaking(self.session, self.number)

    async def tell(self, event: SessionEvent) -> None:
        await self._parts.events.append(
            stream_of(self.session.id), event.event, event.data(), tenant=self.session.tenant
        )

    async def load(self) -> bytes | None:
        return await self._parts.book.state(self.session.id)

    async def save(self, state: bytes) -> None:
        await self._parts.book.save_state(self.session.id, state, datetime.now(UTC))

    async def _tools(self) -> Mapping[str, ToolSpec]:
        if self._specs is None:
            self._specs = {spec.name: spec for spec in await self._parts.toolbox.tools(self.session)}
        return self._specs

"""How a rehearsal records what happens in it, and how it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from paddock.agents.engines.base import Undecided
from paddock.agents.engines.rehearsed import NOW, Entry, Killed, Records, Tool, as_content
from paddock.model.session_events import (
    ApprovalRequired,
    CallReady,
    CallResulted,
    CallRunning,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    SessionEvent,
)
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Call,
    CallResult,
    CallState,
    Choice,
    Content,
    Message,
    Session,
)


class Recorder:
    """The records of one turn in one life of the server."""

    def __init__(
        self,
        session: Session,
        number: int,
        records: Records,
        tools: Sequence[Tool],
        dies_after: int | None,
        dies: Literal["before", "after"],
    ) -> None:
        self.session = session
        self.number = number
        self.records = records
        self.toolset = {each.spec.name: each for each in tools}
        self.dead = False
        self.changes = 0
        self.begun: set[str] = set()
        """Ids of the messages that were begun in this life."""
        self.running: dict[str, asyncio.Task[CallResult]] = {}
        self._dies_after = dies_after
        self._dies = dies
        self._changed = asyncio.Condition()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true of the records."""
        async with self._changed:
            await self._changed.wait_for(condition)

    def heard(self, kind: type[SessionEvent]) -> list[Any]:
        return [event for event in self.records.told if isinstance(event, kind)]

    async def change(self, work: Callable[[], object]) -> None:
        """One recorded change; the server may die at it."""
        self.alive()
        self.changes += 1
        dies = self.changes == self._dies_after
        if not (dies and self._dies == "before"):
            work()
        if dies:
            self.die()
        await self.notify()
        self.alive()

    def die(self) -> None:
        self.dead = True
        for task in self.running.values():
            if task is not asyncio.current_task():
                task.cancel()

    def alive(self) -> None:
        if self.dead:
            raise Killed

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def told(self, *events: SessionEvent) -> None:
        self.records.told.extend(events)

    def keep(
        self, role: Literal["user", "assistant", "tool", "note"], content: tuple[Content, ...], **more: Any
    ) -> Message:
        message = Message(
            **{"id": self.records.new_id("msg"), **more}, session=self.session.id, role=role, content=content,
            number=len(self.records.messages) + 1, turn=self.number, at=NOW,
        )  # fmt: skip
        self.records.messages.append(message)
        return message

    def cut_off(self) -> list[MessageEnded]:
        """The ends of messages within which an earlier server died."""
        ended = {event.message_id for event in self.heard(MessageEnded)} | self.begun
        begun = [event.message_id for event in self.heard(MessageStarted)]
        return [MessageEnded(message_id=each, text="", cut="restart") for each in begun if each not in ended]

    def end_cut(self, message_id: str, said: str, cut: str) -> None:
        if said:
            self.keep("assistant", as_content(said), id=message_id, cut=cut)
        self.told(MessageEnded(message_id=message_id, text=said, cut=cut))

    async def enter(self, call: Call) -> Entry:
        if call.id not in self.records.ledger:

            def record() -> None:
                self.records.ledger[call.id] = Entry(call, self.number, CallState.ASKED)
                self.told(CallReady(call=call, tool=call.name))

            await self.change(record)
        return self.records.ledger[call.id]

    async def decided(
        self,
        entry: Entry,
        kind: Literal["call", "question"],
        *,
        wait: bool,
        question: str = "",
        choices: Sequence[Choice] = (),
    ) -> Approval:
        call = entry.call
        if call.id not in self.records.approvals:
            approval = Approval(
                id=self.records.new_id("apr"), session=self.session.id, tenant=self.session.tenant, turn=self.number,
                call_id=call.id, type=kind, name=call.name, arguments=call.arguments, digest=call.digest,
                question=question, choices=tuple(choices), created_at=NOW,
            )  # fmt: skip

            def record() -> None:
                self.records.approvals[call.id] = approval
                self.told(ApprovalRequired(approval=approval))

            await self.change(record)
        approvals = self.records.approvals
        if not wait and approvals[call.id].state is ApprovalState.PENDING:
            raise Undecided(approvals[call.id])
        await self.until(lambda: self.dead or approvals[call.id].state is not ApprovalState.PENDING)
        self.alive()
        return approvals[call.id]

    async def begin_call(self, entry: Entry, edited: Mapping[str, Any] | None = None) -> None:
        def record() -> None:
            entry.state = CallState.RUNNING
            self.told(CallRunning(call_id=entry.call.id, arguments=edited))

        if entry.state is CallState.ASKED:
            await self.change(record)

    async def run_tool(self, entry: Entry, arguments: Mapping[str, Any]) -> CallResult:
        await self.begin_call(entry, arguments if arguments != entry.call.arguments else None)
        return await self.settled(entry, await self.perform(entry.call.name, arguments))

    async def perform(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run a tool, whoever has called it."""
        self.records.runs.append((name, arguments))
        await self.notify()
        try:
            outcome = await self.toolset[name].function(arguments)
        except Exception as error:
            return CallResult(content=as_content(f"It failed: {error}"), failed=True)
        return CallResult(content=as_content(outcome)) if isinstance(outcome, str) else outcome

    async def settled(self, entry: Entry, result: CallResult) -> CallResult:
        if entry.result is None:
            await self.change(lambda: self.finish_call(entry, result))
        return entry.result or result

    def finish_call(self, entry: Entry, result: CallResult) -> None:
        entry.state, entry.result = CallState.DONE, result
        self.keep("tool", result.content, call_id=entry.call.id)
        self.told(CallResulted(call_id=entry.call.id, result=result))


class RehearsedSpeech:
    """An answer from elsewhere than the model."""

    def __init__(self, turn: Recorder) -> None:
        self.message_id = turn.records.new_id("msg")
        self._turn = turn
        self._said = ""
        self._thought = ""
        self._ended = False

    async def __aenter__(self) -> RehearsedSpeech:
        self._turn.begun.add(self.message_id)
        begun = MessageStarted(message_id=self.message_id, turn=self._turn.number, step=0)
        await self._turn.change(lambda: self._turn.told(*self._turn.cut_off(), begun))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._ended and not self._turn.dead:
            self._turn.end_cut(self.message_id, self._said, "cancelled")

    async def text(self, piece: str) -> None:
        self._turn.alive()
        self._said += piece
        self._turn.told(MessageDelta(message_id=self.message_id, text=piece))
        await self._turn.notify()

    async def thought(self, piece: str) -> None:
        self._turn.alive()
        self._thought += piece

    async def finish(self, calls: Sequence[Call] = ()) -> Message:
        kept: list[Message] = []

        def record() -> None:
            content = as_content(self._said) if self._said else ()
            more = {"id": self.message_id, "thought": self._thought, "calls": tuple(calls)}
            kept.append(self._turn.keep("assistant", content, **more))
            self._turn.told(MessageEnded(message_id=self.message_id, text=self._said, calls=tuple(calls)))

        self._ended = True
        await self._turn.change(record)
        return kept[0]

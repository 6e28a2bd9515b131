"""Records of an in-memory turn, and simulated crashes of its server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from paddock.agents.engines.base import ApprovalNeeded
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
    CallResult,
    CallState,
    MessageContent,
    QuestionChoice,
    Session,
    SessionMessage,
    ToolCall,
)
from paddock.testing.turn_scripts import NOW, RecordedCall, ScriptedTool, ServerKilled, TurnRecords, to_content


class TurnRecorder:
    """Records one turn until the simulated server crashes."""

    def __init__(
        self,
        session: Session,
        number: int,
        records: TurnRecords,
        tools: Sequence[ScriptedTool],
        crash_after: int | None,
        crash_when: Literal["before", "after"],
    ) -> None:
        self.session = session
        self.number = number
        self.records = records
        self.tools_by_name = {tool.spec.name: tool for tool in tools}
        self.is_dead = False
        self.changes = 0
        self.message_ids: set[str] = set()
        """Ids of the messages that this server started."""
        self.running_calls: dict[str, asyncio.Task[CallResult]] = {}
        self._crash_after = crash_after
        self._crash_when = crash_when
        self._changed = asyncio.Condition()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the records holds."""
        async with self._changed:
            await self._changed.wait_for(condition)

    def events_of(self, kind: type[SessionEvent]) -> list[Any]:
        return [event for event in self.records.events if isinstance(event, kind)]

    async def record_change(self, work: Callable[[], object]) -> None:
        """Record one change; the server may crash before or after it."""
        self.check_alive()
        self.changes += 1
        crash_when = self.changes == self._crash_after
        if not (crash_when and self._crash_when == "before"):
            work()
        if crash_when:
            self.kill_server()
        await self.notify()
        self.check_alive()

    def kill_server(self) -> None:
        self.is_dead = True
        for task in self.running_calls.values():
            if task is not asyncio.current_task():
                task.cancel()

    def check_alive(self) -> None:
        if self.is_dead:
            raise ServerKilled

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def emit_events(self, *events: SessionEvent) -> None:
        self.records.events.extend(events)

    def add_message(
        self, role: Literal["user", "assistant", "tool", "note"], content: tuple[MessageContent, ...], **fields: Any
    ) -> SessionMessage:
        message = SessionMessage(
            **{"id": self.records.new_id("msg"), **fields}, session=self.session.id, role=role, content=content,
            number=len(self.records.messages) + 1, turn=self.number, at=NOW,
        )  # fmt: skip
        self.records.messages.append(message)
        return message

    def interrupted_message_ends(self) -> list[MessageEnded]:
        """Return the end events of messages that an earlier server left open."""
        ended = {event.message_id for event in self.events_of(MessageEnded)} | self.message_ids
        started = [event.message_id for event in self.events_of(MessageStarted)]
        return [MessageEnded(message_id=tool, text="", cut="restart") for tool in started if tool not in ended]

    def end_cut_message(self, message_id: str, text: str, cut: str) -> None:
        if text:
            self.add_message("assistant", to_content(text), id=message_id, cut=cut)
        self.emit_events(MessageEnded(message_id=message_id, text=text, cut=cut))

    async def enter_call(self, call: ToolCall) -> RecordedCall:
        if call.id not in self.records.ledger:

            def record() -> None:
                self.records.ledger[call.id] = RecordedCall(call, self.number, CallState.ASKED)
                self.emit_events(CallReady(call=call, tool=call.name))

            await self.record_change(record)
        return self.records.ledger[call.id]

    async def wait_for_decision(
        self,
        entry: RecordedCall,
        kind: Literal["call", "question"],
        *,
        wait: bool,
        question: str = "",
        choices: Sequence[QuestionChoice] = (),
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
                self.emit_events(ApprovalRequired(approval=approval))

            await self.record_change(record)
        approvals = self.records.approvals
        if not wait and approvals[call.id].state is ApprovalState.PENDING:
            raise ApprovalNeeded(approvals[call.id])
        await self.wait_until(lambda: self.is_dead or approvals[call.id].state is not ApprovalState.PENDING)
        self.check_alive()
        return approvals[call.id]

    async def begin_call(self, entry: RecordedCall, edited: Mapping[str, Any] | None = None) -> None:
        def record() -> None:
            entry.state = CallState.RUNNING
            self.emit_events(CallRunning(call_id=entry.call.id, arguments=edited))

        if entry.state is CallState.ASKED:
            await self.record_change(record)

    async def run_tool(self, entry: RecordedCall, arguments: Mapping[str, Any]) -> CallResult:
        await self.begin_call(entry, arguments if arguments != entry.call.arguments else None)
        return await self.settle_call(entry, await self.run_function(entry.call.name, arguments))

    async def run_function(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run the function of a tool."""
        self.records.tool_runs.append((name, arguments))
        await self.notify()
        try:
            outcome = await self.tools_by_name[name].function(arguments)
        except Exception as error:
            return CallResult(content=to_content(f"It failed: {error}"), failed=True)
        return CallResult(content=to_content(outcome)) if isinstance(outcome, str) else outcome

    async def settle_call(self, entry: RecordedCall, result: CallResult) -> CallResult:
        if entry.result is None:
            await self.record_change(lambda: self.finish_call(entry, result))
        return entry.result or result

    def finish_call(self, entry: RecordedCall, result: CallResult) -> None:
        entry.state, entry.result = CallState.DONE, result
        self.add_message("tool", result.content, call_id=entry.call.id)
        self.emit_events(CallResulted(call_id=entry.call.id, result=result))


class InMemoryMessageWriter:
    """`MessageWriter` of an in-memory turn."""

    def __init__(self, turn: TurnRecorder) -> None:
        self.message_id = turn.records.new_id("msg")
        self._turn = turn
        self._text = ""
        self._thought = ""
        self._ended = False

    async def __aenter__(self) -> InMemoryMessageWriter:
        self._turn.message_ids.add(self.message_id)
        started = MessageStarted(message_id=self.message_id, turn=self._turn.number, step=0)
        await self._turn.record_change(lambda: self._turn.emit_events(*self._turn.interrupted_message_ends(), started))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._ended and not self._turn.is_dead:
            self._turn.end_cut_message(self.message_id, self._text, "cancelled")

    async def write_text(self, piece: str) -> None:
        self._turn.check_alive()
        self._text += piece
        self._turn.emit_events(MessageDelta(message_id=self.message_id, text=piece))
        await self._turn.notify()

    async def write_thought(self, piece: str) -> None:
        self._turn.check_alive()
        self._thought += piece

    async def finish(self, calls: Sequence[ToolCall] = ()) -> SessionMessage:
        kept: list[SessionMessage] = []

        def record() -> None:
            content = to_content(self._text) if self._text else ()
            fields = {"id": self.message_id, "thought": self._thought, "calls": tuple(calls)}
            kept.append(self._turn.add_message("assistant", content, **fields))
            self._turn.emit_events(MessageEnded(message_id=self.message_id, text=self._text, calls=tuple(calls)))

        self._ended = True
        await self._turn.record_change(record)
        return kept[0]

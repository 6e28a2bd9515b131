"""An in-memory turn for tests of engines, with a scripted model and plain functions as tools.

It keeps records like a real turn, can crash at any change, and can be restarted with the records so far:

    script = [ScriptedReply(calls=[ScriptedCall("add", {"a": 1, "b": 2})]), "It is 3."]
    turn = InMemoryTurn(script, tools=[make_tool("add", add)])
    await engine.run(turn, turn.receive_message("What is 1 + 2?"))
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from paddock.agents.engines.base import (
    ApprovalsDecided,
    CallPiece,
    CallVerdict,
    ModelReply,
    ReplyPiece,
    TextPiece,
    ThoughtPiece,
    ToolSpec,
    Turn,
    TurnLimitReached,
    UserMessage,
)
from paddock.errors import Conflict
from paddock.model.session_events import (
    ApprovalDecided,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    SessionEvent,
    StepEnded,
    StepStarted,
)
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    CallResult,
    CallState,
    QuestionChoice,
    Session,
    SessionMessage,
    ToolCall,
)
from paddock.testing.turn_records import InMemoryMessageWriter, TurnRecorder
from paddock.testing.turn_scripts import (
    APPROVAL_STATES,
    NOW,
    ModelQuestion,
    Script,
    ScriptedCall,
    ScriptedContent,
    ScriptedReply,
    ScriptedTool,
    ScriptEntry,
    ServerKilled,
    TurnRecords,
    make_tool,
    matches_any,
    message_text,
    new_session,
    reply_pieces_from_message,
    to_calls,
    to_content,
    to_unrun_result,
    to_verdict,
)

__all__ = [
    "InMemoryTurn",
    "ModelQuestion",
    "ScriptedCall",
    "ScriptedReply",
    "ScriptedTool",
    "ServerKilled",
    "TurnRecords",
    "make_tool",
    "message_text",
]


class InMemoryTurn(TurnRecorder, Turn):
    """One turn in memory. `ask` and `deny` are patterns of tool names."""

    def __init__(
        self,
        script: Script = (),
        *,
        tools: Sequence[ScriptedTool] = (),
        ask: Collection[str] = (),
        deny: Collection[str] = (),
        steps: int = 100,
        session: Session | None = None,
        prompt: str = "You are an agent.",
        number: int = 1,
        records: TurnRecords | None = None,
        crash_after: int | None = None,
        crash_when: Literal["before", "after"] = "after",
    ) -> None:
        """Crash at change number `crash_after`, before or after that change is recorded."""
        super().__init__(session or new_session(), number, records or TurnRecords(), tools, crash_after, crash_when)
        self.script = script
        self.asked_about = tuple(ask)
        self.denied = tuple(deny)
        self.steps = steps
        self.instructions = prompt
        self._questions_asked = 0
        self._replies_streaming = 0

    # For tests

    def receive_message(self, content: ScriptedContent) -> UserMessage:
        """Record the message that starts the turn."""
        return UserMessage(message=self.write_message(content))

    def write_message(self, content: ScriptedContent, role: Literal["user", "note"] = "user") -> SessionMessage:
        """Record a message of a person or a note of the server."""
        return self.add_message(role, to_content(content), by="user")

    async def kill(self) -> None:
        """Crash the server now; everything running in it raises `ServerKilled`."""
        self.kill_server()
        await self.notify()

    def after_restart(self, **changes: Any) -> InMemoryTurn:
        """Return the same turn on a restarted server, with the records so far."""
        return self._copy_with({"number": self.number, **changes})

    def next_turn(self, script: Script | None = None, **changes: Any) -> InMemoryTurn:
        """Return the next turn of the session; a new script starts at its beginning."""
        if script is not None:
            self.records.replies_used = 0
            changes["script"] = script
        return self._copy_with({"number": self.number + 1, **changes})

    def forked_turn(self, script: Script) -> InMemoryTurn:
        """Return the next turn of a fork, which has only the messages of this session."""
        records = TurnRecords(messages=list(self.records.messages), id_counts=Counter(self.records.id_counts))
        session = self.session.model_copy(update={"id": new_session().id})
        return self._copy_with({"number": self.number + 1, "script": script, "records": records, "session": session})

    @property
    def pending_approvals(self) -> list[Approval]:
        found = self.records.approvals.values()
        return [approval for approval in found if approval.state is ApprovalState.PENDING]

    async def decide(
        self,
        approval: Approval,
        action: Literal["approve", "edit", "reject", "answer"] = "approve",
        *,
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> Approval:
        """Decide an approval. With action `answer`, `reason` is the answer."""
        if self.records.approvals[approval.call_id].state is not ApprovalState.PENDING:
            raise Conflict(f"{approval.id} was decided")
        decided = approval.model_copy(
            update={"state": APPROVAL_STATES[action], "edited": arguments, "reason": reason, "decided_at": NOW}
        )
        self.records.approvals[approval.call_id] = decided
        self.records.events.append(
            ApprovalDecided(approval_id=decided.id, call_id=decided.call_id, state=decided.state)
        )
        await self.notify()
        return decided

    def decisions(self, *approvals: Approval) -> ApprovalsDecided:
        return ApprovalsDecided(approvals=approvals)

    def abandon_calls(self) -> None:
        """Clean up a cancelled turn like a server: give open calls a result, withdraw approvals."""
        for approval in self.pending_approvals:
            self.records.approvals[approval.call_id] = approval.model_copy(update={"state": ApprovalState.WITHDRAWN})
        for recorded_call in self.records.ledger.values():
            if recorded_call.turn == self.number and recorded_call.result is None:
                self.finish_call(recorded_call, CallResult(content=to_content("The call was cancelled."), refused=True))

    def runs_of(self, name: str) -> list[Mapping[str, Any]]:
        """Return the arguments of all runs of a tool."""
        return [arguments for ran, arguments in self.records.tool_runs if ran == name]

    # For script players, see `paddock.testing.engines`

    def next_reply(self, messages: Sequence[Mapping[str, Any]]) -> ScriptedReply:
        """Return the next scripted reply to a question not asked through `ask_model`; scripted errors are raised."""
        question = self._make_question(messages, (), None)
        self.records.questions.append(question)
        self.records.replies_used += 1
        scripted = self._script_entry(question, self.records.replies_used - 1)
        if isinstance(scripted, Exception):
            raise scripted
        return ScriptedReply(scripted) if isinstance(scripted, str) else scripted

    def argument_problem(self, call: ToolCall) -> str | None:
        """Return why a call cannot run, or None."""
        if call.malformed is not None:
            return f"The arguments are no JSON object: {call.malformed}"
        if call.name not in self.tools_by_name:
            return f"There is no tool {call.name}; there are {', '.join(self.tools_by_name)}."
        missing = [
            name for name in self.tools_by_name[call.name].spec.input_schema["required"] if name not in call.arguments
        ]
        return f"Arguments are missing: {', '.join(missing)}." if missing else None

    # The `Turn` interface

    async def system_prompt(self) -> str:
        self.check_alive()
        return self.instructions

    async def list_tools(self) -> Sequence[ToolSpec]:
        self.check_alive()
        return [each.spec for each in self.tools_by_name.values()]

    async def history(self) -> Sequence[SessionMessage]:
        self.check_alive()
        return [message for message in self.records.messages if message.turn < self.number]

    async def ask_model(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[ReplyPiece, None]:
        self.check_alive()
        question = self._make_question(messages, tools, by)
        self._questions_asked += 1
        if self._questions_asked > self.steps:
            raise TurnLimitReached
        kept = self.records.journal.get((self.number, question.digest))
        if kept is not None:
            for piece in reply_pieces_from_message(kept.message):
                yield piece
            yield ModelReply(kept.message, kept.finish, from_records=True)
            return
        self.records.questions.append(question)
        position = self.records.replies_used + self._replies_streaming
        self._replies_streaming += 1
        try:
            async with aclosing(self._stream_reply(question, position, by)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self._replies_streaming -= 1

    async def call_tool(self, call: ToolCall, *, wait: bool = True) -> CallResult:
        self.check_alive()
        recorded_call = await self.enter_call(call)
        if recorded_call.result is not None:
            return recorded_call.result
        denied = "The policy denies this." if matches_any(call.name, self.denied) else None
        if (refusal := self.argument_problem(call) or denied) is not None:
            return await self.settle_call(recorded_call, CallResult(content=to_content(refusal), refused=True))
        spec = self.tools_by_name[call.name].spec
        arguments = call.arguments
        if recorded_call.state is CallState.ASKED:
            question = call.name == "ask_user"
            if question or matches_any(call.name, self.asked_about):
                approval = await self.wait_for_decision(recorded_call, "question" if question else "call", wait=wait)
                if approval.state not in (ApprovalState.APPROVED, ApprovalState.EDITED):
                    return await self.settle_call(recorded_call, to_unrun_result(approval))
                arguments = call.arguments if approval.edited is None else approval.edited
        elif call.id not in self.running_calls and spec.effect != "none":
            lost = "The server stopped while this was running. Check whether it has happened before you repeat it."
            return await self.settle_call(recorded_call, CallResult(content=to_content(lost), failed=True))
        if call.id not in self.running_calls:
            self.running_calls[call.id] = asyncio.create_task(self.run_tool(recorded_call, arguments))
        task = self.running_calls[call.id]
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.check_alive()
            task.cancel()
            raise

    async def authorize_call(
        self,
        call: ToolCall,
        *,
        question: str = "",
        choices: Sequence[QuestionChoice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> CallVerdict:
        self.check_alive()
        recorded_call = await self.enter_call(call)
        if recorded_call.verdict is None:
            if matches_any(call.name, self.denied):
                recorded_call.verdict = CallVerdict(allowed=False, reason="denied")
            elif matches_any(call.name, self.asked_about):
                approval = await self.wait_for_decision(
                    recorded_call, "call", wait=True, question=question, choices=choices
                )
                recorded_call.verdict = to_verdict(approval, choices)
            else:
                recorded_call.verdict = CallVerdict(allowed=True)
            if recorded_call.verdict.allowed:
                await self.begin_call(recorded_call)
        return recorded_call.verdict

    async def record_result(self, call: ToolCall, result: CallResult, *, kind: str | None = None) -> None:
        self.check_alive()
        await self.settle_call(await self.enter_call(call), result)

    async def unread_messages(self, known: Collection[str]) -> Sequence[SessionMessage]:
        self.check_alive()
        ours = [message for message in self.records.messages if message.turn == self.number]
        return [message for message in ours if message.role in ("user", "note") and message.id not in known]

    def start_message(self) -> InMemoryMessageWriter:
        return InMemoryMessageWriter(self)

    async def emit(self, event: SessionEvent) -> None:
        await self.record_change(lambda: self.records.events.append(event))

    async def load_state(self) -> bytes | None:
        self.check_alive()
        return self.records.state

    async def save_state(self, state: bytes) -> None:
        await self.record_change(lambda: setattr(self.records, "state", state))

    # Scripted replies

    def _copy_with(self, changes: Mapping[str, Any]) -> InMemoryTurn:
        given: dict[str, Any] = {
            "script": self.script, "tools": list(self.tools_by_name.values()),
            "ask": self.asked_about, "deny": self.denied,
            "steps": self.steps, "session": self.session, "prompt": self.instructions, "records": self.records,
        }  # fmt: skip
        return InMemoryTurn(**{**given, **changes})

    def _make_question(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], by: str | None
    ) -> ModelQuestion:
        names = sorted(spec.name for spec in tools)
        written = json.dumps([by, messages, names], sort_keys=True)
        digest = hashlib.sha256(written.encode()).hexdigest()
        return ModelQuestion(self.number, json.loads(written)[1], names, by, digest)

    def _script_entry(self, question: ModelQuestion, position: int) -> ScriptEntry:
        if callable(self.script):
            return self.script(question)
        if position >= len(self.script):
            raise AssertionError(f"the script has no answer {position + 1}: the model was asked {question.messages!r}")
        return self.script[position]

    async def _stream_reply(
        self, question: ModelQuestion, position: int, by: str | None
    ) -> AsyncGenerator[ReplyPiece, None]:
        scripted = self._script_entry(question, position)
        answer = ScriptedReply(scripted) if isinstance(scripted, str) else scripted
        message_id, step = self.records.new_id("msg"), len(self.records.journal) + 1
        self.message_ids.add(message_id)
        await self.record_change(
            lambda: self.emit_events(
                *self.interrupted_message_ends(),
                StepStarted(turn=self.number, step=step, by=by),
                MessageStarted(message_id=message_id, turn=self.number, step=step, by=by),
            )
        )
        text_so_far = ""
        try:
            if isinstance(answer, Exception):
                raise answer
            if answer.thought:
                yield ThoughtPiece(answer.thought)
            half = (len(answer.text) + 1) // 2
            for text in filter(None, (answer.text[:half], answer.text[half:])):
                text_so_far += text
                self.emit_events(MessageDelta(message_id=message_id, text=text))
                await self.notify()
                yield TextPiece(text)
            if answer.never_ends:
                await asyncio.Event().wait()
        except BaseException as error:
            if not self.is_dead:
                self.records.replies_used += 1
                self.end_cut_message(message_id, text_so_far, "error" if isinstance(error, Exception) else "cancelled")
            raise
        replies: list[ModelReply] = []

        def record() -> None:
            calls = to_calls(self.records, answer.calls)
            content = to_content(answer.text) if answer.text else ()
            message = self.add_message("assistant", content, id=message_id, thought=answer.thought, calls=calls)
            replies.append(ModelReply(message, "tool_calls" if calls else "stop", input_tokens=10, output_tokens=5))
            self.records.journal[self.number, question.digest] = replies[0]
            self.records.replies_used += 1
            self.emit_events(
                MessageEnded(message_id=message_id, text=answer.text, calls=calls),
                StepEnded(turn=self.number, step=step, calls=len(calls)),
            )

        await self.record_change(record)
        for call in replies[0].message.calls:
            yield CallPiece(call)
        yield replies[0]

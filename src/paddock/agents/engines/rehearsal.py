"""A turn that is played in memory, for the tests of engines: a scripted model, tools that are plain functions.

It keeps records as a real turn does, may die at any of its changes, and is reborn with what was recorded until then:

    turn = Rehearsal([Answer(calls=[Wanted("add", {"a": 1, "b": 2})]), "It is 3."], tools=[tool("add", add)])
    await engine.run(turn, turn.says("What is 1 + 2?"))
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
    CallPiece,
    Decisions,
    Piece,
    Reply,
    TextPiece,
    ThoughtPiece,
    ToolSpec,
    Turn,
    TurnLimit,
    UserMessage,
    Verdict,
)
from paddock.agents.engines.recorder import Recorder, RehearsedSpeech
from paddock.agents.engines.rehearsed import (
    NOW,
    STATES,
    Answer,
    Killed,
    Question,
    Records,
    Script,
    Scripted,
    Tool,
    Wanted,
    Written,
    as_calls,
    as_content,
    as_pieces,
    as_result,
    as_verdict,
    matches,
    new_session,
    tool,
    words,
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
    Call,
    CallResult,
    CallState,
    Choice,
    Message,
    Session,
)

__all__ = ["Answer", "Killed", "Question", "Records", "Rehearsal", "Tool", "Wanted", "tool", "words"]


class Rehearsal(Recorder, Turn):
    """One turn, in memory. `ask` and `deny` are patterns of the names of tools."""

    def __init__(
        self,
        script: Script = (),
        *,
        tools: Sequence[Tool] = (),
        ask: Collection[str] = (),
        deny: Collection[str] = (),
        steps: int = 100,
        session: Session | None = None,
        prompt: str = "You are an agent.",
        number: int = 1,
        records: Records | None = None,
        dies_after: int | None = None,
        dies: Literal["before", "after"] = "after",
    ) -> None:
        """`dies_after` n changes, the last of which is recorded (`after`) or lost (`before`)."""
        super().__init__(session or new_session(), number, records or Records(), tools, dies_after, dies)
        self.script = script
        self.asked_about = tuple(ask)
        self.denied = tuple(deny)
        self.steps = steps
        self.instructions = prompt
        self._asked = 0
        self._under_way = 0

    # For tests

    def says(self, content: Written) -> UserMessage:
        """What a person writes to begin the turn with, recorded as a server does."""
        return UserMessage(message=self.write(content))

    def write(self, content: Written, role: Literal["user", "note"] = "user") -> Message:
        """What a person writes while the agent works, or the server notes."""
        return self.keep(role, as_content(content), by="somebody")

    async def kill(self) -> None:
        """The server dies now: whatever goes on in it ends with `Killed`."""
        self.die()
        await self.notify()

    def reborn(self, **changes: Any) -> Rehearsal:
        """The same turn in a new server, with what was recorded."""
        return self._again({"number": self.number, **changes})

    def following(self, script: Script | None = None, **changes: Any) -> Rehearsal:
        """The next turn of the session. A script that is given begins at its beginning."""
        if script is not None:
            self.records.answers = 0
            changes["script"] = script
        return self._again({"number": self.number + 1, **changes})

    def forked(self, script: Script) -> Rehearsal:
        """The next turn of another session that has only the messages of this one."""
        records = Records(messages=list(self.records.messages), made=Counter(self.records.made))
        session = self.session.model_copy(update={"id": new_session().id})
        return self._again({"number": self.number + 1, "script": script, "records": records, "session": session})

    @property
    def pending(self) -> list[Approval]:
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
        """What a person decides; whoever waits for it goes on. `reason` is the answer, with `answer`."""
        if self.records.approvals[approval.call_id].state is not ApprovalState.PENDING:
            raise Conflict(f"{approval.id} was decided")
        decided = approval.model_copy(
            update={"state": STATES[action], "edited": arguments, "reason": reason, "decided_at": NOW}
        )
        self.records.approvals[approval.call_id] = decided
        self.records.told.append(ApprovalDecided(approval_id=decided.id, call_id=decided.call_id, state=decided.state))
        await self.notify()
        return decided

    def decisions(self, *approvals: Approval) -> Decisions:
        return Decisions(approvals=approvals)

    def abandon(self) -> None:
        """What a server does when a turn was cancelled: calls without a result get one, approvals are withdrawn."""
        for approval in self.pending:
            self.records.approvals[approval.call_id] = approval.model_copy(update={"state": ApprovalState.WITHDRAWN})
        for entry in self.records.ledger.values():
            if entry.turn == self.number and entry.result is None:
                self.finish_call(entry, CallResult(content=as_content("The call was cancelled."), refused=True))

    def runs(self, name: str) -> list[Mapping[str, Any]]:
        """The arguments a tool was run with, each time."""
        return [arguments for ran, arguments in self.records.runs if ran == name]

    # For casts, see conformance

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        """What the script answers to a question that did not come through `ask`. Raises what it says is raised."""
        question = self._question(messages, (), None)
        self.records.questions.append(question)
        self.records.answers += 1
        scripted = self._line(question, self.records.answers - 1)
        if isinstance(scripted, Exception):
            raise scripted
        return Answer(scripted) if isinstance(scripted, str) else scripted

    def unfit(self, call: Call) -> str | None:
        """Why no tool can be run with a call."""
        if call.malformed is not None:
            return f"The arguments are no JSON object: {call.malformed}"
        if call.name not in self.toolset:
            return f"There is no tool {call.name}; there are {', '.join(self.toolset)}."
        missing = [name for name in self.toolset[call.name].spec.input_schema["required"] if name not in call.arguments]
        return f"Arguments are missing: {', '.join(missing)}." if missing else None

    # The turn, as engines see it

    async def prompt(self) -> str:
        self.alive()
        return self.instructions

    async def tools(self) -> Sequence[ToolSpec]:
        self.alive()
        return [each.spec for each in self.toolset.values()]

    async def history(self) -> Sequence[Message]:
        self.alive()
        return [message for message in self.records.messages if message.turn < self.number]

    async def ask(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[Piece, None]:
        self.alive()
        question = self._question(messages, tools, by)
        self._asked += 1
        if self._asked > self.steps:
            raise TurnLimit
        kept = self.records.journal.get((self.number, question.digest))
        if kept is not None:
            for piece in as_pieces(kept.message):
                yield piece
            yield Reply(kept.message, kept.finish, again=True)
            return
        self.records.questions.append(question)
        position = self.records.answers + self._under_way
        self._under_way += 1
        try:
            async with aclosing(self._answer(question, position, by)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self._under_way -= 1

    async def call(self, call: Call, *, wait: bool = True) -> CallResult:
        self.alive()
        entry = await self.enter(call)
        if entry.result is not None:
            return entry.result
        denied = "The policy denies this." if matches(call.name, self.denied) else None
        if (refusal := self.unfit(call) or denied) is not None:
            return await self.settled(entry, CallResult(content=as_content(refusal), refused=True))
        spec = self.toolset[call.name].spec
        arguments = call.arguments
        if entry.state is CallState.ASKED:
            question = call.name == "ask_user"
            if question or matches(call.name, self.asked_about):
                approval = await self.decided(entry, "question" if question else "call", wait=wait)
                if approval.state not in (ApprovalState.APPROVED, ApprovalState.EDITED):
                    return await self.settled(entry, as_result(approval))
                arguments = call.arguments if approval.edited is None else approval.edited
        elif call.id not in self.running and spec.effect != "none":
            lost = "The server stopped while this was under way. Look whether it has happened before you repeat it."
            return await self.settled(entry, CallResult(content=as_content(lost), failed=True))
        if call.id not in self.running:
            self.running[call.id] = asyncio.create_task(self.run_tool(entry, arguments))
        task = self.running[call.id]
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.alive()
            task.cancel()
            raise

    async def consult(
        self,
        call: Call,
        *,
        question: str = "",
        choices: Sequence[Choice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> Verdict:
        self.alive()
        entry = await self.enter(call)
        if entry.verdict is None:
            if matches(call.name, self.denied):
                entry.verdict = Verdict(allowed=False, reason="denied")
            elif matches(call.name, self.asked_about):
                approval = await self.decided(entry, "call", wait=True, question=question, choices=choices)
                entry.verdict = as_verdict(approval, choices)
            else:
                entry.verdict = Verdict(allowed=True)
            if entry.verdict.allowed:
                await self.begin_call(entry)
        return entry.verdict

    async def settle(self, call: Call, result: CallResult, *, kind: str | None = None) -> None:
        self.alive()
        await self.settled(await self.enter(call), result)

    async def unread(self, known: Collection[str]) -> Sequence[Message]:
        self.alive()
        ours = [message for message in self.records.messages if message.turn == self.number]
        return [message for message in ours if message.role in ("user", "note") and message.id not in known]

    def speaking(self) -> RehearsedSpeech:
        return RehearsedSpeech(self)

    async def tell(self, event: SessionEvent) -> None:
        await self.change(lambda: self.records.told.append(event))

    async def load(self) -> bytes | None:
        self.alive()
        return self.records.state

    async def save(self, state: bytes) -> None:
        await self.change(lambda: setattr(self.records, "state", state))

    # How it answers

    def _again(self, changes: Mapping[str, Any]) -> Rehearsal:
        given: dict[str, Any] = {
            "script": self.script, "tools": list(self.toolset.values()), "ask": self.asked_about, "deny": self.denied,
            "steps": self.steps, "session": self.session, "prompt": self.instructions, "records": self.records,
        }  # fmt: skip
        return Rehearsal(**{**given, **changes})

    def _question(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], by: str | None) -> Question:
        names = sorted(spec.name for spec in tools)
        written = json.dumps([by, messages, names], sort_keys=True)
        digest = hashlib.sha256(written.encode()).hexdigest()
        return Question(self.number, json.loads(written)[1], names, by, digest)

    def _line(self, question: Question, position: int) -> Scripted:
        if callable(self.script):
            return self.script(question)
        if position >= len(self.script):
            raise AssertionError(f"the script has no answer {position + 1}: the model was asked {question.messages!r}")
        return self.script[position]

    async def _answer(self, question: Question, position: int, by: str | None) -> AsyncGenerator[Piece, None]:
        scripted = self._line(question, position)
        answer = Answer(scripted) if isinstance(scripted, str) else scripted
        message_id, step = self.records.new_id("msg"), len(self.records.journal) + 1
        self.begun.add(message_id)
        await self.change(
            lambda: self.told(
                *self.cut_off(),
                StepStarted(turn=self.number, step=step, by=by),
                MessageStarted(message_id=message_id, turn=self.number, step=step, by=by),
            )
        )
        said = ""
        try:
            if isinstance(answer, Exception):
                raise answer
            if answer.thought:
                yield ThoughtPiece(answer.thought)
            middle = (len(answer.text) + 1) // 2
            for text in filter(None, (answer.text[:middle], answer.text[middle:])):
                said += text
                self.told(MessageDelta(message_id=message_id, text=text))
                await self.notify()
                yield TextPiece(text)
            if answer.hangs:
                await asyncio.Event().wait()
        except BaseException as error:
            if not self.dead:
                self.records.answers += 1
                self.end_cut(message_id, said, "error" if isinstance(error, Exception) else "cancelled")
            raise
        replied: list[Reply] = []

        def record() -> None:
            calls = as_calls(self.records, answer.calls)
            content = as_content(answer.text) if answer.text else ()
            message = self.keep("assistant", content, id=message_id, thought=answer.thought, calls=calls)
            replied.append(Reply(message, "tool_calls" if calls else "stop", input_tokens=10, output_tokens=5))
            self.records.journal[self.number, question.digest] = replied[0]
            self.records.answers += 1
            self.told(
                MessageEnded(message_id=message_id, text=answer.text, calls=calls),
                StepEnded(turn=self.number, step=step, calls=len(calls)),
            )

        await self.change(record)
        for call in replied[0].message.calls:
            yield CallPiece(call)
        yield replied[0]

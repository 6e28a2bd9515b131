"""Makes of what an agent program tells about itself what a session keeps: messages, calls, results, plans."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from acp import schema
from pydantic import ValidationError

from paddock.agents.engines.acp.place import Place, SeenCall
from paddock.agents.engines.base import Speech, Turn
from paddock.model.session_events import CallRunning, PlanChanged
from paddock.model.sessions import Call, CallResult, Content, FileContent, PlanStep, TextContent

KIND = "code"
"""The kind of sandbox that agent programs work in."""
Effect = Literal["none", "command", "write", "other"]
EFFECTS: Mapping[str, Effect] = {
    "execute": "command",
    "edit": "write",
    "delete": "write",
    "move": "write",
    "read": "none",
    "search": "none",
    "fetch": "none",
    "think": "none",
}
STEPS: Mapping[str, Literal["pending", "running", "done"]] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "done",
}
LONGEST_TITLE = 500
MOST_STEPS = 200
Keep = Callable[[bytes, str], Awaitable[FileContent | None]]
"""Keeps a picture of the session; None if it cannot be kept."""


class Silence:
    """Where a message was told before."""

    async def __aexit__(self, *exc: object) -> None: ...
    async def text(self, piece: str) -> None: ...
    async def thought(self, piece: str) -> None: ...
    async def finish(self, calls: Sequence[Call] = ()) -> None: ...


class Teller:
    """Tells one turn. What is said goes into messages; each ends where calls begin."""

    def __init__(
        self, turn: Turn, place: Place, keep: Keep, longest: int, kept: int = 0, asides: tuple[str, ...] = ()
    ) -> None:
        """`kept` is how many messages of the agent the turn has in its records."""
        self._asides = asides
        self._turn = turn
        self._place = place
        self._keep = keep
        self._longest = longest
        self._speech: Speech | Silence | None = None
        self._begun: list[SeenCall] = []
        # Messages that were kept just before a server died, and are read once more.
        self._again = max(0, kept - place.spoken)

    @property
    def speaking(self) -> bool:
        """Whether a message is under way that would have to be told again from its beginning."""
        return self._speech is not None

    async def update(self, params: Any) -> bool:
        """Deal with one `session/update`; says whether there is something new to be saved."""
        try:
            update = schema.SessionNotification.model_validate(params).update
        except ValidationError:
            return False  # Of a later version of the protocol, or nonsense.
        if isinstance(update, schema.AgentMessageChunk):
            return await self._say(update.content, thought=False)
        if isinstance(update, schema.AgentThoughtChunk):
            return await self._say(update.content, thought=True)
        if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
            return await self._called(update)
        if isinstance(update, schema.AgentPlanUpdate):
            steps = [_step(entry) for entry in update.entries[:MOST_STEPS]]
            await self._turn.tell(PlanChanged(steps=tuple(steps)))
            return True
        return False

    async def permission(self, told: schema.ToolCallUpdate) -> SeenCall:
        """The call that a permission is asked for, which may not have been told of before."""
        seen = self._seen(told)
        await self.introduce()
        return seen

    async def introduce(self) -> bool:
        """End the message with the calls that were told of since; whether there was anything."""
        fresh = [seen for seen in self._place.calls.values() if seen.call is None]
        if not fresh and self._speech is None:
            return False
        calls = [self._call(seen, self._place.made + number) for number, seen in enumerate(fresh, 1)]
        speech = self._speech or await self._begin()
        self._speech = None
        try:
            await speech.finish(calls)
        finally:
            await speech.__aexit__(None, None, None)
        # Only now: what is saved meanwhile must not say that they are in a message.
        self._place.made += len(calls)
        self._place.spoken += 1
        for seen, call in zip(fresh, calls, strict=True):
            seen.call = call
        return True

    async def cut(self, error: BaseException | None = None) -> None:
        """The message that is under way ends here."""
        if self._speech is not None:
            speech, self._speech = self._speech, None
            await speech.__aexit__(type(error) if error else None, error, None)

    async def settle(self, seen: SeenCall, result: CallResult) -> None:
        """Keep what came of a call."""
        if seen.call is not None:
            await self._turn.settle(seen.call, result, kind=KIND)
        self._place.calls.pop(seen.id, None)
        self._begun = [each for each in self._begun if each is not seen]

    async def running(self) -> None:
        """Tell of calls that have begun. Only once that is saved, or a new server would read and tell it once more."""
        begun, self._begun = self._begun, []
        for seen in begun:
            assert seen.call is not None
            await self._turn.tell(CallRunning(call_id=seen.call.id, sandbox_id=self._place.sandbox))

    def _call(self, seen: SeenCall, number: int) -> Call:
        # The agent's own ids may come again, in another session of its or after it was started anew.
        identifier = f"{seen.id[:200]}-{self._place.turn}.{number}"
        return Call(id=identifier, name=f"{KIND}_{seen.kind}", arguments=_arguments(seen))

    async def _begin(self) -> Speech | Silence:
        if self._again:
            self._again -= 1
            return Silence()
        return await self._turn.speaking().__aenter__()

    async def _say(self, content: Any, *, thought: bool) -> bool:
        text = content.text if isinstance(content, schema.TextContentBlock) else ""
        if not text or text.startswith(self._asides):
            return False
        told = any(seen.call is None for seen in self._place.calls.values()) and await self.introduce()
        if self._speech is None:
            self._speech = await self._begin()
        await (self._speech.thought(text) if thought else self._speech.text(text))
        return told

    async def _called(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> bool:
        known = update.tool_call_id in self._place.calls
        if not known and isinstance(update, schema.ToolCallProgress):
            # What has its result, or is of a call that was never told of.
            return False
        seen = self._seen(update)
        over = update.status in ("completed", "failed")
        # Some tell of a call before they know its arguments, or only some of them.
        if seen.call is None and not (over or update.status == "in_progress"):
            return False
        changed = seen.call is None and await self.introduce()
        assert seen.call is not None
        if over:
            content = await self._content(update.content or [], update.raw_output)
            await self.settle(seen, CallResult(content=content, failed=update.status == "failed"))
            return True
        # Whether others run is not known before it is asked for a permission, or not.
        harmless = EFFECTS.get(seen.kind, "other") in ("none", "other")
        if update.status == "in_progress" and harmless and not seen.begun:
            seen.begun = True
            self._begun.append(seen)
            changed = True
        return changed

    def _seen(self, update: schema.ToolCall | schema.ToolCallUpdate) -> SeenCall:
        seen = self._place.calls.setdefault(update.tool_call_id, SeenCall(id=update.tool_call_id))
        if seen.call is None:
            seen.title = (update.title or seen.title)[:LONGEST_TITLE]
            seen.kind = update.kind or seen.kind
            seen.input = update.raw_input or seen.input
        return seen

    async def _content(self, parts: Sequence[Any], output: Any) -> tuple[Content, ...]:
        found: list[Content] = []
        texts: list[str] = []
        for part in parts:
            if isinstance(part, schema.FileEditToolCallContent):
                texts.append(f"{part.path} was {'changed' if part.old_text else 'written'}.")
            elif isinstance(part, schema.ContentToolCallContent):
                block = part.content
                if isinstance(block, schema.TextContentBlock):
                    texts.append(block.text)
                elif isinstance(block, schema.ImageContentBlock) and (picture := await self._picture(block)):
                    found.append(picture)
        if not texts and not found and output is not None:
            texts.append(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
        text = "\n".join(texts)
        if len(text) > self._longest:
            text = f"{text[: self._longest]}\n[… {len(text) - self._longest} characters more]"
        return (*([TextContent(text=text)] if text else []), *found)

    async def _picture(self, block: schema.ImageContentBlock) -> FileContent | None:
        try:
            data = base64.b64decode(block.data, validate=True)
        except (ValueError, binascii.Error):
            return None
        return await self._keep(data, block.mime_type)


def _arguments(seen: SeenCall) -> Mapping[str, Any]:
    if isinstance(seen.input, Mapping) and seen.input:
        return dict(seen.input)
    return {"title": seen.title, **({} if seen.input is None else {"input": seen.input})}


def _step(entry: schema.PlanEntry) -> PlanStep:
    return PlanStep(title=entry.content[:500], state=STEPS.get(entry.status, "pending"))

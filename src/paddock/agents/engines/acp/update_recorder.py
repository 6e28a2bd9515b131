"""Converts ACP updates of an agent program into session messages, calls, results and plans."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from acp import schema
from pydantic import ValidationError

from paddock.agents.engines.acp.acp_session_state import AcpSessionState, ObservedCall
from paddock.agents.engines.base import MessageWriter, Turn
from paddock.model.session_events import CallRunning, PlanChanged
from paddock.model.sessions import CallResult, FileContent, MessageContent, PlanStep, TextContent, ToolCall

KIND = "code"
"""The sandbox kind of agent programs."""
ToolEffect = Literal["none", "command", "write", "other"]
EFFECT_BY_KIND: Mapping[str, ToolEffect] = {
    "execute": "command",
    "edit": "write",
    "delete": "write",
    "move": "write",
    "read": "none",
    "search": "none",
    "fetch": "none",
    "think": "none",
}
PLAN_STATES: Mapping[str, Literal["pending", "running", "done"]] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "done",
}
MAX_TITLE_LENGTH = 500
MAX_PLAN_STEPS = 200
StoreImage = Callable[[bytes, str], Awaitable[FileContent | None]]
"""Stores an image in the session; returns None if it cannot be stored."""


class DiscardingMessageWriter:
    """Discards a message that was already recorded."""

    async def __aexit__(self, *exc: object) -> None: ...
    async def write_text(self, piece: str) -> None: ...
    async def write_thought(self, piece: str) -> None: ...
    async def finish(self, calls: Sequence[ToolCall] = ()) -> None: ...


class AcpUpdateRecorder:
    """Records the updates of one turn; a message ends where calls begin."""

    def __init__(
        self,
        turn: Turn,
        state: AcpSessionState,
        store_image: StoreImage,
        max_length: int,
        recorded_count: int = 0,
        hidden_prefixes: tuple[str, ...] = (),
    ) -> None:
        """`recorded_count` is the number of the agent's messages already in the turn's records."""
        self._hidden_prefixes = hidden_prefixes
        self._turn = turn
        self._state = state
        self._store_image = store_image
        self._max_length = max_length
        self._writer: MessageWriter | DiscardingMessageWriter | None = None
        self._started_calls: list[ObservedCall] = []
        # Messages that were stored just before a crash, and are read again.
        self._already_recorded = max(0, recorded_count - state.message_count)

    @property
    def has_open_message(self) -> bool:
        """Return whether a message is open, which would have to be read again from its start."""
        return self._writer is not None

    async def record_update(self, params: Any) -> bool:
        """Record one `session/update`; return whether the state has to be saved."""
        try:
            update = schema.SessionNotification.model_validate(params).update
        except ValidationError:
            return False  # A later protocol version, or an invalid update.
        if isinstance(update, schema.AgentMessageChunk):
            return await self._write_text(update.content, thought=False)
        if isinstance(update, schema.AgentThoughtChunk):
            return await self._write_text(update.content, thought=True)
        if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
            return await self._record_call(update)
        if isinstance(update, schema.AgentPlanUpdate):
            steps = [_plan_step(entry) for entry in update.entries[:MAX_PLAN_STEPS]]
            await self._turn.emit(PlanChanged(steps=tuple(steps)))
            return True
        return False

    async def find_permission_call(self, update: schema.ToolCallUpdate) -> ObservedCall:
        """Return the call of a permission request, which may not have been reported before."""
        observed = self._observe_call(update)
        await self.finish_message()
        return observed

    async def finish_message(self) -> bool:
        """End the open message with its calls; return whether there was a message or a call."""
        new_calls = [observed for observed in self._state.calls.values() if observed.call is None]
        if not new_calls and self._writer is None:
            return False
        calls = [
            self._build_call(observed, self._state.call_count + number) for number, observed in enumerate(new_calls, 1)
        ]
        writer = self._writer or await self._open_writer()
        self._writer = None
        try:
            await writer.finish(calls)
        finally:
            await writer.__aexit__(None, None, None)
        # Set only now, because a concurrent save must not count them as recorded.
        self._state.call_count += len(calls)
        self._state.message_count += 1
        for observed, call in zip(new_calls, calls, strict=True):
            observed.call = call
        return True

    async def cut_message(self, error: BaseException | None = None) -> None:
        """Cut off the open message."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            await writer.__aexit__(type(error) if error else None, error, None)

    async def record_result(self, observed: ObservedCall, result: CallResult) -> None:
        """Record the result of a call."""
        if observed.call is not None:
            await self._turn.record_result(observed.call, result, kind=KIND)
        self._state.calls.pop(observed.id, None)
        self._started_calls = [each for each in self._started_calls if each is not observed]

    async def emit_running_calls(self) -> None:
        """Emit started calls; called after the state was saved, so that a restart does not emit them again."""
        started, self._started_calls = self._started_calls, []
        for observed in started:
            assert observed.call is not None
            await self._turn.emit(CallRunning(call_id=observed.call.id, sandbox_id=self._state.sandbox))

    def _build_call(self, observed: ObservedCall, number: int) -> ToolCall:
        # The agent's own ids may repeat in another session or after a restart.
        identifier = f"{observed.id[:200]}-{self._state.turn}.{number}"
        return ToolCall(id=identifier, name=f"{KIND}_{observed.kind}", arguments=_call_arguments(observed))

    async def _open_writer(self) -> MessageWriter | DiscardingMessageWriter:
        if self._already_recorded:
            self._already_recorded -= 1
            return DiscardingMessageWriter()
        return await self._turn.start_message().__aenter__()

    async def _write_text(self, content: Any, *, thought: bool) -> bool:
        text = content.text if isinstance(content, schema.TextContentBlock) else ""
        if not text or text.startswith(self._hidden_prefixes):
            return False
        changed = any(observed.call is None for observed in self._state.calls.values()) and await self.finish_message()
        if self._writer is None:
            self._writer = await self._open_writer()
        await (self._writer.write_thought(text) if thought else self._writer.write_text(text))
        return changed

    async def _record_call(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> bool:
        is_known = update.tool_call_id in self._state.calls
        if not is_known and isinstance(update, schema.ToolCallProgress):
            # The call has its result, or was never reported.
            return False
        observed = self._observe_call(update)
        is_final = update.status in ("completed", "failed")
        # Some programs report a call before its arguments are complete.
        if observed.call is None and not (is_final or update.status == "in_progress"):
            return False
        changed = observed.call is None and await self.finish_message()
        assert observed.call is not None
        if is_final:
            content = await self._result_content(update.content or [], update.raw_output)
            await self.record_result(observed, CallResult(content=content, failed=update.status == "failed"))
            return True
        # Other calls may still ask for permission before they run.
        harmless = EFFECT_BY_KIND.get(observed.kind, "other") in ("none", "other")
        if update.status == "in_progress" and harmless and not observed.start_emitted:
            observed.start_emitted = True
            self._started_calls.append(observed)
            changed = True
        return changed

    def _observe_call(self, update: schema.ToolCall | schema.ToolCallUpdate) -> ObservedCall:
        observed = self._state.calls.setdefault(update.tool_call_id, ObservedCall(id=update.tool_call_id))
        if observed.call is None:
            observed.title = (update.title or observed.title)[:MAX_TITLE_LENGTH]
            observed.kind = update.kind or observed.kind
            observed.input = update.raw_input or observed.input
        return observed

    async def _result_content(self, parts: Sequence[Any], output: Any) -> tuple[MessageContent, ...]:
        images: list[MessageContent] = []
        texts: list[str] = []
        for part in parts:
            if isinstance(part, schema.FileEditToolCallContent):
                texts.append(f"{part.path} was {'changed' if part.old_text else 'written'}.")
            elif isinstance(part, schema.ContentToolCallContent):
                block = part.content
                if isinstance(block, schema.TextContentBlock):
                    texts.append(block.text)
                elif isinstance(block, schema.ImageContentBlock) and (image := await self._store_block_image(block)):
                    images.append(image)
        if not texts and not images and output is not None:
            texts.append(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
        text = "\n".join(texts)
        if len(text) > self._max_length:
            text = f"{text[: self._max_length]}\n[… {len(text) - self._max_length} characters more]"
        return (*([TextContent(text=text)] if text else []), *images)

    async def _store_block_image(self, block: schema.ImageContentBlock) -> FileContent | None:
        try:
            data = base64.b64decode(block.data, validate=True)
        except (ValueError, binascii.Error):
            return None
        return await self._store_image(data, block.mime_type)


def _call_arguments(observed: ObservedCall) -> Mapping[str, Any]:
    if isinstance(observed.input, Mapping) and observed.input:
        return dict(observed.input)
    return {"title": observed.title, **({} if observed.input is None else {"input": observed.input})}


def _plan_step(entry: schema.PlanEntry) -> PlanStep:
    return PlanStep(title=entry.content[:500], state=PLAN_STATES.get(entry.status, "pending"))

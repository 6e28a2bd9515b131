"""A minimal correct engine, and engines that each break the contract in one way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from paddock.agents.engines.base import CallPiece, Engine, ModelReply, Turn, TurnDone, TurnInput, TurnOutcome
from paddock.agents.model.openai_messages import to_openai_content, to_openai_messages, tool_call_object
from paddock.model.sessions import CallResult, SessionMessage, ToolCall


class PlainEngine(Engine):
    """Asks the model and runs calls in a loop; its state is saved before each question."""

    name = "plain"

    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        saved = json.loads(await turn.load_state() or b"null")
        if saved is None or saved["turn"] != turn.number:
            saved = {"turn": turn.number, "read": [], "asking": False, "said": await self.start_conversation(turn)}
        while saved["asking"] or await self.read(turn, saved):
            await self.ask_and_run(turn, saved)
        await turn.save_state(json.dumps(saved).encode())
        return TurnDone()

    async def start_conversation(self, turn: Turn) -> list[dict[str, Any]]:
        return to_openai_messages(await turn.system_prompt(), await turn.history())

    async def read(self, turn: Turn, saved: dict[str, Any]) -> bool:
        """Return whether there is anything to reply to."""
        unread = await self.unread(turn, saved)
        saved["read"] += [message.id for message in unread]
        saved["said"] += to_openai_messages("", unread)
        return bool(saved["said"][-1]["role"] != "assistant")

    async def unread(self, turn: Turn, saved: dict[str, Any]) -> Sequence[SessionMessage]:
        return await turn.unread_messages(saved["read"])

    async def ask_and_run(self, turn: Turn, saved: dict[str, Any]) -> None:
        saved["asking"] = True
        await turn.save_state(json.dumps(saved).encode())
        calls: list[ToolCall] = []
        async for piece in turn.ask_model(saved["said"], await turn.list_tools()):
            match piece:
                case CallPiece():
                    calls.append(piece.call)
                case ModelReply():
                    assistant_message: dict[str, Any] = {"role": "assistant", "content": piece.message.text or None}
        if calls:
            assistant_message["tool_calls"] = [tool_call_object(call) for call in calls]
        results = await self.run_calls(turn, calls)
        saved["said"] += [assistant_message, *self.result_messages(calls, results)]
        saved["asking"] = False

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallResult]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(turn.call_tool(call)) for call in calls]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def result_messages(self, calls: Sequence[ToolCall], results: Sequence[CallResult]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": to_openai_content(result.content)}
            for call, result in zip(calls, results, strict=True)
        ]


class SequentialEngine(PlainEngine):
    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallResult]:
        return [await turn.call_tool(call) for call in calls]


class NeverReadsEngine(PlainEngine):
    """Reads the first message only."""

    async def unread(self, turn: Turn, saved: dict[str, Any]) -> Sequence[SessionMessage]:
        return [] if saved["read"] else await turn.unread_messages(())


class ForgetsHistoryEngine(PlainEngine):
    async def start_conversation(self, turn: Turn) -> list[dict[str, Any]]:
        return to_openai_messages(await turn.system_prompt(), ())


class SavesTooLateEngine(PlainEngine):
    """Reads new messages before it repeats a question."""

    async def ask_and_run(self, turn: Turn, saved: dict[str, Any]) -> None:
        if saved["asking"]:
            await self.read(turn, saved)
        await super().ask_and_run(turn, saved)


class NeverSavesEngine(PlainEngine):
    """Saves its state only at the end."""

    async def ask_and_run(self, turn: Turn, saved: dict[str, Any]) -> None:
        await super().ask_and_run(_NonSavingTurn(turn), saved)


class _NonSavingTurn:
    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)

    async def save_state(self, state: bytes) -> None:
        return None


class SwallowsKillEngine(PlainEngine):
    """Catches its own cancellation."""

    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        try:
            return await super().run(turn, turn_input)
        except BaseException:
            return TurnDone()


class RenamesCallsEngine(PlainEngine):
    """Gives calls new ids each time."""

    attempts = 0

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallResult]:
        self.attempts += 1
        return await super().run_calls(
            turn, [call.model_copy(update={"id": f"{call.id}/{self.attempts}"}) for call in calls]
        )


class IgnoresImagesEngine(PlainEngine):
    """Sends only the text of results to the model."""

    def result_messages(self, calls: Sequence[ToolCall], results: Sequence[CallResult]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result.text}
            for call, result in zip(calls, results, strict=True)
        ]


class ReportsFailuresOnlyEngine(PlainEngine):
    """Sends only failed results to the model."""

    def result_messages(self, calls: Sequence[ToolCall], results: Sequence[CallResult]) -> list[dict[str, Any]]:
        messages = super().result_messages(calls, results)
        return [message for message, result in zip(messages, results, strict=True) if result.failed]


class GivesUpCallsEngine(PlainEngine):
    """Continues without a call that needs approval."""

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall]) -> list[CallResult]:
        async def run_or_give_up(call: ToolCall) -> CallResult:
            try:
                return await turn.call_tool(call, wait=False)
            except Exception:
                return CallResult()

        return [await run_or_give_up(call) for call in calls]

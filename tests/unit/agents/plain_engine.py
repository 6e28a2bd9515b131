"""The plainest engine that keeps the contract, and some that break it in one way each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from paddock.agents.engines.base import CallPiece, Done, Engine, Given, Outcome, Reply, Turn
from paddock.agents.transcripts import call_object, content_of, to_openai
from paddock.model.sessions import Call, CallResult, Message


class PlainEngine(Engine):
    """Asks, calls, and asks again. Its place is saved before each question."""

    name = "plain"

    async def run(self, turn: Turn, given: Given) -> Outcome:
        saved = json.loads(await turn.load() or b"null")
        if saved is None or saved["turn"] != turn.number:
            saved = {"turn": turn.number, "read": [], "asking": False, "said": await self.begin(turn)}
        while saved["asking"] or await self.read(turn, saved):
            await self.step(turn, saved)
        await turn.save(json.dumps(saved).encode())
        return Done()

    async def begin(self, turn: Turn) -> list[dict[str, Any]]:
        return to_openai(await turn.prompt(), await turn.history())

    async def read(self, turn: Turn, place: dict[str, Any]) -> bool:
        """Whether there is anything to answer."""
        fresh = await self.unread(turn, place)
        place["read"] += [message.id for message in fresh]
        place["said"] += to_openai("", fresh)
        return bool(place["said"][-1]["role"] != "assistant")

    async def unread(self, turn: Turn, place: dict[str, Any]) -> Sequence[Message]:
        return await turn.unread(place["read"])

    async def step(self, turn: Turn, place: dict[str, Any]) -> None:
        place["asking"] = True
        await turn.save(json.dumps(place).encode())
        calls: list[Call] = []
        async for piece in turn.ask(place["said"], await turn.tools()):
            match piece:
                case CallPiece():
                    calls.append(piece.call)
                case Reply():
                    answer: dict[str, Any] = {"role": "assistant", "content": piece.message.text or None}
        if calls:
            answer["tool_calls"] = [call_object(call) for call in calls]
        results = await self.call(turn, calls)
        place["said"] += [answer, *self.told(calls, results)]
        place["asking"] = False

    async def call(self, turn: Turn, calls: Sequence[Call]) -> list[CallResult]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(turn.call(call)) for call in calls]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def told(self, calls: Sequence[Call], results: Sequence[CallResult]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content_of(result.content)}
            for call, result in zip(calls, results, strict=True)
        ]


class Sequential(PlainEngine):
    async def call(self, turn: Turn, calls: Sequence[Call]) -> list[CallResult]:
        return [await turn.call(call) for call in calls]


class Deaf(PlainEngine):
    """Reads the first message only."""

    async def unread(self, turn: Turn, place: dict[str, Any]) -> Sequence[Message]:
        return [] if place["read"] else await turn.unread(())


class Forgetful(PlainEngine):
    async def begin(self, turn: Turn) -> list[dict[str, Any]]:
        return to_openai(await turn.prompt(), ())


class Hasty(PlainEngine):
    """Reads what is new before it asks again what it had asked."""

    async def step(self, turn: Turn, place: dict[str, Any]) -> None:
        if place["asking"]:
            await self.read(turn, place)
        await super().step(turn, place)


class Saveless(PlainEngine):
    """Saves its place at the end only."""

    async def step(self, turn: Turn, place: dict[str, Any]) -> None:
        await super().step(_Saveless(turn), place)


class _Saveless:
    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)

    async def save(self, state: bytes) -> None:
        return None


class Immortal(PlainEngine):
    """Takes its own end for a mishap."""

    async def run(self, turn: Turn, given: Given) -> Outcome:
        try:
            return await super().run(turn, given)
        except BaseException:
            return Done()


class Renaming(PlainEngine):
    """Gives calls ids of its own, new each time."""

    made = 0

    async def call(self, turn: Turn, calls: Sequence[Call]) -> list[CallResult]:
        self.made += 1
        return await super().call(turn, [call.model_copy(update={"id": f"{call.id}/{self.made}"}) for call in calls])


class Blind(PlainEngine):
    """Passes on the text of results only."""

    def told(self, calls: Sequence[Call], results: Sequence[CallResult]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result.text}
            for call, result in zip(calls, results, strict=True)
        ]


class Careless(PlainEngine):
    """Tells the model of failures only."""

    def told(self, calls: Sequence[Call], results: Sequence[CallResult]) -> list[dict[str, Any]]:
        told = super().told(calls, results)
        return [message for message, result in zip(told, results, strict=True) if result.failed]


class Leaving(PlainEngine):
    """Runs on when a person has to decide, without the call."""

    async def call(self, turn: Turn, calls: Sequence[Call]) -> list[CallResult]:
        async def one(call: Call) -> CallResult:
            try:
                return await turn.call(call, wait=False)
            except Exception:
                return CallResult()

        return [await one(call) for call in calls]

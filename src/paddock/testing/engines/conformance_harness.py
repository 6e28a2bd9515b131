"""Harness of the conformance checks: runs turns to their end, and validates every question to the model."""

from __future__ import annotations

import asyncio
import inspect
import json
import unittest
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from paddock.agents.engines.base import ApprovalsDecided, Engine, TurnDone, TurnInput, TurnOutcome
from paddock.model.sessions import Approval
from paddock.testing.in_memory_turn import InMemoryTurn, ModelQuestion, ServerKilled

CHECK_TIMEOUT = 60.0
"""Seconds after which a check fails."""
STEP_TIMEOUT = 10.0
MAX_ROUNDS = 20

MAX_KILLS = 500
"""Maximum changes of a turn in these checks."""

DecideApprovals: TypeAlias = Callable[[InMemoryTurn], Awaitable[list[Approval]]]
"""Called while approvals are pending; decides some of them and returns those."""


async def approve_all_pending(turn: InMemoryTurn) -> list[Approval]:
    """Approve everything that is pending."""
    return [await turn.decide(approval) for approval in turn.pending_approvals]


class ScriptPlayer:
    """Plays the scripts of checks; by default the engine asks the in-memory turn itself.

    An engine with its own tools provides a subclass: the stand-in for its program asks the turn for its `next_reply`,
    and runs tools with `run_function`.
    """

    reads_after_reply: ClassVar[bool] = False
    """Whether new messages and reasons of refusals reach the model only after the next reply."""
    kill_every: ClassVar[int] = 1
    """Crash only at every n-th change, where a crash takes long."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def prepare(self, turn: InMemoryTurn) -> None:
        """Called for a new turn, not for one that continues after a crash."""

    def begin(self, turn: InMemoryTurn) -> None:
        """Called before a turn runs; from now on its script and tools apply to its session."""

    async def wait_for_cancellations(self) -> None:
        """Wait until cancelled work has ended."""
        await asyncio.sleep(0)

    async def discard(self, turn: InMemoryTurn) -> None:
        """Release the session of a turn."""

    def run_check(self, run_with_timeout: Coroutine[Any, Any, None]) -> None:
        """Run a check in an event loop of its own; override it if the engine needs a longer-lived loop."""
        asyncio.run(run_with_timeout)


EngineOrPlayer: TypeAlias = Engine | ScriptPlayer
EngineSource: TypeAlias = EngineOrPlayer | Callable[[], AbstractAsyncContextManager[EngineOrPlayer]]
"""Return types allowed for the `engine` fixture."""


@dataclass
class EngineConformanceHarness:
    """The engine under test, its script player and the turns it has run."""

    player: ScriptPlayer
    turns: list[InMemoryTurn] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.player.engine

    def require_player(self) -> None:
        if self.engine.has_own_tools and type(self.player) is ScriptPlayer:
            raise unittest.SkipTest(
                f"engine {self.engine.name} has its own tools and asks its own model; provide a `ScriptPlayer` for it"
            )

    def require_paddock_tools(self, reason: str) -> None:
        if self.engine.has_own_tools:
            raise unittest.SkipTest(f"engine {self.engine.name} has its own tools: {reason}")

    def kill_points(self, shift: int = 0) -> Iterator[int]:
        """Yield the change counts after which to crash; `shift` varies the skipped ones between checks."""
        yield from range(1 + shift % self.player.kill_every, MAX_KILLS, self.player.kill_every)
        raise AssertionError(f"a turn had {MAX_KILLS} changes and did not end")

    def new_turn(self, *arguments: Any, **settings: Any) -> InMemoryTurn:
        return self.track_turn(InMemoryTurn(*arguments, **settings))

    def track_turn(self, turn: InMemoryTurn) -> InMemoryTurn:
        """Validate the questions of a turn when the check is over."""
        self.turns.append(turn)
        self.player.prepare(turn)
        return turn

    async def discard(self, turn: InMemoryTurn) -> None:
        await self.player.discard(turn)

    async def run_turn(
        self, turn: InMemoryTurn, turn_input: TurnInput, decide: DecideApprovals = approve_all_pending
    ) -> None:
        """Run a turn to its end, and decide pending approvals meanwhile."""
        self.player.begin(turn)
        for _ in range(MAX_ROUNDS):
            decided: list[Approval] = []
            decide_task = asyncio.create_task(_decide_when_pending(turn, decide, decided))
            try:
                async with asyncio.timeout(STEP_TIMEOUT):
                    outcome = await self.engine.run(turn, turn_input)
            finally:
                decide_task.cancel()
                await asyncio.wait([decide_task])
            if not decide_task.cancelled() and (error := decide_task.exception()) is not None:
                raise error
            if isinstance(outcome, TurnDone):
                assert not turn.is_dead, "the engine swallowed the crash of the server"
                assert not turn.pending_approvals, f"done, but approvals are pending: {turn.pending_approvals}"
                return
            if not decided:
                assert turn.pending_approvals, "paused, but nothing is pending"
                decided = await decide(turn)
            turn_input = ApprovalsDecided(approvals=tuple(decided))
        raise AssertionError(f"paused {MAX_ROUNDS} times")

    async def run_until_killed(
        self, turn: InMemoryTurn, turn_input: TurnInput, decide: DecideApprovals = approve_all_pending
    ) -> None:
        """Run a turn until its server crashes, or to its end."""
        try:
            await self.run_turn(turn, turn_input, decide)
        except ServerKilled:
            assert turn.is_dead
            return
        assert not turn.is_dead, "the engine swallowed the crash of the server"

    async def cancel_when(self, turn: InMemoryTurn, turn_input: TurnInput, condition: Callable[[], bool]) -> None:
        """Cancel a turn when a condition holds, as a server does."""
        run_task = await self.run_until(turn, turn_input, condition)
        run_task.cancel()
        await asyncio.wait([run_task], timeout=STEP_TIMEOUT)
        assert run_task.cancelled(), f"a turn that was cancelled gave {run_task}"
        turn.abandon_calls()

    async def run_until(
        self, turn: InMemoryTurn, turn_input: TurnInput, condition: Callable[[], bool]
    ) -> asyncio.Task[TurnOutcome]:
        """Start a turn; return its task when a condition holds."""
        self.player.begin(turn)
        run_task = asyncio.create_task(self.engine.run(turn, turn_input))
        condition_task = asyncio.create_task(turn.wait_until(condition))
        try:
            await asyncio.wait([run_task, condition_task], timeout=STEP_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if run_task.done():
                run_task.result()
            assert condition(), f"the condition was never reached: {turn.records.events}"
        finally:
            condition_task.cancel()
        return run_task

    def check_questions(self) -> None:
        """Check that providers would accept every question to the model."""
        for turn in self.turns:
            for question in turn.records.questions:
                check_model_question(question)


async def _decide_when_pending(turn: InMemoryTurn, decide: DecideApprovals, decided: list[Approval]) -> None:
    while True:
        await turn.wait_until(lambda: bool(turn.pending_approvals))
        decided += await decide(turn)


def check_model_question(question: ModelQuestion) -> None:
    """Check for one leading system prompt, and exactly one result after each call."""
    messages = question.messages
    assert messages[0]["role"] == "system", f"no system prompt: {messages}"
    assert all(message["role"] != "system" for message in messages[1:]), f"a second system prompt: {messages}"
    open_calls: set[str] = set()
    seen_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, f"a result without a call, or a second result: {messages}"
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, f"calls without a result: {open_calls} in {messages}"
        for call in message.get("tool_calls") or ():
            assert call["id"] not in seen_calls, f"a call appears twice: {call['id']} in {messages}"
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            seen_calls.add(call["id"])
            open_calls.add(call["id"])
        assert message.get("content") or message.get("tool_calls"), f"an empty message: {messages}"
    assert not open_calls, f"calls without a result: {open_calls} in {messages}"
    assert messages[-1]["role"] != "assistant", f"the model is asked after its own words: {messages}"


def list_tool_results(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if message["role"] == "tool"]


def list_image_urls(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the URLs of all images."""
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def conformance_check(
    body: Callable[[Any, EngineConformanceHarness], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Turn a check into a plain test function that uses the fixture `engine`."""

    def test(self: object, engine: EngineSource) -> None:
        async def run_with_timeout() -> None:
            async with asyncio.timeout(CHECK_TIMEOUT), AsyncExitStack() as stack:
                source = (
                    engine if isinstance(engine, Engine | ScriptPlayer) else await stack.enter_async_context(engine())
                )
                harness = EngineConformanceHarness(source if isinstance(source, ScriptPlayer) else ScriptPlayer(source))
                try:
                    await body(self, harness)
                finally:
                    for turn in harness.turns:
                        await harness.discard(turn)
                harness.check_questions()

        if isinstance(engine, ScriptPlayer):
            engine.run_check(run_with_timeout())
        else:
            asyncio.run(run_with_timeout())

    test.__name__ = body.__name__
    test.__qualname__ = body.__qualname__
    test.__doc__ = inspect.getdoc(body)
    return test

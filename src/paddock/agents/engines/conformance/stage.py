"""What checks are made of: turns that are played to their end, and a look at every question the model was asked."""

from __future__ import annotations

import asyncio
import inspect
import json
import unittest
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from paddock.agents.engines.base import Decisions, Done, Engine, Given, Outcome
from paddock.agents.engines.rehearsal import Killed, Question, Rehearsal
from paddock.model.sessions import Approval

WHOLE_CHECK = 60.0
"""Seconds after which a check has failed, whatever it waits for."""
SOON = 10.0
ROUNDS = 20

MOST_DEATHS = 500
"""How many changes a turn of these checks has at most."""

Decide: TypeAlias = Callable[[Rehearsal], Awaitable[list[Approval]]]
"""Called whenever something is pending; decides some of it, and gives what it has decided."""


async def approve(turn: Rehearsal) -> list[Approval]:
    """Whatever is asked is approved."""
    return [await turn.decide(approval) for approval in turn.pending]


class Cast:
    """Who plays the scripts of checks: the model and the tools of the rehearsal, which the engine asks by itself.

    An engine that brings its own tools gives a subclass, in which somebody else plays them in front of it: whatever
    stands for its program asks the turn for its next `answer`, and has it `perform` the tools.
    """

    told_later: ClassVar[bool] = False
    """Whether what persons write meanwhile, and why they refuse something, is told only after the next answer."""
    every: ClassVar[int] = 1
    """Die at every so many-th change only, where each death takes long."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def prepare(self, turn: Rehearsal) -> None:
        """A turn will be played that is none of an earlier one that has died."""

    def begin(self, turn: Rehearsal) -> None:
        """It is run now, and is the one whose script and tools count in its session."""

    async def rest(self) -> None:
        """Wait until what was cancelled has come to its end."""
        await asyncio.sleep(0)

    async def leave(self, turn: Rehearsal) -> None:
        """Its session is not needed any more."""

    def run(self, whole: Coroutine[Any, Any, None]) -> None:
        """Run a check. Each has a loop of its own, unless the engine lives in one for longer."""
        asyncio.run(whole)


Played: TypeAlias = Engine | Cast
Made: TypeAlias = Played | Callable[[], AbstractAsyncContextManager[Played]]
"""What the fixture may give."""


@dataclass
class Stage:
    """The engine under test, who plays in front of it, and the turns that it was given."""

    cast: Cast
    turns: list[Rehearsal] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.cast.engine

    def needs_a_cast(self) -> None:
        if self.engine.own_tools and type(self.cast) is Cast:
            raise unittest.SkipTest(
                f"engine {self.engine.name} brings its own tools and asks its own model; give a cast that plays them"
            )

    def needs_our_tools(self, why: str) -> None:
        if self.engine.own_tools:
            raise unittest.SkipTest(f"engine {self.engine.name} brings its own tools: {why}")

    def deaths(self, shift: int = 0) -> Iterator[int]:
        """After how many changes a turn dies, until one has not. Checks that shift differ in what they leave out."""
        yield from range(1 + shift % self.cast.every, MOST_DEATHS, self.cast.every)
        raise AssertionError(f"a turn had {MOST_DEATHS} changes and did not come to its end")

    def turn(self, *arguments: Any, **settings: Any) -> Rehearsal:
        return self.follow(Rehearsal(*arguments, **settings))

    def follow(self, turn: Rehearsal) -> Rehearsal:
        """Have the questions of a turn looked at when the check is over."""
        self.turns.append(turn)
        self.cast.prepare(turn)
        return turn

    async def leave(self, turn: Rehearsal) -> None:
        await self.cast.leave(turn)

    async def play(self, turn: Rehearsal, given: Given, decide: Decide = approve) -> None:
        """Run a turn to its end, with persons who decide what is pending."""
        self.cast.begin(turn)
        for _ in range(ROUNDS):
            decided: list[Approval] = []
            persons = asyncio.create_task(_persons(turn, decide, decided))
            try:
                async with asyncio.timeout(SOON):
                    outcome = await self.engine.run(turn, given)
            finally:
                persons.cancel()
                await asyncio.wait([persons])
            if not persons.cancelled() and (error := persons.exception()) is not None:
                raise error
            if isinstance(outcome, Done):
                assert not turn.dead, "the engine has swallowed the death of the server"
                assert not turn.pending, f"done, but persons have to decide: {turn.pending}"
                return
            if not decided:
                assert turn.pending, "paused, but nothing is pending"
                decided = await decide(turn)
            given = Decisions(approvals=tuple(decided))
        raise AssertionError(f"paused {ROUNDS} times")

    async def dies(self, turn: Rehearsal, given: Given, decide: Decide = approve) -> None:
        """Run a turn until it dies, if it does."""
        try:
            await self.play(turn, given, decide)
        except Killed:
            assert turn.dead
            return
        assert not turn.dead, "the engine has swallowed the death of the server"

    async def cancel(self, turn: Rehearsal, given: Given, when: Callable[[], bool]) -> None:
        """Cancel a turn when something is true of it, as a server does."""
        working = await self.reach(turn, given, when)
        working.cancel()
        await asyncio.wait([working], timeout=SOON)
        assert working.cancelled(), f"a turn that was cancelled gave {working}"
        turn.abandon()

    async def reach(self, turn: Rehearsal, given: Given, when: Callable[[], bool]) -> asyncio.Task[Outcome]:
        """Begin a turn, and give it back when something is true of it."""
        self.cast.begin(turn)
        working = asyncio.create_task(self.engine.run(turn, given))
        reaching = asyncio.create_task(turn.until(when))
        try:
            await asyncio.wait([working, reaching], timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            assert when(), f"it did not come so far: {turn.records.told}"
        finally:
            reaching.cancel()
        return working

    def look(self) -> None:
        """Every question the model was asked must be one that providers accept."""
        for turn in self.turns:
            for question in turn.records.questions:
                valid(question)


async def _persons(turn: Rehearsal, decide: Decide, decided: list[Approval]) -> None:
    while True:
        await turn.until(lambda: bool(turn.pending))
        decided += await decide(turn)


def valid(question: Question) -> None:
    """A system prompt first, and after each message with calls one result for each of them, and nothing else."""
    messages = question.messages
    assert messages[0]["role"] == "system", f"no system prompt: {messages}"
    assert all(message["role"] != "system" for message in messages[1:]), f"a second system prompt: {messages}"
    open_calls: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, (
                f"a result that nothing asked for, or a second one: {messages}"
            )
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, f"calls without a result: {open_calls} in {messages}"
        for call in message.get("tool_calls") or ():
            assert call["id"] not in seen, f"a call appears twice: {call['id']} in {messages}"
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            seen.add(call["id"])
            open_calls.add(call["id"])
        assert message.get("content") or message.get("tool_calls"), f"an empty message: {messages}"
    assert not open_calls, f"calls without a result: {open_calls} in {messages}"
    assert messages[-1]["role"] != "assistant", f"the model is asked after its own words: {messages}"


def results(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if message["role"] == "tool"]


def pictures(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The addresses of all pictures."""
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def check(body: Callable[[Any, Stage], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a check a plain test function of the fixture `engine`."""

    def test(self: object, engine: Made) -> None:
        async def whole() -> None:
            async with asyncio.timeout(WHOLE_CHECK), AsyncExitStack() as stack:
                given = engine if isinstance(engine, Engine | Cast) else await stack.enter_async_context(engine())
                stage = Stage(given if isinstance(given, Cast) else Cast(given))
                try:
                    await body(self, stage)
                finally:
                    for turn in stage.turns:
                        await stage.leave(turn)
                stage.look()

        if isinstance(engine, Cast):
            engine.run(whole())
        else:
            asyncio.run(whole())

    test.__name__ = body.__name__
    test.__qualname__ = body.__qualname__
    test.__doc__ = inspect.getdoc(body)
    return test

"""Conditions and answers of a script have limits: tasks bring their own scripts, and sandboxes the texts."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddock.llm.providers.script_provider import MAX_LONG_SEARCHES, ScriptProvider
from paddock.llm.scripted_model.search_cost import UNBOUNDED, StepBoundedPattern
from paddock.llm.scripted_model.text_template import MAX_ANSWER_LENGTH
from paddock.llm.scripted_model.turn_conditions import MAX_STEPS_IN_PROCESS
from tests.unit.llm.scripted_model.script_helpers import (
    ask,
    continue_conversation,
    get_whole_answer,
    received,
    script,
    start_conversation,
    text_of,
)

CATASTROPHIC = "turns: [{when: {last: '(a+)+$'}, do: [say: hit]}]\notherwise: [say: none]"


@asynccontextmanager
async def event_loop_free() -> AsyncIterator[None]:
    """Fail if a step within the block holds the event loop for half a second."""
    longest = 0.0

    async def measure() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            longest = max(longest, time.perf_counter() - before)

    measuring = asyncio.create_task(measure())
    try:
        yield
    finally:
        measuring.cancel()
    assert longest < 0.5


async def refusal(provider: ScriptProvider, prompt: str) -> str:
    answer = await provider.send(ask(start_conversation(prompt)))
    assert answer.status == 400
    return b"".join(await received(answer)).decode()


@pytest.mark.anyio
async def test_catastrophic_patterns_time_out_without_blocking() -> None:
    provider = script(CATASTROPHIC)
    async with event_loop_free():
        for _ in range(MAX_LONG_SEARCHES):
            assert "take too long" in await refusal(provider, "a" * 40 + "b")
        started = time.monotonic()
        assert "take too long" in await refusal(provider, "a" * 40 + "b")
        assert time.monotonic() - started < 0.5  # Not tried again.
    await provider.close()


@pytest.mark.anyio
async def test_long_searches_run_in_a_worker() -> None:
    provider = script("turns: [{when: {last: 'x[^y]*y[^z]*z!'}, do: [say: 'found {{ match }}'.]}]".replace(".]", "]"))
    prompt = "x" * 300 + "y" * 300 + "z!"
    assert StepBoundedPattern("x[^y]*y[^z]*z!").most_steps(len(prompt)) > MAX_STEPS_IN_PROCESS
    assert text_of(await get_whole_answer(provider, start_conversation(prompt))) == f"found {prompt}"
    await provider.close()


@pytest.mark.anyio
async def test_many_turns_and_answers_do_not_block() -> None:
    turns = ",".join(f"{{when: {{last: 'number {number}!'}}, do: [say: a]}}" for number in range(2000))
    provider = script(f"turns: [{turns}]\notherwise: [say: none]")
    request = start_conversation("Go.")
    answer = await get_whole_answer(provider, request)
    for _ in range(150):
        request = continue_conversation(request, answer, "on")
    async with event_loop_free():
        await provider.send(ask(request))
    await provider.close()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?i)fastest growing|demonstration", "fastest growin " * 2000),
        (r"error in (\w+)", "error in " * 1000),
        ("[\u4e00-\u9fff]", "a" * 20_000),
        ("^(?![\\s\\S]*wrote [^\\n]{0,100}report)", "wrote " * 300),
        ("(?i)" + "a" * 50 + "b", "a" * 20_000),
        ("a?" * 9 + "a" * 9 + "b", "a" * 100),
    ],
)
def test_searches_within_the_bound_are_quick(pattern: str, text: str) -> None:
    bounded = StepBoundedPattern(pattern)
    assert bounded.most_steps(len(text)) <= MAX_STEPS_IN_PROCESS
    started = time.thread_time()
    re.search(pattern, text)
    assert time.thread_time() - started < 0.05


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("(a+)+$", 40),
        ("(a|aa)+$", 60),
        ("(a*)*b", 40),
        (".*.*.*x", 2000),
        ("(?:ab|a|b)*d", 60),
        (r"error in (\w+) of", 3000),
        ("(a?){40}b", 40),
    ],
)
def test_potentially_long_searches_exceed_the_bound(pattern: str, length: int) -> None:
    assert MAX_STEPS_IN_PROCESS < StepBoundedPattern(pattern).most_steps(length) <= UNBOUNDED


@pytest.mark.anyio
@pytest.mark.parametrize("action", ["{say: TEXT}", "{call: {tool: Bash, arguments: {command: TEXT}}}"])
async def test_answers_are_limited(action: str) -> None:
    action = action.replace("TEXT", "'" + "{{ prompt }}" * 60 + "'")
    provider = script(f"turns: [{{do: [{action}]}}]")
    assert len("x" * 10_000) * 60 < MAX_ANSWER_LENGTH
    answer = await get_whole_answer(provider, start_conversation("x" * 10_000))
    assert answer.parts
    assert f"{MAX_ANSWER_LENGTH:,}" in await refusal(provider, "x" * 60_000)


@pytest.mark.anyio
async def test_long_streams_do_not_block() -> None:
    provider = script(f"turns: [{{say: '{'word ' * (MAX_ANSWER_LENGTH // 5)}'}}]")
    async with event_loop_free():
        answer = await get_whole_answer(provider, start_conversation(stream=True))
    assert len(text_of(answer)) == MAX_ANSWER_LENGTH // 5 * 5

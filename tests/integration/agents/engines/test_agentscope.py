"""Specifics of the AgentScope engine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import sentinel

import pytest
from opentelemetry import trace

from paddock.agents.engines.agentscope import engine as agentscope_engine
from paddock.agents.engines.agentscope.engine import AgentScopeEngine
from paddock.agents.engines.base import ContinueTurn, TurnDone
from paddock.agents.engines.registry import EngineDependencies, EngineRegistry
from paddock.config.schema import Config
from paddock.errors import Unavailable
from paddock.model.sessions import CallResult, FileContent, TextContent
from paddock.testing.engines import EngineConformance
from paddock.testing.in_memory_turn import (
    InMemoryTurn,
    ScriptedCall,
    ScriptedReply,
    ServerKilled,
    make_tool,
    message_text,
)

ABSENT: Any = sentinel.not_needed
MEANS = EngineDependencies(Config(), ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT)
PICTURE = FileContent(type="image", file="cd" * 32, mime="image/png")

pytestmark = pytest.mark.anyio


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


@pytest.fixture
def engine() -> AgentScopeEngine:
    return AgentScopeEngine(MEANS)


class TestAgentScope(EngineConformance):
    """Keeps the contract of engines."""


async def test_it_is_found_by_its_name() -> None:
    engines = EngineRegistry.load(MEANS)
    assert isinstance(engines.get("agentscope"), AgentScopeEngine)
    await engines.close()


async def test_the_next_turn_asks_as_the_one_before_and_goes_on(engine: AgentScopeEngine) -> None:
    """So that providers find the beginning of the conversation in their caches."""

    async def look(arguments: Mapping[str, Any]) -> CallResult:
        return CallResult(content=(TextContent(text="the screen"), PICTURE))

    calls = [ScriptedCall("look", {"where": "ü"}), ScriptedCall("nowhere"), ScriptedCall("look", "{oh")]
    turn = InMemoryTurn(
        [ScriptedReply("I look.", thought="Hm.", calls=calls), "A cat.", "Black."], tools=[make_tool("look", look)]
    )
    await engine.run(turn, turn.receive_message([TextContent(text="What is there?"), PICTURE]))
    turn.write_message("Written while nobody listened.", role="note")
    again = turn.next_turn()
    await engine.run(again, again.receive_message("What colour?"))
    _, before, after = (question.messages for question in again.records.questions)
    assert after[: len(before)] == before
    assert [message_text(message) for message in after[len(before) :]] == [
        "A cat.",
        "[note] Written while nobody listened.",
        "What colour?",
    ]


async def test_thoughts_without_words_end_the_turn(engine: AgentScopeEngine) -> None:
    """The library would ask the same again, and be given the same answer for ever."""
    turn = InMemoryTurn([ScriptedReply(thought="Nothing to say.")])
    assert await engine.run(turn, turn.receive_message("Hi!")) == TurnDone()
    assert len(turn.records.questions) == 1


async def test_an_answer_of_nothing_is_not_repeated_to_the_model(engine: AgentScopeEngine) -> None:
    turn = InMemoryTurn([ScriptedReply(), "Yes?"])
    await engine.run(turn, turn.receive_message("Hi!"))
    turn = turn.next_turn()
    await engine.run(turn, turn.receive_message("Anybody there?"))
    assert [message["role"] for message in turn.records.questions[-1].messages] == ["system", "user", "user"]


async def test_results_are_given_to_the_model_as_they_are(engine: AgentScopeEngine) -> None:
    """The library would cut them, and repair the arguments of calls."""
    long = "x" * 300_000

    async def write(arguments: Mapping[str, Any]) -> str:
        return long

    turn = InMemoryTurn(
        [ScriptedReply(calls=[ScriptedCall("write", {"n": "1", "also": None})]), "Done."],
        tools=[make_tool("write", write)],
    )
    await engine.run(turn, turn.receive_message("Write."))
    assert message_text(turn.records.questions[-1].messages[-1]) == long
    assert turn.runs_of("write") == [{"n": "1", "also": None}]


async def test_a_long_turn_is_not_cut_short(engine: AgentScopeEngine) -> None:
    """The library has a limit of its own, and hints that it puts in."""
    script: list[ScriptedReply | str] = [ScriptedReply(calls=[ScriptedCall("add", {"n": n})]) for n in range(60)]
    turn = InMemoryTurn([*script, "Done."], tools=[make_tool("add", echo)])
    await engine.run(turn, turn.receive_message("Count."))
    assert len(turn.records.questions) == 61
    assert turn.records.messages[-1].text == "Done."
    roles = [message["role"] for message in turn.records.questions[-1].messages]
    assert roles == ["system", "user", *["assistant", "tool"] * 60]


async def test_an_older_place_is_not_gone_back_to(engine: AgentScopeEngine) -> None:
    """A turn that was cancelled within a question, and a message after it: the question is not asked again."""
    turn = InMemoryTurn([ScriptedReply("Half", never_ends=True)])
    working = asyncio.create_task(engine.run(turn, turn.receive_message("A story!")))
    async with asyncio.timeout(10):
        await turn.wait_until(lambda: bool(turn.records.state) and bool(turn.records.questions))
        working.cancel()
        await asyncio.wait([working])
    turn = turn.next_turn(["Paris."])
    await engine.run(turn, turn.receive_message("The capital of France?"))
    assert [question.text for question in turn.records.questions] == ["A story!", "The capital of France?"]
    assert json.loads(turn.records.state or b"")["turn"] == 2


async def test_another_prompt_and_other_tools_after_a_restart(engine: AgentScopeEngine) -> None:
    """Answered questions are repeated unchanged; later questions use the new prompt and tools."""
    script: list[ScriptedReply | str] = [ScriptedReply(calls=[ScriptedCall("add", {"n": 1})]), "Done."]
    for crash_after in range(1, 7):
        turn = InMemoryTurn(
            script, tools=[make_tool("add", echo), make_tool("gone", echo)], prompt="Old.", crash_after=crash_after
        )
        with pytest.raises(ServerKilled):
            await engine.run(turn, turn.receive_message("Add one."))
        await engine.run(
            turn.after_restart(prompt="New.", tools=[make_tool("add", echo)]), ContinueTurn(cause="restart")
        )
        assert len(turn.runs_of("add")) <= 1
        assert len([message for message in turn.records.messages if message.calls]) == 1
        assert turn.records.messages[-1].text == "Done."
        last = turn.records.questions[-1]
        assert (message_text(last.messages[0]), last.tools) in [("New.", ["add"]), ("Old.", ["add", "gone"])]


async def test_a_place_that_cannot_be_read(engine: AgentScopeEngine) -> None:
    """Ends the turn it belongs to, and is no harm to the next; nor is what another engine has saved."""
    turn = InMemoryTurn(["Hello.", "Hello again."])
    turn.receive_message("Hi!")
    turn.records.state = json.dumps({"turn": 1, "state": {"context": "?"}}).encode()
    with pytest.raises(Unavailable, match="send a message"):
        await engine.run(turn, ContinueTurn(cause="restart"))
    for strange in (turn.records.state, b"\x80 not JSON", b"[]"):
        turn = turn.next_turn(["Hello."])
        turn.records.state = strange
        await engine.run(turn, turn.receive_message("Hi!"))
        assert turn.records.messages[-1].text == "Hello."


async def test_a_turn_that_is_over_goes_on_only_when_somebody_asks_for_it(engine: AgentScopeEngine) -> None:
    turn = InMemoryTurn(["One.", "Two."])
    await engine.run(turn, turn.receive_message("Count!"))
    restarted = turn.after_restart()
    assert await engine.run(restarted, ContinueTurn(cause="restart")) == TurnDone()
    assert restarted.changes == 0
    assert await engine.run(turn.after_restart(), ContinueTurn()) == TurnDone()
    said = [message_text(message) for message in turn.records.questions[-1].messages[1:]]
    assert said == ["Count!", "One.", "[note] Go on from where you were."]
    assert turn.records.messages[-1].text == "Two."


async def test_it_is_quiet(engine: AgentScopeEngine, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing on the terminal, no files, no tracing."""
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        turn = InMemoryTurn([ScriptedReply(calls=[ScriptedCall("nowhere")]), Unavailable("the model is away")])
        with pytest.raises(Unavailable):
            await engine.run(turn, turn.receive_message("Hi!"))
    finally:
        os.chdir(here)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert not hasattr(trace.get_tracer_provider(), "add_span_processor")


async def test_cancelled_between_an_answer_and_its_calls(
    engine: AgentScopeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes a cancellation back that meets it there, and would run the calls."""
    asked = asyncio.Event()
    allowed = agentscope_engine._ExternalTool.check_permissions

    async def slowly(*arguments: Any) -> Any:
        asked.set()
        await asyncio.sleep(0.05)
        return await allowed(*arguments)

    monkeypatch.setattr(agentscope_engine._ExternalTool, "check_permissions", slowly)
    calls = [ScriptedCall("do", {"n": number}) for number in range(2)]
    turn = InMemoryTurn([ScriptedReply(calls=calls), "Done."], tools=[make_tool("do", echo)])
    working = asyncio.create_task(engine.run(turn, turn.receive_message("Do both.")))
    async with asyncio.timeout(10):
        await asked.wait()
        working.cancel()
        await asyncio.wait([working])
    assert working.cancelled() and turn.runs_of("do") == [] and len(turn.records.questions) == 1

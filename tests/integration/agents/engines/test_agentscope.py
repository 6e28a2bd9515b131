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
DEPENDENCIES = EngineDependencies(Config(), ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT)
PICTURE = FileContent(type="image", file="cd" * 32, mime="image/png")

pytestmark = pytest.mark.anyio


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


@pytest.fixture
def engine() -> AgentScopeEngine:
    return AgentScopeEngine(DEPENDENCIES)


class TestAgentScope(EngineConformance):
    """All conformance checks."""


async def test_engine_is_found_by_name() -> None:
    engines = EngineRegistry.load(DEPENDENCIES)
    assert isinstance(engines.get("agentscope"), AgentScopeEngine)
    await engines.close()


async def test_next_question_extends_the_previous_one(engine: AgentScopeEngine) -> None:
    """A stable prefix keeps prompt caches of providers valid."""

    async def look(arguments: Mapping[str, Any]) -> CallResult:
        return CallResult(content=(TextContent(text="the screen"), PICTURE))

    calls = [ScriptedCall("look", {"where": "ü"}), ScriptedCall("nowhere"), ScriptedCall("look", "{oh")]
    turn = InMemoryTurn(
        [ScriptedReply("I look.", thought="Hm.", calls=calls), "A cat.", "Black."], tools=[make_tool("look", look)]
    )
    await engine.run(turn, turn.receive_message([TextContent(text="What is there?"), PICTURE]))
    turn.write_message("Written while nobody listened.", role="note")
    next_turn = turn.next_turn()
    await engine.run(next_turn, next_turn.receive_message("What colour?"))
    _, before, after = (question.messages for question in next_turn.records.questions)
    assert after[: len(before)] == before
    assert [message_text(message) for message in after[len(before) :]] == [
        "A cat.",
        "[note] Written while nobody listened.",
        "What colour?",
    ]


async def test_reply_with_thoughts_only_ends_the_turn(engine: AgentScopeEngine) -> None:
    """The library would repeat the question forever."""
    turn = InMemoryTurn([ScriptedReply(thought="Nothing to say.")])
    assert await engine.run(turn, turn.receive_message("Hi!")) == TurnDone()
    assert len(turn.records.questions) == 1


async def test_empty_reply_is_not_sent_back_to_the_model(engine: AgentScopeEngine) -> None:
    turn = InMemoryTurn([ScriptedReply(), "Yes?"])
    await engine.run(turn, turn.receive_message("Hi!"))
    turn = turn.next_turn()
    await engine.run(turn, turn.receive_message("Anybody there?"))
    assert [message["role"] for message in turn.records.questions[-1].messages] == ["system", "user", "user"]


async def test_results_reach_the_model_unchanged(engine: AgentScopeEngine) -> None:
    """The library would cut results and repair arguments."""
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


async def test_long_turn_is_not_cut_short(engine: AgentScopeEngine) -> None:
    """The library has its own step limit and adds hints."""
    script: list[ScriptedReply | str] = [ScriptedReply(calls=[ScriptedCall("add", {"n": n})]) for n in range(60)]
    turn = InMemoryTurn([*script, "Done."], tools=[make_tool("add", echo)])
    await engine.run(turn, turn.receive_message("Count."))
    assert len(turn.records.questions) == 61
    assert turn.records.messages[-1].text == "Done."
    roles = [message["role"] for message in turn.records.questions[-1].messages]
    assert roles == ["system", "user", *["assistant", "tool"] * 60]


async def test_question_of_cancelled_turn_is_not_repeated(engine: AgentScopeEngine) -> None:
    """The next message is answered without repeating the question of the cancelled turn."""
    turn = InMemoryTurn([ScriptedReply("Half", never_ends=True)])
    run_task = asyncio.create_task(engine.run(turn, turn.receive_message("A story!")))
    async with asyncio.timeout(10):
        await turn.wait_until(lambda: bool(turn.records.state) and bool(turn.records.questions))
        run_task.cancel()
        await asyncio.wait([run_task])
    turn = turn.next_turn(["Paris."])
    await engine.run(turn, turn.receive_message("The capital of France?"))
    assert [question.text for question in turn.records.questions] == ["A story!", "The capital of France?"]
    assert json.loads(turn.records.state or b"")["turn"] == 2


async def test_prompt_and_tools_may_change_at_restart(engine: AgentScopeEngine) -> None:
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


async def test_unreadable_state_ends_only_its_turn(engine: AgentScopeEngine) -> None:
    """State of a newer version or of another engine does not affect the next turn."""
    turn = InMemoryTurn(["Hello.", "Hello again."])
    turn.receive_message("Hi!")
    turn.records.state = json.dumps({"turn": 1, "state": {"context": "?"}}).encode()
    with pytest.raises(Unavailable, match="send a message"):
        await engine.run(turn, ContinueTurn(cause="restart"))
    for invalid_state in (turn.records.state, b"\x80 not JSON", b"[]"):
        turn = turn.next_turn(["Hello."])
        turn.records.state = invalid_state
        await engine.run(turn, turn.receive_message("Hi!"))
        assert turn.records.messages[-1].text == "Hello."


async def test_finished_turn_continues_only_on_request(engine: AgentScopeEngine) -> None:
    turn = InMemoryTurn(["One.", "Two."])
    await engine.run(turn, turn.receive_message("Count!"))
    restarted = turn.after_restart()
    assert await engine.run(restarted, ContinueTurn(cause="restart")) == TurnDone()
    assert restarted.changes == 0
    assert await engine.run(turn.after_restart(), ContinueTurn()) == TurnDone()
    texts = [message_text(message) for message in turn.records.questions[-1].messages[1:]]
    assert texts == ["Count!", "One.", "[note] Go on from where you were."]
    assert turn.records.messages[-1].text == "Two."


async def test_engine_writes_no_output_or_files(
    engine: AgentScopeEngine, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing on the terminal, no files, no tracing."""
    working_directory = Path.cwd()
    os.chdir(tmp_path)
    try:
        turn = InMemoryTurn([ScriptedReply(calls=[ScriptedCall("nowhere")]), Unavailable("the model is away")])
        with pytest.raises(Unavailable):
            await engine.run(turn, turn.receive_message("Hi!"))
    finally:
        os.chdir(working_directory)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert not hasattr(trace.get_tracer_provider(), "add_span_processor")


async def test_turn_cancelled_between_reply_and_calls(
    engine: AgentScopeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library swallows a cancellation at this point, and would run the calls."""
    check_started = asyncio.Event()
    check_permissions = agentscope_engine._ExternalTool.check_permissions

    async def check_slowly(*arguments: Any) -> Any:
        check_started.set()
        await asyncio.sleep(0.05)
        return await check_permissions(*arguments)

    monkeypatch.setattr(agentscope_engine._ExternalTool, "check_permissions", check_slowly)
    calls = [ScriptedCall("do", {"n": number}) for number in range(2)]
    turn = InMemoryTurn([ScriptedReply(calls=calls), "Done."], tools=[make_tool("do", echo)])
    run_task = asyncio.create_task(engine.run(turn, turn.receive_message("Do both.")))
    async with asyncio.timeout(10):
        await check_started.wait()
        run_task.cancel()
        await asyncio.wait([run_task])
    assert run_task.cancelled() and turn.runs_of("do") == [] and len(turn.records.questions) == 1

"""Edge cases of agent programs over ACP, with an obedient program in real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.acp.agent_process import AgentProcess, AgentProgramError, AgentProgramGone
from paddock.agents.engines.base import ContinueTurn, TurnDone
from paddock.errors import InvalidInput, PaddockError
from paddock.model.session_events import CallRunning, MessageEnded, PlanChanged, SessionSandbox
from paddock.model.sessions import FileContent, SessionUsage, TextContent
from paddock.testing.in_memory_turn import InMemoryTurn, ServerKilled

from ...fleet.conftest import data
from .acp_harness import AcpHarness, agent_texts, call_results, make_session, open_acp_harness, until, wait_for_pending

__all__ = ["data"]
pytestmark = pytest.mark.anyio
SESSION = make_session("obedient")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.fixture
async def bench(data: Path) -> AsyncIterator[AcpHarness]:
    async with open_acp_harness(data) as running:
        yield running


def begin(**more: Any) -> InMemoryTurn:
    return InMemoryTurn(session=SESSION, **more)


async def test_it_says_what_the_program_says(bench: AcpHarness) -> None:
    turn = begin()
    assert await bench.says(turn, "think hm\nsay Hello there\nplan one two") == TurnDone()
    assert agent_texts(turn) == ["Hello there"]
    assert turn.records.messages[-1].thought == "hm"
    (plan,) = turn.events_of(PlanChanged)
    assert [(step.title, step.state) for step in plan.steps] == [("one", "running"), ("two", "running")]
    ready = [event for event in turn.events_of(SessionSandbox) if event.state == "ready"]
    assert [event.sandbox_id for event in ready] == [sandbox.id for sandbox in await bench.sandboxes(SESSION)]


async def test_the_next_turn_is_the_same_process_and_session(bench: AcpHarness) -> None:
    turn = begin()
    await bench.says(turn, "say one")
    turn = turn.next_turn()
    await bench.says(turn, "say two")
    assert agent_texts(turn) == ["one", "two"]
    assert len(await bench.noted(SESSION, "started")) == 1
    assert len(await bench.noted(SESSION, "new")) == 1
    assert (await bench.noted(SESSION, "prompt"))[1] == "say two"


async def test_messages_end_where_calls_begin(bench: AcpHarness) -> None:
    turn = begin(ask=["code_execute"])
    working = asyncio.create_task(bench.says(turn, "say first\nrun ls\nsay then\nquiet a.txt\nsay last"))
    (approval,) = await wait_for_pending(turn)
    assert (approval.name, approval.arguments, approval.question) == ("code_execute", {"command": "ls"}, "Run ls")
    assert [choice.id for choice in approval.choices] == ["always", "yes", "no"]
    await turn.decide(approval)
    assert await working == TurnDone()
    spoken = [message for message in turn.records.messages if message.role == "assistant"]
    assert [(message.text.strip(), [call.name for call in message.calls]) for message in spoken] == [
        ("first", ["code_execute"]),
        ("then", ["code_read"]),
        ("last", []),
    ]
    assert call_results(turn) == {"ls": "ls: ran", "code_read": "code_read: ran"} | {"code_read": "a.txt: ran"}
    assert await bench.noted(SESSION, "answer") == [{"outcome": "selected", "optionId": "yes"}]
    assert len(turn.events_of(CallRunning)) == 2


async def test_a_refusal_with_a_reason_does_not_go_on_for_ever(data: Path) -> None:
    async with open_acp_harness(data, repeats=2) as bench:
        turn = begin(deny=["code_execute"])
        # The reason is part of the next prompt, which the program takes for an order.
        turn.denied = ("code_execute",)
        await bench.says(turn, "run rm")
        assert len(await bench.noted(SESSION, "prompt")) <= 3


async def test_no_files_are_read_for_it(bench: AcpHarness) -> None:
    turn = begin()
    await bench.says(turn, "files")
    assert agent_texts(turn) == ["-32601"]


async def test_an_error_ends_the_turn_and_the_next_works(bench: AcpHarness) -> None:
    turn = begin()
    with pytest.raises(AgentProgramError, match="Internal error: no credit") as caught:
        await bench.says(turn, "say before\nerror no credit")
    assert caught.value.code == "AGENT_ERROR"
    turn = turn.next_turn()
    assert await bench.says(turn, "say better") == TurnDone()
    assert agent_texts(turn) == ["before", "better"]
    assert len(await bench.noted(SESSION, "started")) == 1


async def test_a_program_that_dies_is_started_anew_with_its_session(bench: AcpHarness) -> None:
    turn = begin()
    with pytest.raises(AgentProgramGone, match="exit code 3: I have had enough"):
        await bench.says(turn, "say so\ndie")
    turn = turn.next_turn()
    assert await bench.says(turn, "say again") == TurnDone()
    assert await bench.noted(SESSION, "loaded") == ["session-1"]
    assert "this was said before" not in str(agent_texts(turn))
    assert agent_texts(turn)[-1] == "again"


async def test_a_sandbox_that_is_gone_is_made_anew_and_the_session_goes_on(bench: AcpHarness) -> None:
    turn = begin()
    await bench.says(turn, "say one")
    await bench.run("echo kept > /workspace/file", SESSION)
    (sandbox,) = await bench.sandboxes(SESSION)
    await bench.means.fleet.delete(sandbox.tenant, sandbox.id)
    turn = turn.next_turn()
    assert await bench.says(turn, "say two") == TurnDone()
    assert agent_texts(turn) == ["one", "two"]
    assert await bench.noted(SESSION, "loaded") == ["session-1"]
    assert await bench.run("cat /workspace/file", SESSION) == "kept\n"


async def test_pictures_reach_the_program_and_files_its_sandbox(bench: AcpHarness) -> None:
    turn = begin()
    files = bench.engine._files
    picture = await files.store_file(SESSION.id, PNG, name="a.png")
    table = await files.store_file(SESSION.id, b"1,2\n", name="table.csv")
    assert isinstance(picture, FileContent)
    await bench.talk(turn, turn.receive_message((TextContent(text="say seen"), picture, table)))
    assert await bench.noted(SESSION, "images") == [["image/png"]]
    (prompt,) = await bench.noted(SESSION, "prompt")
    path = prompt.rpartition(" is at ")[2].rstrip("]")
    assert await bench.run(f"cat {path}", SESSION) == "1,2\n"


async def test_cancelled_within_a_message_it_stops_and_can_go_on(bench: AcpHarness) -> None:
    turn = begin()
    working = asyncio.create_task(bench.says(turn, "say half a\nwait never\nsay more"))
    await until(lambda: _heard(turn, "half"))
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await bench.noted(SESSION, "cancel") == [True]
    (ended,) = turn.events_of(MessageEnded)
    assert (ended.text.strip(), ended.cut) == ("half a", "cancelled")
    turn = turn.next_turn()
    assert await bench.says(turn, "say whole") == TurnDone()
    assert agent_texts(turn) == ["whole"]
    assert len(await bench.noted(SESSION, "started")) == 1


async def test_cancelled_while_a_person_is_asked(bench: AcpHarness) -> None:
    turn = begin(ask=["code_execute"])
    working = asyncio.create_task(bench.says(turn, "run ls\nsay more"))
    await wait_for_pending(turn)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    turn.abandon_calls()
    assert await bench.noted(SESSION, "answer") == [{"outcome": "cancelled"}]
    turn = turn.next_turn()
    assert await bench.says(turn, "say whole") == TurnDone()
    assert agent_texts(turn) == ["whole"]


async def test_a_program_that_does_not_stop_is_ended_with_its_children(bench: AcpHarness) -> None:
    turn = begin()
    working = asyncio.create_task(bench.says(turn, "child 987\nsay x\ndeaf"))
    await until(lambda: _heard(turn, "x"))
    working.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await working
    await until(lambda: _nobody(bench, "sleep 987"))
    turn = turn.next_turn()
    assert await bench.says(turn, "say whole") == TurnDone()
    assert await bench.noted(SESSION, "loaded") == ["session-1"]


async def test_asked_to_go_on_it_does(bench: AcpHarness) -> None:
    turn = begin()
    await bench.says(turn, "say one")
    assert await bench.talk(turn.after_restart(), ContinueTurn()) == TurnDone()
    assert (await bench.noted(SESSION, "prompt"))[1] == "Continue."


async def test_a_new_server_reads_on_where_the_old_one_was(data: Path) -> None:
    async with open_acp_harness(data) as bench:
        turn = begin()
        working = asyncio.create_task(
            bench.says(turn, "say before\nquiet a\nsay half\nwait go\nsay way\nquiet b\nsay after")
        )
        await until(lambda: _heard(turn, "half"))
        turn.is_dead = True
    await gone(working)
    async with open_acp_harness(data) as bench:
        # Output during a disconnect is not lost.
        await bench.run("touch /workspace/go", SESSION)
        turn = turn.after_restart()
        # Nor if it was the last that its budget allowed.
        spent = {"budget": 100, "usage": SessionUsage(requests=1, input_tokens=90, output_tokens=20)}
        turn.session = SESSION.model_copy(update=spent)
        assert await bench.talk(turn, ContinueTurn(cause="restart")) == TurnDone()
        assert agent_texts(turn) == ["before", "half way", "after"]
        assert len(await bench.noted(SESSION, "prompt")) == 1
        assert len(await bench.noted(SESSION, "started")) == 1
        assert len(turn.records.ledger) == 2


async def test_a_decision_after_a_restart_reaches_the_same_process(data: Path) -> None:
    async with open_acp_harness(data) as bench:
        turn = begin(ask=["code_execute"])
        working = asyncio.create_task(bench.says(turn, "say a\nboth x y\nsay b"))
        first, second = await wait_for_pending(turn, 2)
        turn.is_dead = True
    await gone(working)
    async with open_acp_harness(data) as bench:
        turn = turn.after_restart()
        await turn.decide(first)
        working = asyncio.create_task(bench.talk(turn, turn.decisions(first)))
        await until(lambda: bench.noted(SESSION, "answer"))
        await turn.decide(second, "reject")
        assert await working == TurnDone()
        assert [answer["optionId"] for answer in await bench.noted(SESSION, "answer")] == ["yes", "no"]
        assert agent_texts(turn) == ["a", "b"]
        assert len(turn.records.approvals) == 2


async def test_after_a_restart_a_program_that_has_died_goes_on(data: Path) -> None:
    async with open_acp_harness(data) as bench:
        turn = begin()
        working = asyncio.create_task(bench.says(turn, "quiet a\nsay half\nwait never"))
        await until(lambda: _heard(turn, "half"))
        turn.is_dead = True
        await bench.run("pkill -f '[o]bedient_agent'", SESSION)
    await gone(working)
    async with open_acp_harness(data) as bench:
        turn = turn.after_restart()
        assert await bench.talk(turn, ContinueTurn(cause="restart")) == TurnDone()
        assert (await bench.noted(SESSION, "prompt"))[-1] == "Continue."
        assert await bench.noted(SESSION, "loaded") == ["session-1"]


async def test_an_agent_that_is_unknown_is_told_with_those_that_are(bench: AcpHarness) -> None:
    turn = InMemoryTurn(session=make_session("nobody"))
    with pytest.raises(InvalidInput, match="claude-code, codex"):
        await bench.says(turn, "say x")


async def gone(working: asyncio.Task[Any]) -> None:
    """Simulate a killed server: nothing is recorded any more, and its connections are cut."""
    async with asyncio.timeout(10):
        with pytest.raises((ServerKilled, PaddockError)):
            await working


async def _heard(turn: InMemoryTurn, word: str) -> bool:
    return any(word in str(getattr(event, "text", "")) for event in turn.records.events)


async def _nobody(bench: AcpHarness, words: str) -> bool:
    return await bench.run(f"pgrep -xf '{words}' || true", SESSION) == ""


async def test_what_was_written_before_anybody_read_it_is_told_with_the_next(bench: AcpHarness) -> None:
    turn = begin()
    await bench.says(turn, "say one")
    turn = turn.next_turn()
    turn.write_message("say never")
    turn = turn.next_turn()
    await bench.says(turn, "say three")
    assert agent_texts(turn) == ["one", "never three"]
    turn = turn.next_turn()
    await bench.says(turn, "say four")
    assert agent_texts(turn) == ["one", "never three", "four"], "and once"


async def test_what_was_cancelled_before_it_was_sent_is_told_with_the_next(
    bench: AcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = begin()
    await bench.says(turn, "say one")
    turn = turn.next_turn()
    sending = asyncio.Event()

    async def stuck(*_: Any) -> None:
        sending.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as slow:
        slow.setattr(AgentProcess, "send_line", stuck)
        working = asyncio.create_task(bench.says(turn, "say never"))
        async with asyncio.timeout(30):
            await sending.wait()
        working.cancel()
        await asyncio.wait([working])
    turn = turn.next_turn()
    await bench.says(turn, "say two")
    assert "say never" in (await bench.noted(SESSION, "prompt"))[-1]


async def test_what_nobody_can_keep_does_not_end_the_turn(bench: AcpHarness) -> None:
    turn = begin()
    assert await bench.says(turn, "say before\nodd\nsay after") == TurnDone()
    assert agent_texts(turn) == ["before", "after"]
    assert await bench.noted(SESSION, "refused") == [-32602]


async def test_a_sandbox_that_is_made_for_nobody_is_ended(bench: AcpHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    making = asyncio.Event()
    create = bench.means.fleet.create

    async def admitted(*arguments: Any) -> Any:
        await asyncio.sleep(0.5)
        return await create(*arguments)

    async def slowly(*arguments: Any) -> Any:
        making.set()
        # As a fleet does, which finishes what it has begun.
        return await asyncio.shield(asyncio.ensure_future(admitted(*arguments)))

    monkeypatch.setattr(bench.means.fleet, "create", slowly)
    turn = begin()
    working = asyncio.create_task(bench.says(turn, "say one"))
    async with asyncio.timeout(30):
        await making.wait()
        working.cancel()
        await asyncio.wait([working])
        await bench.engine.release(SESSION)
        await asyncio.sleep(1)
    assert await bench.sandboxes(SESSION) == []

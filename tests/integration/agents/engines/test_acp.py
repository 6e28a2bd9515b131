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
async def harness(data: Path) -> AsyncIterator[AcpHarness]:
    async with open_acp_harness(data) as running:
        yield running


def start_turn(**settings: Any) -> InMemoryTurn:
    return InMemoryTurn(session=SESSION, **settings)


async def test_output_of_program_becomes_messages(harness: AcpHarness) -> None:
    turn = start_turn()
    assert await harness.run_prompt(turn, "think hm\nsay Hello there\nplan one two") == TurnDone()
    assert agent_texts(turn) == ["Hello there"]
    assert turn.records.messages[-1].thought == "hm"
    (plan,) = turn.events_of(PlanChanged)
    assert [(step.title, step.state) for step in plan.steps] == [("one", "running"), ("two", "running")]
    ready = [event for event in turn.events_of(SessionSandbox) if event.state == "ready"]
    assert [event.sandbox_id for event in ready] == [sandbox.id for sandbox in await harness.sandboxes(SESSION)]


async def test_next_turn_uses_same_process_and_session(harness: AcpHarness) -> None:
    turn = start_turn()
    await harness.run_prompt(turn, "say one")
    turn = turn.next_turn()
    await harness.run_prompt(turn, "say two")
    assert agent_texts(turn) == ["one", "two"]
    assert len(await harness.log_entries(SESSION, "started")) == 1
    assert len(await harness.log_entries(SESSION, "new")) == 1
    assert (await harness.log_entries(SESSION, "prompt"))[1] == "say two"


async def test_message_ends_where_calls_begin(harness: AcpHarness) -> None:
    turn = start_turn(ask=["code_execute"])
    run_task = asyncio.create_task(harness.run_prompt(turn, "say first\nrun ls\nsay then\nquiet a.txt\nsay last"))
    (approval,) = await wait_for_pending(turn)
    assert (approval.name, approval.arguments, approval.question) == ("code_execute", {"command": "ls"}, "Run ls")
    assert [choice.id for choice in approval.choices] == ["always", "yes", "no"]
    await turn.decide(approval)
    assert await run_task == TurnDone()
    messages = [message for message in turn.records.messages if message.role == "assistant"]
    assert [(message.text.strip(), [call.name for call in message.calls]) for message in messages] == [
        ("first", ["code_execute"]),
        ("then", ["code_read"]),
        ("last", []),
    ]
    assert call_results(turn) == {"ls": "ls: ran", "code_read": "code_read: ran"} | {"code_read": "a.txt: ran"}
    assert await harness.log_entries(SESSION, "answer") == [{"outcome": "selected", "optionId": "yes"}]
    assert len(turn.events_of(CallRunning)) == 2


async def test_prompts_about_refusals_are_limited(data: Path) -> None:
    async with open_acp_harness(data, repeats=2) as harness:
        turn = start_turn(deny=["code_execute"])
        # The reason is part of the next prompt, which the program executes as a command.
        turn.denied = ("code_execute",)
        await harness.run_prompt(turn, "run rm")
        assert len(await harness.log_entries(SESSION, "prompt")) <= 3


async def test_file_requests_of_program_are_refused(harness: AcpHarness) -> None:
    turn = start_turn()
    await harness.run_prompt(turn, "files")
    assert agent_texts(turn) == ["-32601"]


async def test_program_error_ends_turn_and_next_turn_works(harness: AcpHarness) -> None:
    turn = start_turn()
    with pytest.raises(AgentProgramError, match="Internal error: no credit") as raised:
        await harness.run_prompt(turn, "say before\nerror no credit")
    assert raised.value.code == "AGENT_ERROR"
    turn = turn.next_turn()
    assert await harness.run_prompt(turn, "say better") == TurnDone()
    assert agent_texts(turn) == ["before", "better"]
    assert len(await harness.log_entries(SESSION, "started")) == 1


async def test_crashed_program_is_restarted_with_its_session(harness: AcpHarness) -> None:
    turn = start_turn()
    with pytest.raises(AgentProgramGone, match="exit code 3: I have had enough"):
        await harness.run_prompt(turn, "say so\ndie")
    turn = turn.next_turn()
    assert await harness.run_prompt(turn, "say again") == TurnDone()
    assert await harness.log_entries(SESSION, "loaded") == ["session-1"]
    assert "this was said before" not in str(agent_texts(turn))
    assert agent_texts(turn)[-1] == "again"


async def test_session_continues_in_new_sandbox(harness: AcpHarness) -> None:
    turn = start_turn()
    await harness.run_prompt(turn, "say one")
    await harness.run_command("echo kept > /workspace/file", SESSION)
    (sandbox,) = await harness.sandboxes(SESSION)
    await harness.dependencies.fleet.delete(sandbox.tenant, sandbox.id)
    turn = turn.next_turn()
    assert await harness.run_prompt(turn, "say two") == TurnDone()
    assert agent_texts(turn) == ["one", "two"]
    assert await harness.log_entries(SESSION, "loaded") == ["session-1"]
    assert await harness.run_command("cat /workspace/file", SESSION) == "kept\n"


async def test_images_reach_program_and_files_its_sandbox(harness: AcpHarness) -> None:
    turn = start_turn()
    files = harness.engine._files
    image = await files.store_file(SESSION.id, PNG, name="a.png")
    table = await files.store_file(SESSION.id, b"1,2\n", name="table.csv")
    assert isinstance(image, FileContent)
    await harness.run_turn(turn, turn.receive_message((TextContent(text="say seen"), image, table)))
    assert await harness.log_entries(SESSION, "images") == [["image/png"]]
    (prompt,) = await harness.log_entries(SESSION, "prompt")
    path = prompt.rpartition(" is at ")[2].rstrip("]")
    assert await harness.run_command(f"cat {path}", SESSION) == "1,2\n"


async def test_turn_cancelled_during_message_can_be_followed(harness: AcpHarness) -> None:
    turn = start_turn()
    run_task = asyncio.create_task(harness.run_prompt(turn, "say half a\nwait never\nsay more"))
    await until(lambda: _has_text(turn, "half"))
    run_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_task
    assert await harness.log_entries(SESSION, "cancel") == [True]
    (ended,) = turn.events_of(MessageEnded)
    assert (ended.text.strip(), ended.cut) == ("half a", "cancelled")
    turn = turn.next_turn()
    assert await harness.run_prompt(turn, "say whole") == TurnDone()
    assert agent_texts(turn) == ["whole"]
    assert len(await harness.log_entries(SESSION, "started")) == 1


async def test_turn_cancelled_during_pending_approval(harness: AcpHarness) -> None:
    turn = start_turn(ask=["code_execute"])
    run_task = asyncio.create_task(harness.run_prompt(turn, "run ls\nsay more"))
    await wait_for_pending(turn)
    run_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_task
    turn.abandon_calls()
    assert await harness.log_entries(SESSION, "answer") == [{"outcome": "cancelled"}]
    turn = turn.next_turn()
    assert await harness.run_prompt(turn, "say whole") == TurnDone()
    assert agent_texts(turn) == ["whole"]


async def test_unresponsive_program_is_killed_with_its_children(harness: AcpHarness) -> None:
    turn = start_turn()
    run_task = asyncio.create_task(harness.run_prompt(turn, "child 987\nsay x\ndeaf"))
    await until(lambda: _has_text(turn, "x"))
    run_task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await run_task
    await until(lambda: _is_not_running(harness, "sleep 987"))
    turn = turn.next_turn()
    assert await harness.run_prompt(turn, "say whole") == TurnDone()
    assert await harness.log_entries(SESSION, "loaded") == ["session-1"]


async def test_continue_turn_prompts_the_program(harness: AcpHarness) -> None:
    turn = start_turn()
    await harness.run_prompt(turn, "say one")
    assert await harness.run_turn(turn.after_restart(), ContinueTurn()) == TurnDone()
    assert (await harness.log_entries(SESSION, "prompt"))[1] == "Continue."


async def test_restarted_server_reads_on_from_saved_cursor(data: Path) -> None:
    async with open_acp_harness(data) as harness:
        turn = start_turn()
        run_task = asyncio.create_task(
            harness.run_prompt(turn, "say before\nquiet a\nsay half\nwait go\nsay way\nquiet b\nsay after")
        )
        await until(lambda: _has_text(turn, "half"))
        turn.is_dead = True
    await expect_killed(run_task)
    async with open_acp_harness(data) as harness:
        # Output during a disconnect is not lost.
        await harness.run_command("touch /workspace/go", SESSION)
        turn = turn.after_restart()
        # The output is read even if the budget is spent now.
        changes = {"budget": 100, "usage": SessionUsage(requests=1, input_tokens=90, output_tokens=20)}
        turn.session = SESSION.model_copy(update=changes)
        assert await harness.run_turn(turn, ContinueTurn(cause="restart")) == TurnDone()
        assert agent_texts(turn) == ["before", "half way", "after"]
        assert len(await harness.log_entries(SESSION, "prompt")) == 1
        assert len(await harness.log_entries(SESSION, "started")) == 1
        assert len(turn.records.ledger) == 2


async def test_decision_after_restart_reaches_same_process(data: Path) -> None:
    async with open_acp_harness(data) as harness:
        turn = start_turn(ask=["code_execute"])
        run_task = asyncio.create_task(harness.run_prompt(turn, "say a\nboth x y\nsay b"))
        first, second = await wait_for_pending(turn, 2)
        turn.is_dead = True
    await expect_killed(run_task)
    async with open_acp_harness(data) as harness:
        turn = turn.after_restart()
        await turn.decide(first)
        run_task = asyncio.create_task(harness.run_turn(turn, turn.decisions(first)))
        await until(lambda: harness.log_entries(SESSION, "answer"))
        await turn.decide(second, "reject")
        assert await run_task == TurnDone()
        assert [answer["optionId"] for answer in await harness.log_entries(SESSION, "answer")] == ["yes", "no"]
        assert agent_texts(turn) == ["a", "b"]
        assert len(turn.records.approvals) == 2


async def test_dead_program_is_restarted_after_server_restart(data: Path) -> None:
    async with open_acp_harness(data) as harness:
        turn = start_turn()
        run_task = asyncio.create_task(harness.run_prompt(turn, "quiet a\nsay half\nwait never"))
        await until(lambda: _has_text(turn, "half"))
        turn.is_dead = True
        await harness.run_command("pkill -f '[o]bedient_agent'", SESSION)
    await expect_killed(run_task)
    async with open_acp_harness(data) as harness:
        turn = turn.after_restart()
        assert await harness.run_turn(turn, ContinueTurn(cause="restart")) == TurnDone()
        assert (await harness.log_entries(SESSION, "prompt"))[-1] == "Continue."
        assert await harness.log_entries(SESSION, "loaded") == ["session-1"]


async def test_error_of_unknown_agent_lists_agents(harness: AcpHarness) -> None:
    turn = InMemoryTurn(session=make_session("nobody"))
    with pytest.raises(InvalidInput, match="claude-code, codex"):
        await harness.run_prompt(turn, "say x")


async def expect_killed(run_task: asyncio.Task[Any]) -> None:
    """Simulate a killed server: nothing is recorded any more, and its connections are cut."""
    async with asyncio.timeout(10):
        with pytest.raises((ServerKilled, PaddockError)):
            await run_task


async def _has_text(turn: InMemoryTurn, word: str) -> bool:
    return any(word in str(getattr(event, "text", "")) for event in turn.records.events)


async def _is_not_running(harness: AcpHarness, words: str) -> bool:
    return await harness.run_command(f"pgrep -xf '{words}' || true", SESSION) == ""


async def test_unread_message_is_sent_with_the_next_one(harness: AcpHarness) -> None:
    turn = start_turn()
    await harness.run_prompt(turn, "say one")
    turn = turn.next_turn()
    turn.write_message("say never")
    turn = turn.next_turn()
    await harness.run_prompt(turn, "say three")
    assert agent_texts(turn) == ["one", "never three"]
    turn = turn.next_turn()
    await harness.run_prompt(turn, "say four")
    assert agent_texts(turn) == ["one", "never three", "four"], "and once"


async def test_message_cancelled_before_sending_is_sent_later(
    harness: AcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = start_turn()
    await harness.run_prompt(turn, "say one")
    turn = turn.next_turn()
    send_started = asyncio.Event()

    async def block(*_: Any) -> None:
        send_started.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as slow:
        slow.setattr(AgentProcess, "send_line", block)
        run_task = asyncio.create_task(harness.run_prompt(turn, "say never"))
        async with asyncio.timeout(30):
            await send_started.wait()
        run_task.cancel()
        await asyncio.wait([run_task])
    turn = turn.next_turn()
    await harness.run_prompt(turn, "say two")
    assert "say never" in (await harness.log_entries(SESSION, "prompt"))[-1]


async def test_unstorable_updates_do_not_end_the_turn(harness: AcpHarness) -> None:
    turn = start_turn()
    assert await harness.run_prompt(turn, "say before\nodd\nsay after") == TurnDone()
    assert agent_texts(turn) == ["before", "after"]
    assert await harness.log_entries(SESSION, "refused") == [-32602]


async def test_sandbox_created_after_cancellation_is_deleted(
    harness: AcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    creation_started = asyncio.Event()
    create = harness.dependencies.fleet.create

    async def create_slowly(*arguments: Any) -> Any:
        await asyncio.sleep(0.5)
        return await create(*arguments)

    async def create_shielded(*arguments: Any) -> Any:
        creation_started.set()
        # A fleet also completes a creation that it has started.
        return await asyncio.shield(asyncio.ensure_future(create_slowly(*arguments)))

    monkeypatch.setattr(harness.dependencies.fleet, "create", create_shielded)
    turn = start_turn()
    run_task = asyncio.create_task(harness.run_prompt(turn, "say one"))
    async with asyncio.timeout(30):
        await creation_started.wait()
        run_task.cancel()
        await asyncio.wait([run_task])
        await harness.engine.release(SESSION)
        await asyncio.sleep(1)
    assert await harness.sandboxes(SESSION) == []

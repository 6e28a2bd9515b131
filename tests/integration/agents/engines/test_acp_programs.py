"""Real agent programs in their own images, with models that follow a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.acp.agent_process import AgentProgramError
from paddock.agents.engines.base import ContinueTurn, TurnDone
from paddock.errors import PaddockError
from paddock.model.session_events import MessageDelta
from paddock.testing.in_memory_turn import InMemoryTurn, ServerKilled

from ...fleet.conftest import data
from ...runs.agent_images import IMAGE_CACHE, share_images
from . import acp_harness
from .acp_harness import agent_texts, make_session, open_acp_harness, until, wait_for_pending

__all__ = ["data"]
# The first builds the images, where they are not there yet.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]
ALL = ("claude-code", "qwen-code", "opencode", "codex", "gemini-cli")
SLOW = "word " * 400


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_harness, "WAIT_TIMEOUT", 90.0)


@pytest.fixture(scope="module", autouse=True)
def _images(tmp_path_factory: pytest.TempPathFactory) -> None:
    share_images(tmp_path_factory.mktemp("images"), [f"agent-{name}" for name in ALL])


def models(directory: Path, turns: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A proxy with one model, which follows a script."""
    path = directory / "scenario.yaml"
    path.write_text(json.dumps({"turns": list(turns), **more}))
    return {"providers": {"demo": {"kind": "script", "file": str(path), "retries": 0}}, "models": {"script": "demo"}}


def bench(data: Path, turns: Sequence[Any], **more: Any) -> Any:
    return open_acp_harness(data, llm=models(data, turns, **more), images=IMAGE_CACHE)


def shell(agent: str, command: str) -> dict[str, Any]:
    """A scripted command; Codex marks it as one that needs approval."""
    if agent != "codex":
        return {"shell": command}
    arguments = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I write?"}
    return {"call": {"tool": "exec_command", "arguments": arguments}}


def begin(agent: str) -> InMemoryTurn:
    return InMemoryTurn(session=make_session(agent), ask=["code_*"])


async def approving(turn: InMemoryTurn, working: asyncio.Task[Any]) -> Any:
    """Approve all requests until the turn is done."""
    while not working.done():
        for approval in turn.pending_approvals:
            await turn.decide(approval)
        await asyncio.wait([working], timeout=0.05)
    return await working


@pytest.mark.parametrize("agent", ALL)
async def test_a_chat_with_an_approval_and_a_second_turn(data: Path, agent: str) -> None:
    turns = [
        [{"say": "I will write it."}, shell(agent, "echo one > /workspace/one.txt")],
        {"say": "It is written."},
        {"say": "You are welcome."},
    ]
    async with bench(data, turns) as running:
        turn = begin(agent)
        working = asyncio.create_task(running.says(turn, "Write the word one into one.txt."))
        (approval, *_) = await wait_for_pending(turn)
        assert approval.name == "code_execute"
        assert "echo one" in json.dumps(dict(approval.arguments))
        assert await running.run("cat /workspace/one.txt 2>/dev/null || true", turn.session) == ""
        assert await approving(turn, working) == TurnDone()
        assert await running.run("cat /workspace/one.txt", turn.session) == "one\n"
        assert agent_texts(turn) == ["I will write it.", "It is written."]
        assert all(entry.result is not None for entry in turn.records.ledger.values())
        turn = turn.next_turn()
        assert await running.says(turn, "Thank you.") == TurnDone()
        assert agent_texts(turn)[-1] == "You are welcome."


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
async def test_what_is_rejected_does_not_happen(data: Path, agent: str) -> None:
    turns = [[{"say": "I will."}, shell(agent, "echo one > /workspace/one.txt")]]
    async with bench(data, turns, otherwise={"say": "As you like."}) as running:
        turn = begin(agent)
        working = asyncio.create_task(running.says(turn, "Write one.txt."))
        (approval, *_) = await wait_for_pending(turn)
        await turn.decide(approval, "reject", reason="rather not")
        assert isinstance(await working, TurnDone)
        assert await running.run("ls /workspace", turn.session) == ""
        assert len(turn.records.ledger) == 1, turn.records.ledger
        (entry,) = turn.records.ledger.values()
        assert entry.result is not None and entry.result.refused and entry.result.text == "rather not"
        # The reason is the next prompt, and the agent has answered it.
        assert agent_texts(turn)[-1] == "As you like."


@pytest.mark.parametrize("agent", ["claude-code", "qwen-code"])
async def test_cancelled_within_an_answer_it_takes_the_next_message(data: Path, agent: str) -> None:
    rules = [{"when": {"prompt": "Are you there"}, "do": [{"say": "Here I am."}]}]
    async with bench(data, [{"say": SLOW}], pace="20ms", rules=rules) as running:
        turn = begin(agent)
        working = asyncio.create_task(running.says(turn, "Talk."))
        await until(lambda: _begun(turn))
        working.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await working
        (cut,) = [message for message in turn.records.messages if message.cut]
        assert cut.cut == "cancelled" and cut.text.startswith("word")
        turn = turn.next_turn()
        assert await running.says(turn, "Are you there?") == TurnDone()
        assert agent_texts(turn) == ["Here I am."]


@pytest.mark.parametrize("agent", ["claude-code"])
async def test_a_decision_reaches_it_after_a_restart(data: Path, agent: str) -> None:
    turns = [[{"say": "I will write it."}, shell(agent, "echo one > /workspace/one.txt")], {"say": "It is written."}]
    async with bench(data, turns) as running:
        turn = begin(agent)
        working = asyncio.create_task(running.says(turn, "Write one.txt."))
        (approval, *_) = await wait_for_pending(turn)
        turn.is_dead = True
    with pytest.raises((ServerKilled, PaddockError)):
        await working
    async with bench(data, turns) as running:
        turn = turn.after_restart()
        await turn.decide(approval)
        working = asyncio.create_task(running.talk(turn, ContinueTurn(cause="restart")))
        assert await approving(turn, working) == TurnDone()
        assert await running.run("cat /workspace/one.txt", turn.session) == "one\n"
        assert agent_texts(turn) == ["I will write it.", "It is written."]


async def test_an_error_of_the_model_is_told(data: Path) -> None:
    async with bench(data, [{"fail": {"status": 401, "message": "no credit left", "times": "always"}}]) as running:
        turn = begin("qwen-code")
        with pytest.raises(AgentProgramError, match="no credit left"):
            await running.says(turn, "Hello.")


async def _begun(turn: InMemoryTurn) -> bool:
    return len(turn.events_of(MessageDelta)) > 3

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
# The first test builds missing images.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]
AGENTS = ("claude-code", "qwen-code", "opencode", "codex", "gemini-cli")
SLOW = "word " * 400


@pytest.fixture(autouse=True)
def _longer_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_harness, "WAIT_TIMEOUT", 90.0)


@pytest.fixture(scope="module", autouse=True)
def _images(tmp_path_factory: pytest.TempPathFactory) -> None:
    share_images(tmp_path_factory.mktemp("images"), [f"agent-{name}" for name in AGENTS])


def models(directory: Path, turns: Sequence[Any], **options: Any) -> dict[str, Any]:
    """Return proxy settings with one scripted model."""
    path = directory / "scenario.yaml"
    path.write_text(json.dumps({"turns": list(turns), **options}))
    return {"providers": {"demo": {"kind": "script", "file": str(path), "retries": 0}}, "models": {"script": "demo"}}


def open_program_harness(data: Path, turns: Sequence[Any], **options: Any) -> Any:
    return open_acp_harness(data, llm=models(data, turns, **options), images=IMAGE_CACHE)


def shell(agent: str, command: str) -> dict[str, Any]:
    """A scripted command; Codex marks it as one that needs approval."""
    if agent != "codex":
        return {"shell": command}
    arguments = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I write?"}
    return {"call": {"tool": "exec_command", "arguments": arguments}}


def start_turn(agent: str) -> InMemoryTurn:
    return InMemoryTurn(session=make_session(agent), ask=["code_*"])


async def run_and_approve(turn: InMemoryTurn, run_task: asyncio.Task[Any]) -> Any:
    """Approve all requests until the turn is done."""
    while not run_task.done():
        for approval in turn.pending_approvals:
            await turn.decide(approval)
        await asyncio.wait([run_task], timeout=0.05)
    return await run_task


@pytest.mark.parametrize("agent", AGENTS)
async def test_chat_with_approval_and_second_turn(data: Path, agent: str) -> None:
    turns = [
        [{"say": "I will write it."}, shell(agent, "echo one > /workspace/one.txt")],
        {"say": "It is written."},
        {"say": "You are welcome."},
    ]
    async with open_program_harness(data, turns) as harness:
        turn = start_turn(agent)
        run_task = asyncio.create_task(harness.run_prompt(turn, "Write the word one into one.txt."))
        (approval, *_) = await wait_for_pending(turn)
        assert approval.name == "code_execute"
        assert "echo one" in json.dumps(dict(approval.arguments))
        assert await harness.run_command("cat /workspace/one.txt 2>/dev/null || true", turn.session) == ""
        assert await run_and_approve(turn, run_task) == TurnDone()
        assert await harness.run_command("cat /workspace/one.txt", turn.session) == "one\n"
        assert agent_texts(turn) == ["I will write it.", "It is written."]
        assert all(entry.result is not None for entry in turn.records.ledger.values())
        turn = turn.next_turn()
        assert await harness.run_prompt(turn, "Thank you.") == TurnDone()
        assert agent_texts(turn)[-1] == "You are welcome."


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
async def test_rejected_command_is_not_run(data: Path, agent: str) -> None:
    turns = [[{"say": "I will."}, shell(agent, "echo one > /workspace/one.txt")]]
    async with open_program_harness(data, turns, otherwise={"say": "As you like."}) as harness:
        turn = start_turn(agent)
        run_task = asyncio.create_task(harness.run_prompt(turn, "Write one.txt."))
        (approval, *_) = await wait_for_pending(turn)
        await turn.decide(approval, "reject", reason="rather not")
        assert isinstance(await run_task, TurnDone)
        assert await harness.run_command("ls /workspace", turn.session) == ""
        assert len(turn.records.ledger) == 1, turn.records.ledger
        (entry,) = turn.records.ledger.values()
        assert entry.result is not None and entry.result.refused and entry.result.text == "rather not"
        # The reason is the next prompt, and the agent has answered it.
        assert agent_texts(turn)[-1] == "As you like."


@pytest.mark.parametrize("agent", ["claude-code", "qwen-code"])
async def test_program_accepts_message_after_cancelled_reply(data: Path, agent: str) -> None:
    rules = [{"when": {"prompt": "Are you there"}, "do": [{"say": "Here I am."}]}]
    async with open_program_harness(data, [{"say": SLOW}], pace="20ms", rules=rules) as harness:
        turn = start_turn(agent)
        run_task = asyncio.create_task(harness.run_prompt(turn, "Talk."))
        await until(lambda: _has_text(turn))
        run_task.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await run_task
        (cut,) = [message for message in turn.records.messages if message.cut]
        assert cut.cut == "cancelled" and cut.text.startswith("word")
        turn = turn.next_turn()
        assert await harness.run_prompt(turn, "Are you there?") == TurnDone()
        assert agent_texts(turn) == ["Here I am."]


@pytest.mark.parametrize("agent", ["claude-code"])
async def test_decision_reaches_program_after_restart(data: Path, agent: str) -> None:
    turns = [[{"say": "I will write it."}, shell(agent, "echo one > /workspace/one.txt")], {"say": "It is written."}]
    async with open_program_harness(data, turns) as harness:
        turn = start_turn(agent)
        run_task = asyncio.create_task(harness.run_prompt(turn, "Write one.txt."))
        (approval, *_) = await wait_for_pending(turn)
        turn.is_dead = True
    with pytest.raises((ServerKilled, PaddockError)):
        await run_task
    async with open_program_harness(data, turns) as harness:
        turn = turn.after_restart()
        await turn.decide(approval)
        run_task = asyncio.create_task(harness.run_turn(turn, ContinueTurn(cause="restart")))
        assert await run_and_approve(turn, run_task) == TurnDone()
        assert await harness.run_command("cat /workspace/one.txt", turn.session) == "one\n"
        assert agent_texts(turn) == ["I will write it.", "It is written."]


async def test_model_error_is_reported(data: Path) -> None:
    async with open_program_harness(
        data, [{"fail": {"status": 401, "message": "no credit left", "times": "always"}}]
    ) as harness:
        turn = start_turn("qwen-code")
        with pytest.raises(AgentProgramError, match="no credit left"):
            await harness.run_prompt(turn, "Hello.")


async def _has_text(turn: InMemoryTurn) -> bool:
    return len(turn.events_of(MessageDelta)) > 3

"""The server is killed while a model answers; the next one goes on from what is on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agents.chat_client import check_order
from tests.integration.agents.model_harness import SHELL_TOOL, open_model_harness, user_message

pytestmark = pytest.mark.anyio
TEXT = " ".join(f"This is sentence {number}." for number in range(20))
SCRIPT = {
    "pace": "20ms",
    "turns": [
        [
            {"think": "They want me to count."},
            {"say": TEXT},
            {"call": {"tool": "code_run_shell_command", "arguments": {"command": "ls"}}},
        ]
    ],
}
CHILD = """
import asyncio, sys
from pathlib import Path
from tests.integration.agents.test_session_model_kills import SCRIPT
from tests.integration.agents.model_harness import SHELL_TOOL, open_model_harness, user_message

async def main():
    async with open_model_harness(Path(sys.argv[1]), {"m": SCRIPT}) as here:
        session = await here.session("m")
        question = [user_message("Count.")]
        async for piece in here.voice.ask_model(session, 1, question, [SHELL_TOOL]):
            print(type(piece).__name__, flush=True)
        await asyncio.sleep(10)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "times"), [("ThoughtPiece", 1), ("TextPiece", 1), ("TextPiece", 4), ("ModelReply", 1)]
)
async def test_killed_while_the_model_answers(tmp_path: Path, kind: str, times: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ},
    )
    assert child.stdout is not None
    heard = 0
    try:
        for line in child.stdout:
            heard += line.strip() == kind
            if heard == times:
                break
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        child.stdout.close()
    assert heard == times, "it ended by itself"
    async with open_model_harness(tmp_path, {"m": SCRIPT}) as here:
        session = await here.book.get("session-1")
        before: list[Any] = await here.told(session)
        reply = await here.reply(session, [user_message("Count.")], tools=[SHELL_TOOL])
        (kept,) = await here.book.list_messages(session.id)
        assert reply.message == kept and kept.text == TEXT
        assert len(kept.calls) == 1 and reply.from_records == (kind == "ModelReply")
        told = await here.told(session)
        check_order([each.model_dump(mode="json") for each in told])
        if kind == "ModelReply":
            assert told == before
        else:
            cuts = [each.data for each in told if each.type == "message.ended"]
            # Killed before even its beginning was on disk, there is nothing to be ended.
            assert [each.get("cut") for each in cuts][-2:] in (["restart", None], [None])
            assert kept.text.startswith(cuts[0]["text"])

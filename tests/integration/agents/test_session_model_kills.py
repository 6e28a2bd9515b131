"""The server is killed during a model reply; the next one continues from its records."""

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
        session = await here.create_session("m")
        question = [user_message("Count.")]
        async for piece in here.session_model.ask_model(session, 1, question, [SHELL_TOOL]):
            print(type(piece).__name__, flush=True)
        await asyncio.sleep(10)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "times"), [("ThoughtPiece", 1), ("TextPiece", 1), ("TextPiece", 4), ("ModelReply", 1)]
)
async def test_killed_during_model_reply(tmp_path: Path, kind: str, times: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ},
    )
    assert child.stdout is not None
    piece_count = 0
    try:
        for line in child.stdout:
            piece_count += line.strip() == kind
            if piece_count == times:
                break
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        child.stdout.close()
    assert piece_count == times, "it ended by itself"
    async with open_model_harness(tmp_path, {"m": SCRIPT}) as harness:
        session = await harness.session_store.get("session-1")
        events_before: list[Any] = await harness.list_events(session)
        reply = await harness.ask_for_reply(session, [user_message("Count.")], tools=[SHELL_TOOL])
        (stored,) = await harness.session_store.list_messages(session.id)
        assert reply.message == stored and stored.text == TEXT
        assert len(stored.calls) == 1 and reply.from_records == (kind == "ModelReply")
        events_after = await harness.list_events(session)
        check_order([each.model_dump(mode="json") for each in events_after])
        if kind == "ModelReply":
            assert events_after == events_before
        else:
            cuts = [each.data for each in events_after if each.type == "message.ended"]
            # If the start of the message was not stored, there is no message to end.
            assert [each.get("cut") for each in cuts][-2:] in (["restart", None], [None])
            assert stored.text.startswith(cuts[0]["text"])

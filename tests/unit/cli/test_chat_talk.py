"""When one answer of a chat is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddock.cli.chat_talk import Talk
from paddock.cli.chat_view import JsonView
from paddock.cli.client import Client
from paddock.cli.output import Output
from paddock.cli.run_follow import Reach

ASKED = {"type": "approval.required", "data": {"approval": {"id": "a", "call_id": "c", "name": "shell"}}}
STATE = {"type": "session.state", "data": {"state": "waiting"}}
ENDED = {"type": "turn.ended", "data": {"turn": 1, "state": "waiting"}}
USAGE = {"type": "usage.changed", "data": {}}


@pytest.mark.parametrize("told", [[ASKED, STATE], [ASKED, STATE, ENDED], [STATE, ASKED, ENDED, USAGE]])
def test_an_answer_that_waits_for_somebody_is_over_whatever_else_is_told(told: list[dict[str, Any]]) -> None:
    async def state() -> str:
        async with Client("http://127.0.0.1:1", None) as client:
            talk = Talk(Reach(client), "ses-1", people=False)
            talk._view = JsonView(Output(as_json=True))
            for event in told:
                talk._news.put_nowait(event)
            return await asyncio.wait_for(talk._until_over(stop_at_questions=True), 5)

    assert asyncio.run(state()) == "waiting"

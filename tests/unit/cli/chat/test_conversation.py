"""End of one answer of a chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddock.cli.chat.chat_conversation import ChatConversation
from paddock.cli.chat.chat_views import JsonChatView
from paddock.cli.connection.reconnecting_client import ReconnectingClient
from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.command_output import CommandOutput

APPROVAL_REQUIRED = {"type": "approval.required", "data": {"approval": {"id": "a", "call_id": "c", "name": "shell"}}}
STATE = {"type": "session.state", "data": {"state": "waiting"}}
ENDED = {"type": "turn.ended", "data": {"turn": 1, "state": "waiting"}}
USAGE = {"type": "usage.changed", "data": {}}


@pytest.mark.parametrize(
    "events", [[APPROVAL_REQUIRED, STATE], [APPROVAL_REQUIRED, STATE, ENDED], [STATE, APPROVAL_REQUIRED, ENDED, USAGE]]
)
def test_answer_once_returns_when_an_approval_is_pending(events: list[dict[str, Any]]) -> None:
    async def state() -> str:
        async with ServerClient("http://127.0.0.1:1", None) as client:
            conversation = ChatConversation(ReconnectingClient(client), "ses-1", interactive=False)
            conversation._view = JsonChatView(CommandOutput(as_json=True))
            for event in events:
                conversation._events.put_nowait(event)
            return await asyncio.wait_for(conversation._wait_for_turn_end(stop_at_questions=True), 5)

    assert asyncio.run(state()) == "waiting"

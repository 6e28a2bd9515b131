"""Progress notifications of tool calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from paddock.live.tools import mcp_progress
from paddock.live.tools.mcp_messages import McpResponse, parse_mcp_message
from paddock.live.tools.mcp_progress import ToolProgressNotifier
from paddock.sandbox.daemon.tool_stream import OnOutput

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("FIRST_AFTER", 0.05), ("OUTPUT_EVERY", 0.05), ("SILENCE", 0.1)):
        monkeypatch.setattr(mcp_progress, name, seconds)


async def test_short_call_has_a_plain_response() -> None:
    async def call(on_output: OnOutput) -> McpResponse:
        on_output("quick\n")
        return McpResponse(200, b"{}")

    progress = ToolProgressNotifier("t", call)
    assert await progress.wait_for_first() == McpResponse(200, b"{}")


async def test_notifications_contain_the_last_line_or_the_duration() -> None:
    quiet, end = asyncio.Event(), asyncio.Event()

    async def call(on_output: OnOutput) -> McpResponse:
        on_output("one\ntwo\n")
        await quiet.wait()
        on_output("50 %\r60 %\r")
        await end.wait()
        return McpResponse(200, b'{"id": 1, "result": {}}')

    progress = ToolProgressNotifier(7, call)
    assert await progress.wait_for_first() is None
    found: list[dict[str, Any]] = []
    async for event in progress.events():
        found.append(json.loads(event.partition(b"data: ")[2]))
        messages = [each["params"]["message"] for each in found if "params" in each]
        if any("running for" in each for each in messages):
            quiet.set()
        if "60 %" in messages:
            end.set()
    *notifications, response = found
    assert response == {"id": 1, "result": {}}
    assert messages[0] == "two" and "60 %" in messages
    assert all(each["method"] == "notifications/progress" for each in notifications)
    assert {each["params"]["progressToken"] for each in notifications} == {7}
    steps = [each["params"]["progress"] for each in notifications]
    assert steps == sorted(set(steps))


async def test_closing_cancels_the_call() -> None:
    cancelled = asyncio.Event()

    async def call(on_output: OnOutput) -> McpResponse:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return McpResponse(200)

    progress = ToolProgressNotifier("t", call)
    assert await progress.wait_for_first() is None
    await progress.close()
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("meta", "token"),
    [({"progressToken": "a"}, "a"), ({"progressToken": 0}, 0), ({"progressToken": True}, None), ({}, None)],
)
def test_only_tool_calls_have_progress_tokens(meta: dict[str, Any], token: str | int | None) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "_meta": meta}}
    message = asyncio.run(parse_mcp_message(json.dumps(call).encode()))
    assert message is not None and message.progress_token == token
    listing = asyncio.run(parse_mcp_message(json.dumps({**call, "method": "tools/list"}).encode()))
    assert listing is not None and listing.progress_token is None

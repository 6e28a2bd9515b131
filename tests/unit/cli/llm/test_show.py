"""Conversations with estimated tokens are marked."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from paddock.cli.framework.context import CliContext
from paddock.cli.llm.show import show_exchange
from tests.unit.cli.connection.test_server_client import Handler, serving

pytestmark = pytest.mark.anyio
FIRST, SECOND = (f"ex-{number:026x}" for number in (1, 2))


@pytest.mark.parametrize(
    ("estimated", "tokens", "cost"),
    [
        (True, "~1,200 in, ~34 out; partly estimated, not reported by the provider", "~$0.50"),
        (False, "1,200 in, 34 out", "$0.50"),
    ],
)
async def test_estimated_values_of_a_conversation_are_marked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, estimated: bool, tokens: str, cost: str
) -> None:
    monkeypatch.setenv("PADDOCK_API_KEY", "pdk_x")
    began, ended = "2026-01-31T12:00:00Z", "2026-01-31T12:00:05Z"
    thread: dict[str, Any] = {"kind": "main", "exchanges": [FIRST, SECOND], "at": began, "lastAt": ended, "turns": 2}
    thread |= {
        "models": ["fast"],
        "usage": {"input": 1200, "output": 34},
        "cost": 0.5,
        "messages": [],
        "notes": [],
        "estimated": estimated,
    }

    async def conversation(_: web.Request) -> web.StreamResponse:
        return web.json_response(thread)

    routes: dict[str, Handler] = {f"/v1/exchanges/{FIRST}/conversation": conversation}
    async with serving(routes) as client:
        await show_exchange(CliContext(server=client.url), FIRST, thread=True)
    shown = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert (shown["tokens"].strip(), shown["cost"].strip()) == (tokens, cost)

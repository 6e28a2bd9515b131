"""The first words with a program that was just started: who we are, what it can do, and which session it is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import paddock
from paddock.agents.engines.acp.place import Place
from paddock.agents.engines.acp.presets import Program
from paddock.agents.engines.acp.talk import METHOD_NOT_FOUND, explain
from paddock.agents.engines.acp.wire import Line, ProgramError, Wire
from paddock.model.words import WORKSPACE

READY_WITHIN = 120.0
"""Seconds that a program has to start and to find its session again."""
PROTOCOL = 1
# What it does to files it does in its box, by itself.
CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


async def greet(wire: Wire, program: Program, place: Place) -> None:
    """Start a program and give it the session. Raises `ProgramError`."""
    place.requests = place.cursor = 0
    place.forget_prompt()
    await wire.start(program.command(place.model or ""), program.env(place.model or ""), WORKSPACE)
    try:
        async with asyncio.timeout(READY_WITHIN), aclosing(wire.read(0)) as lines:
            await _Greeting(wire, place, lines).run()
    except TimeoutError:
        raise ProgramError(f"{program.name} was not ready within {READY_WITHIN:.0f} seconds{wire.said}") from None
    place.ready = True


class _Greeting:
    def __init__(self, wire: Wire, place: Place, lines: AsyncIterator[Line]) -> None:
        self._wire = wire
        self._place = place
        self._lines = lines

    async def run(self) -> None:
        place = self._place
        client = {"name": "paddock", "version": paddock.__version__}
        told = await self._ask(
            "initialize", {"protocolVersion": PROTOCOL, "clientCapabilities": CAPABILITIES, "clientInfo": client}
        )
        able = _object(told.get("agentCapabilities"))
        place.loads = able.get("loadSession") is True
        place.images = _object(able.get("promptCapabilities")).get("image") is True
        about = {"cwd": WORKSPACE, "mcpServers": []}
        if place.session is not None and place.loads:
            try:
                await self._ask("session/load", {"sessionId": place.session, **about})
            except ProgramError:
                # It has forgotten it, or never kept it.
                pass
            else:
                return
        session = (await self._ask("session/new", about)).get("sessionId")
        if not isinstance(session, str):
            raise ProgramError("the agent program gave its session no id")
        place.session, place.fresh = session, True

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask something and wait for the answer. What it tells meanwhile is known: it tells the past again."""
        place = self._place
        place.requests += 1
        number = place.requests
        await self._wire.send(f"{method} {number}", {"id": number, "method": method, "params": params})
        async for line in self._lines:
            place.cursor = line.cursor
            message = line.message
            if "method" in message and "id" in message:
                refusal = {"id": message["id"], "error": METHOD_NOT_FOUND}
                await self._wire.send(f"answer {message['id']}", refusal)
            elif "method" not in message and message.get("id") == number:
                if "error" in message:
                    raise ProgramError(explain(message["error"]))
                return _object(message.get("result"))
        raise ProgramError("the agent program says nothing more")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

"""The engine of agent programs keeps the contract of engines, with a program in real boxes that follows its model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from paddock.agents.engines.conformance import EngineConformance

from ..fleet.conftest import running
from .acp_cast import ProgramCast, playing


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramCast]:
    """One machine for all checks; each has sessions of its own in it."""
    data = tmp_path_factory.mktemp("acp")
    with asyncio.Runner() as runner:
        held = AsyncExitStack()
        yield runner.run(held.enter_async_context(playing(data, runner)))
        runner.run(held.aclose())
        runner.run(_nothing_is_left(data))


class TestAcp(EngineConformance):
    """Every check but those of which the skips say why not."""


async def _nothing_is_left(data: Path) -> None:
    """The checks have released their sessions, so that no box is left to end, nor anything of one."""
    async with running(data) as machine:
        listed, _ = await machine.fleet.sandboxes.list(page_size=1000)
        left = [sandbox for sandbox in listed if sandbox.state.alive]
        for sandbox in left:
            await machine.fleet.end(sandbox, "test over", keep=False)
        async with asyncio.timeout(20):
            while await machine.backend.leftovers():
                await asyncio.sleep(0.01)
    assert not left, f"sessions were released, but have sandboxes: {left}"

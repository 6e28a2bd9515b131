"""The ACP engine passes the conformance suite, with a scripted program in real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from paddock.testing.engines import EngineConformance

from ...fleet.conftest import running
from .acp_script_player import AcpScriptPlayer, open_script_player


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AcpScriptPlayer]:
    """One harness for all checks, each with its own sessions."""
    data = tmp_path_factory.mktemp("acp")
    with asyncio.Runner() as runner:
        held = AsyncExitStack()
        yield runner.run(held.enter_async_context(open_script_player(data, runner)))
        runner.run(held.aclose())
        runner.run(_nothing_is_left(data))


class TestAcp(EngineConformance):
    """All checks, except the skipped ones."""


async def _nothing_is_left(data: Path) -> None:
    """The checks have released their sessions, so that no sandbox is left to end, nor anything of one."""
    async with running(data) as machine:
        listed, _ = await machine.fleet.sandboxes.list(page_size=1000)
        left = [sandbox for sandbox in listed if sandbox.state.alive]
        for sandbox in left:
            await machine.fleet.end_sandbox(sandbox, "test over", keep=False)
        async with asyncio.timeout(20):
            while await machine.backend.leftovers():
                await asyncio.sleep(0.01)
    assert not left, f"sessions were released, but have sandboxes: {left}"

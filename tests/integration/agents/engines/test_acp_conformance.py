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
        exit_stack = AsyncExitStack()
        yield runner.run(exit_stack.enter_async_context(open_script_player(data, runner)))
        runner.run(exit_stack.aclose())
        runner.run(_check_nothing_is_left(data))


class TestAcp(EngineConformance):
    """All checks, except the skipped ones."""


async def _check_nothing_is_left(data: Path) -> None:
    """Check that the released sessions left no sandboxes and no other resources."""
    async with running(data) as opened:
        sandboxes, _ = await opened.fleet.sandboxes.list(page_size=1000)
        left = [sandbox for sandbox in sandboxes if sandbox.state.alive]
        for sandbox in left:
            await opened.fleet.end_sandbox(sandbox, "test over", keep=False)
        async with asyncio.timeout(20):
            while await opened.backend.leftovers():
                await asyncio.sleep(0.01)
    assert not left, f"sessions were released, but have sandboxes: {left}"

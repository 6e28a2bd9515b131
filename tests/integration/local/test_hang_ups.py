"""A disconnected client ends its own tool call and no other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.contract.backends.support import RunningSandbox

from paddock.sandbox.daemon.client import DaemonClient

SOON = 2.0
SHELL, CELL = "run_shell_command", "run_ipython_cell"
SLEEPS = """
import time
open("/workspace/sleeps", "w").close()
try:
    time.sleep(300)
finally:
    done.append("cut")
"""
HOLDS = """
import os, time
open("/workspace/holds", "w").close()
while not os.path.exists("/workspace/go"):
    time.sleep(0.01)
"""


@asynccontextmanager
async def talking(running_sandbox: RunningSandbox) -> AsyncIterator[DaemonClient]:
    async with (
        asyncio.timeout(40),
        DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as inside,
    ):
        yield inside


async def said(inside: DaemonClient, tool: str, **arguments: Any) -> str:
    result = await inside.call_tool(tool, arguments, 30)
    assert result["isError"] is False, result
    return str(result["content"][0]["text"])


async def shell(inside: DaemonClient, command: str) -> str:
    return await said(inside, SHELL, command=command)


async def becomes(holds: Callable[[], Awaitable[bool]], within: float = 10.0) -> None:
    """Wait for something in the sandbox, which cannot tell when it happens."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline, f"it did not happen within {within} s"
        await asyncio.sleep(0.01)


async def running(inside: DaemonClient, words: str) -> int:
    """How many processes of the sandbox have these words for their whole command line."""
    return int(await shell(inside, f"ps -eo args | grep -cFx '{words}'; true"))


async def runs(inside: DaemonClient, words: str, number: int) -> bool:
    return await running(inside, words) == number


async def says(inside: DaemonClient, command: str, text: str) -> bool:
    return await shell(inside, command) == text


async def abandon(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def begin(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(work)


def mcp(inside: DaemonClient, tool: str, **arguments: Any) -> Coroutine[Any, Any, Any]:
    params = {"name": tool, "arguments": arguments}
    return inside.mcp(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())


@pytest.mark.parametrize("way", ["tools", "mcp"])
def test_a_command_ends_with_all_it_started(running_sandbox: RunningSandbox, way: str) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            command = "sleep 77771 & sleep 77772"
            work = (
                inside.call_tool(SHELL, {"command": command}) if way == "tools" else mcp(inside, SHELL, command=command)
            )
            call = begin(work)
            await becomes(partial(runs, inside, "sleep 77771", 1))
            await becomes(partial(runs, inside, "sleep 77772", 1))
            await abandon(call)
            await becomes(partial(runs, inside, "sleep 77771", 0), SOON)
            await becomes(partial(runs, inside, "sleep 77772", 0), SOON)

    asyncio.run(scene())


def test_a_command_may_clean_up_and_is_killed_if_it_takes_too_long(running_sandbox: RunningSandbox) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            tidy = "trap 'echo tidied > /workspace/tidied; exit' TERM; touch /workspace/tidy; sleep 77773 & wait"
            deaf = "(trap '' TERM; touch /workspace/deaf; exec sleep 77774) & wait"
            calls = [begin(inside.call_tool(SHELL, {"command": command})) for command in (tidy, deaf)]
            await becomes(partial(says, inside, "cd /workspace; ls -d tidy deaf | wc -l", "2"))
            await becomes(partial(runs, inside, "sleep 77774", 1))
            for call in calls:
                await abandon(call)
            await becomes(partial(says, inside, "cat /workspace/tidied 2>/dev/null; true", "tidied"), SOON)
            await becomes(partial(runs, inside, "sleep 77774", 0), SOON)

    asyncio.run(scene())


def test_what_a_command_left_running_goes_on(running_sandbox: RunningSandbox) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            await shell(inside, "sleep 77775 >/dev/null 2>&1 &")
            call = begin(inside.call_tool(SHELL, {"command": "sleep 77776"}))
            await becomes(partial(runs, inside, "sleep 77776", 1))
            await abandon(call)
            await becomes(partial(runs, inside, "sleep 77776", 0), SOON)
            assert await running(inside, "sleep 77775") == 1

    asyncio.run(scene())


def test_abandoned_calls_fill_nothing_and_disturb_nobody(running_sandbox: RunningSandbox) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            worker = await shell(inside, "mkfifo /workspace/pipe; echo $PPID")
            stays = begin(shell(inside, "read line < /workspace/pipe; echo $line"))
            for words in (f"sleep 7778{number}" for number in range(5)):
                calls = [begin(inside.call_tool(SHELL, {"command": f"exec {words}"})) for _ in range(50)]
                await becomes(partial(runs, inside, words, 50))
                for call in calls:
                    await abandon(call)
                await becomes(partial(runs, inside, words, 0), SOON)
            answers = await asyncio.gather(*(shell(inside, f"echo {number}") for number in range(60)))
            assert answers == [str(number) for number in range(60)]
            assert await shell(inside, "echo $PPID") == worker, "the worker was replaced"
            assert not stays.done()
            await shell(inside, "echo undisturbed > /workspace/pipe")
            assert await stays == "undisturbed"

    asyncio.run(scene())


def test_a_cell_is_interrupted_and_its_variables_stay(running_sandbox: RunningSandbox) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            await said(inside, CELL, code="kept = 'as it was'; done = []")
            call = begin(inside.call_tool(CELL, {"code": SLEEPS}))
            await becomes(partial(says, inside, "ls /workspace/sleeps 2>/dev/null | wc -l", "1"))
            await abandon(call)
            async with asyncio.timeout(SOON):
                assert await said(inside, CELL, code="kept, done") == "('as it was', ['cut'])"

    asyncio.run(scene())


def test_a_cell_is_interrupted_however_soon_it_is_abandoned(running_sandbox: RunningSandbox) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            await said(inside, CELL, code="kept = 'still'")
            for number in range(40):
                call = begin(inside.call_tool(CELL, {"code": "import time; time.sleep(300)"}))
                await asyncio.sleep(number / 4000)
                await abandon(call)
            assert await said(inside, CELL, code="kept") == "'still'"

    asyncio.run(scene())


def test_a_cell_that_waits_for_another_is_never_run(running_sandbox: RunningSandbox) -> None:
    async def scene() -> None:
        async with talking(running_sandbox) as inside:
            await said(inside, CELL, code="ran = []")
            first = begin(said(inside, CELL, code=HOLDS))
            await becomes(partial(says, inside, "ls /workspace/holds 2>/dev/null | wc -l", "1"))
            waiting = [begin(inside.call_tool(CELL, {"code": "ran.append(1)"})) for _ in range(70)]
            stays = begin(said(inside, CELL, code="ran.append('stays')"))
            threads = "ls /proc/$PPID/task | wc -l"
            await becomes(partial(says, inside, f"[ $({threads}) -gt 70 ]; echo $?", "0"))
            for call in waiting:
                await abandon(call)
            await becomes(partial(says, inside, f"[ $({threads}) -lt 40 ]; echo $?", "0"), SOON)
            await shell(inside, "touch /workspace/go")
            await asyncio.gather(first, stays)
            assert await said(inside, CELL, code="ran") == "['stays']"

    asyncio.run(scene())

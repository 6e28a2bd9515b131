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
async def connected(running_sandbox: RunningSandbox) -> AsyncIterator[DaemonClient]:
    async with (
        asyncio.timeout(40),
        DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as inside,
    ):
        yield inside


async def tool_text(inside: DaemonClient, tool: str, **arguments: Any) -> str:
    result = await inside.call_tool(tool, arguments, 30)
    assert result["isError"] is False, result
    return str(result["content"][0]["text"])


async def shell(inside: DaemonClient, command: str) -> str:
    return await tool_text(inside, SHELL, command=command)


async def wait_until(holds: Callable[[], Awaitable[bool]], within: float = 10.0) -> None:
    """Wait for something in the sandbox, which cannot tell when it happens."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline, f"it did not happen within {within} s"
        await asyncio.sleep(0.01)


async def count_running(inside: DaemonClient, words: str) -> int:
    """How many processes of the sandbox have these words for their whole command line."""
    return int(await shell(inside, f"ps -eo args | grep -cFx '{words}'; true"))


async def has_running(inside: DaemonClient, words: str, number: int) -> bool:
    return await count_running(inside, words) == number


async def prints(inside: DaemonClient, command: str, text: str) -> bool:
    return await shell(inside, command) == text


async def abandon(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(work)


def mcp(inside: DaemonClient, tool: str, **arguments: Any) -> Coroutine[Any, Any, Any]:
    params = {"name": tool, "arguments": arguments}
    return inside.mcp(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())


@pytest.mark.parametrize("interface", ["tools", "mcp"])
def test_hang_up_ends_command_and_its_children(running_sandbox: RunningSandbox, interface: str) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            command = "sleep 77771 & sleep 77772"
            work = (
                inside.call_tool(SHELL, {"command": command})
                if interface == "tools"
                else mcp(inside, SHELL, command=command)
            )
            call = start(work)
            await wait_until(partial(has_running, inside, "sleep 77771", 1))
            await wait_until(partial(has_running, inside, "sleep 77772", 1))
            await abandon(call)
            await wait_until(partial(has_running, inside, "sleep 77771", 0), SOON)
            await wait_until(partial(has_running, inside, "sleep 77772", 0), SOON)

    asyncio.run(scenario())


def test_hung_up_command_may_clean_up_before_it_is_killed(running_sandbox: RunningSandbox) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            tidy = "trap 'echo tidied > /workspace/tidied; exit' TERM; touch /workspace/tidy; sleep 77773 & wait"
            deaf = "(trap '' TERM; touch /workspace/deaf; exec sleep 77774) & wait"
            calls = [start(inside.call_tool(SHELL, {"command": command})) for command in (tidy, deaf)]
            await wait_until(partial(prints, inside, "cd /workspace; ls -d tidy deaf | wc -l", "2"))
            await wait_until(partial(has_running, inside, "sleep 77774", 1))
            for call in calls:
                await abandon(call)
            await wait_until(partial(prints, inside, "cat /workspace/tidied 2>/dev/null; true", "tidied"), SOON)
            await wait_until(partial(has_running, inside, "sleep 77774", 0), SOON)

    asyncio.run(scenario())


def test_detached_processes_survive_their_command(running_sandbox: RunningSandbox) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            await shell(inside, "sleep 77775 >/dev/null 2>&1 &")
            call = start(inside.call_tool(SHELL, {"command": "sleep 77776"}))
            await wait_until(partial(has_running, inside, "sleep 77776", 1))
            await abandon(call)
            await wait_until(partial(has_running, inside, "sleep 77776", 0), SOON)
            assert await count_running(inside, "sleep 77775") == 1

    asyncio.run(scenario())


def test_abandoned_calls_leave_no_load(running_sandbox: RunningSandbox) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            worker = await shell(inside, "mkfifo /workspace/pipe; echo $PPID")
            stays = start(shell(inside, "read line < /workspace/pipe; echo $line"))
            for words in (f"sleep 7778{number}" for number in range(5)):
                calls = [start(inside.call_tool(SHELL, {"command": f"exec {words}"})) for _ in range(50)]
                await wait_until(partial(has_running, inside, words, 50))
                for call in calls:
                    await abandon(call)
                await wait_until(partial(has_running, inside, words, 0), SOON)
            answers = await asyncio.gather(*(shell(inside, f"echo {number}") for number in range(60)))
            assert answers == [str(number) for number in range(60)]
            assert await shell(inside, "echo $PPID") == worker, "the worker was replaced"
            assert not stays.done()
            await shell(inside, "echo undisturbed > /workspace/pipe")
            assert await stays == "undisturbed"

    asyncio.run(scenario())


def test_interrupted_cell_keeps_variables(running_sandbox: RunningSandbox) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            await tool_text(inside, CELL, code="kept = 'as it was'; done = []")
            call = start(inside.call_tool(CELL, {"code": SLEEPS}))
            await wait_until(partial(prints, inside, "ls /workspace/sleeps 2>/dev/null | wc -l", "1"))
            await abandon(call)
            async with asyncio.timeout(SOON):
                assert await tool_text(inside, CELL, code="kept, done") == "('as it was', ['cut'])"

    asyncio.run(scenario())


def test_cell_abandoned_at_once_is_interrupted(running_sandbox: RunningSandbox) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            await tool_text(inside, CELL, code="kept = 'still'")
            for number in range(40):
                call = start(inside.call_tool(CELL, {"code": "import time; time.sleep(300)"}))
                await asyncio.sleep(number / 4000)
                await abandon(call)
            assert await tool_text(inside, CELL, code="kept") == "'still'"

    asyncio.run(scenario())


def test_abandoned_waiting_cell_never_runs(running_sandbox: RunningSandbox) -> None:
    async def scenario() -> None:
        async with connected(running_sandbox) as inside:
            await tool_text(inside, CELL, code="ran = []")
            first = start(tool_text(inside, CELL, code=HOLDS))
            await wait_until(partial(prints, inside, "ls /workspace/holds 2>/dev/null | wc -l", "1"))
            waiting = [start(inside.call_tool(CELL, {"code": "ran.append(1)"})) for _ in range(70)]
            stays = start(tool_text(inside, CELL, code="ran.append('stays')"))
            threads = "ls /proc/$PPID/task | wc -l"
            await wait_until(partial(prints, inside, f"[ $({threads}) -gt 70 ]; echo $?", "0"))
            for call in waiting:
                await abandon(call)
            await wait_until(partial(prints, inside, f"[ $({threads}) -lt 40 ]; echo $?", "0"), SOON)
            await shell(inside, "touch /workspace/go")
            await asyncio.gather(first, stays)
            assert await tool_text(inside, CELL, code="ran") == "['stays']"

    asyncio.run(scenario())

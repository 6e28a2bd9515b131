"""Browser tool calls are cancelled when their clients disconnect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from paddock.sandbox.daemon.client import DaemonClient
from tests.support.browser_sandboxes import PAGES_URL, BrowserSandbox, run_browser_sandbox

SILENT = (
    "import socket; s = socket.create_server(('127.0.0.1', 8001)); "
    "taken = [(s.accept(), open('/tmp/taken', 'w').close()) for _ in range(100)]"
)
MANY = 30
"""More than the connections that are kept for later calls, each with a thread."""


@pytest.fixture(scope="module")
def web() -> Iterator[BrowserSandbox]:
    with run_browser_sandbox("browser") as made:
        made.sandbox.start(f'python3 -c "{SILENT}"')
        made.do("browser_navigate", url=f"{PAGES_URL}/form.html")
        yield made


def test_navigation_is_cancelled_when_the_client_disconnects(web: BrowserSandbox) -> None:
    async def disconnect() -> None:
        async with asyncio.timeout(20), DaemonClient(web.sandbox.backend.daemon_address(web.sandbox.record)) as inside:
            arguments = {"url": "http://127.0.0.1:8001/", "timeout": 60}
            call = asyncio.ensure_future(inside.call_tool("browser_navigate", arguments))
            while (await inside.run("test -e /tmp/taken")).exit_code:
                assert not call.done(), call.result()
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    asyncio.run(disconnect())
    began = time.monotonic()
    assert web.do("browser_navigate", url=f"{PAGES_URL}/form.html").data["title"] == "Sign up"
    assert time.monotonic() - began < 10


def test_waiting_calls_are_cancelled_when_their_clients_disconnect(web: BrowserSandbox) -> None:
    async def threads(inside: DaemonClient) -> int:
        result = await inside.call_tool("run_shell_command", {"command": "ls /proc/$PPID/task | wc -l"})
        return int(result["content"][0]["text"])

    async def disconnect() -> None:
        async with asyncio.timeout(30), DaemonClient(web.sandbox.backend.daemon_address(web.sandbox.record)) as inside:
            before = await threads(inside)
            arguments = {"text": "what this page never says", "timeout": 100}
            calls = [asyncio.ensure_future(inside.call_tool("browser_wait_for", arguments)) for _ in range(MANY)]
            while await threads(inside) < before + MANY - 5:
                assert not any(call.done() for call in calls)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            deadline = time.monotonic() + 3
            while await threads(inside) > before + 5:
                assert time.monotonic() < deadline, "calls that nobody waits for still wait"

    asyncio.run(disconnect())

"""`paddock mcp connect`: MCP on standard input and output, for clients that cannot use an address."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.mcp.tool_commands import SandboxOption
from paddock.cli.output.errors import UsageError
from paddock.cli.sandbox.sandbox_lookup import find_sandbox

MAX_LINE = 16 * 2**20
MAX_WAITING_LINES = 64


def register_commands(app: typer.Typer) -> typer.Typer:
    mcp = command_group("Use and manage MCP servers.")
    app.add_typer(mcp, name="mcp")
    register_command(
        mcp,
        "connect",
        server=True,
        examples="""
            paddock mcp connect calc
            paddock mcp connect --set research
            paddock mcp connect files --sandbox demo
            claude mcp add calc -- paddock mcp connect calc
        """,
    )(connect_server)
    return mcp


async def connect_server(
    cli: CliContext,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Name of the server.  [default: all servers]", show_default=False)
    ] = "",
    set_name: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Use a set of tools instead of a server.")
    ] = None,
    sandbox: SandboxOption = None,
) -> None:
    """Speak MCP on standard input and output, for clients that start servers as programs.

    Clients of all revisions work. The program ends when its standard input is closed.
    """
    import aiohttp

    from paddock.cli.mcp.stdio_bridge import StdioBridge

    if name and set_name:
        raise UsageError("give the name of a server or --set, not both")
    target = cli.server_target()
    path = f"/sets/{quote(set_name, safe='')}" if set_name else f"/{quote(name, safe='')}" if name else ""
    if sandbox:
        async with cli.open_client() as client:
            path += f"?sandbox={quote(await find_sandbox(client, sandbox), safe='')}"
    headers = {"Authorization": f"Bearer {target.key}"} if target.key else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        bridge = StdioBridge(session, f"{target.url.rstrip('/')}/mcp{path}", _write_line)
        await bridge.run(_read_lines())


def _write_line(data: bytes) -> None:
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


async def _read_lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input. A daemon thread reads it, because input can be a file, a pipe or a socket."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    free = threading.Semaphore(MAX_WAITING_LINES)

    def read() -> None:
        line = b"\n"
        while line:
            free.acquire()
            line = sys.stdin.buffer.readline(MAX_LINE)
            try:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            except RuntimeError:
                return  # The program is ending.

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        free.release()
        if line.strip():
            yield line

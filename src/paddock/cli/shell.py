"""`paddock sandbox shell`: a terminal in a sandbox."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import OURS, CliError, UsageProblem, exit_code_of, report
from paddock.cli.sandbox import SandboxArgument
from paddock.errors import PaddockError


def register(boxes: typer.Typer) -> None:
    command(
        boxes,
        "shell",
        server=True,
        examples="""
            paddock sandbox shell 3f2a
            paddock sandbox shell 3f2a -- htop
            paddock sandbox shell 3f2a --attach 0123456789abcdef0123456789abcdef
            paddock sandbox shell 3f2a --terminal main
        """,
    )(shell)


def shell(
    cli: Cli,
    sandbox: SandboxArgument,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What to run instead of a shell.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", metavar="DIR", help="Directory to start in.")] = None,
    attach: Annotated[str | None, typer.Option(metavar="ID", help="Come back to a terminal that was left.")] = None,
    terminal: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Join the terminal of this name, which others may see and type in too."),
    ] = None,
) -> int:
    """Open a terminal in a sandbox.

    Typed at the start of a line, ~. leaves it running, to come back to with --attach, and ~~ is a plain ~.
    """
    import asyncio

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem("shell needs a terminal; without one use: paddock sandbox exec SANDBOX -- COMMAND")
    if cli.as_json:
        raise UsageProblem("a terminal has no JSON; use: paddock sandbox exec --json")
    if attach and (words or cwd):
        raise UsageProblem("--attach comes back to what already runs; it takes no COMMAND and no --cwd")
    if terminal and (words or cwd or attach):
        raise UsageProblem("--terminal joins a shell that others see too; it takes no COMMAND, --cwd or --attach")
    try:
        if terminal:
            return asyncio.run(_join(cli, sandbox, terminal))
        return asyncio.run(_run(cli, sandbox, words or [], cwd, attach))
    except PaddockError as error:
        if cli.debug:
            raise
        report(error, as_json=False)
        return OURS if exit_code_of(error) != 2 else 2


async def _run(cli: Cli, wanted: str, words: list[str], cwd: str | None, attach: str | None) -> int:
    import shlex

    from paddock.cli.failure import Refused
    from paddock.cli.find import find
    from paddock.cli.terminal import Terminal

    async with cli.client() as client:
        sandbox_id = await find(client, wanted)
        pty = client.box(sandbox_id, "/pty")
        if attach:
            status: dict[str, Any] = await client.get(f"{pty}/{attach}")
            if status.get("launch_attempted") and not status.get("running"):
                raise CliError(f"terminal {attach} has ended")
        else:
            request = {"cwd": cwd or "", "command": shlex.join(words)}
            attach = str((await client.post(pty, request))["session_id"])
        # Whoever held it before, ourselves on a connection that broke, makes room.
        exit_code = await Terminal(client, f"{pty}/{attach}/ws", takeover="1").run()
        if exit_code is None:
            sys.stderr.write(
                f"\nleft it running; come back with:\n  paddock sandbox shell {sandbox_id} --attach {attach}\n"
            )
            return 0
        try:
            await client.delete(f"{pty}/{attach}")
        except Refused:
            pass  # gone with the sandbox
    return exit_code


async def _join(cli: Cli, wanted: str, name: str) -> int:
    import secrets
    from urllib.parse import quote

    from paddock.cli.find import find
    from paddock.cli.terminal import Terminal

    async with cli.client() as client:
        sandbox_id = await find(client, wanted)
        path = f"/v1/sandboxes/{quote(sandbox_id, safe='')}/terminal"
        exit_code = await Terminal(client, path, name=name, viewer=f"cli-{secrets.token_hex(8)}").run()
    if exit_code is None:
        sys.stderr.write(
            f"\nleft it running; come back with:\n  paddock sandbox shell {sandbox_id} --terminal {name}\n"
        )
        return 0
    return exit_code

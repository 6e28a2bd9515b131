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
    try:
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
        exit_code = await Terminal(client, f"{pty}/{attach}").run()
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

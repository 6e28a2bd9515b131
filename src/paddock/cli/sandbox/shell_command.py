"""`paddock sandbox shell`: a terminal in a sandbox."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_PADDOCK_FAILED, CliError, UsageError, exit_code_for, report_error
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument
from paddock.errors import PaddockError


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "shell",
        server=True,
        examples="""
            paddock sandbox shell 3f2a
            paddock sandbox shell 3f2a -- htop
            paddock sandbox shell 3f2a --attach 0123456789abcdef0123456789abcdef
            paddock sandbox shell 3f2a --terminal main
        """,
    )(open_shell)


def open_shell(
    cli: CliContext,
    sandbox: SandboxArgument,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run instead of a shell.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", metavar="DIR", help="Working directory.")] = None,
    attach: Annotated[
        str | None, typer.Option(metavar="ID", help="Reattach to a terminal that was left running.")
    ] = None,
    terminal: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Join the shared terminal of this name."),
    ] = None,
) -> int:
    """Open a terminal in a sandbox.

    At the start of a line, ~. detaches and leaves the terminal running (reattach with --attach), and ~~ types a ~.
    """
    import asyncio

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("`shell` needs a terminal; without one use: paddock sandbox exec SANDBOX -- COMMAND")
    if cli.as_json:
        raise UsageError("`shell` has no JSON output; use: paddock sandbox exec --json")
    if attach and (words or cwd):
        raise UsageError("--attach continues a running terminal; it takes no COMMAND and no --cwd")
    if terminal and (words or cwd or attach):
        raise UsageError("--terminal joins a shared terminal; it takes no COMMAND, --cwd or --attach")
    try:
        if terminal:
            return asyncio.run(_join_shared_terminal(cli, sandbox, terminal))
        return asyncio.run(_run_terminal(cli, sandbox, words or [], cwd, attach))
    except PaddockError as error:
        if cli.debug:
            raise
        report_error(error, as_json=False)
        return EXIT_PADDOCK_FAILED if exit_code_for(error) != 2 else 2


async def _run_terminal(
    cli: CliContext, sandbox_name: str, words: list[str], cwd: str | None, attach: str | None
) -> int:
    import shlex

    from paddock.cli.output.errors import RequestRefused
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox
    from paddock.cli.sandbox.terminal_session import TerminalSession

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox_name)
        pty = client.daemon_path(sandbox_id, "/pty")
        if attach:
            status: dict[str, Any] = await client.get(f"{pty}/{attach}")
            if status.get("launch_attempted") and not status.get("running"):
                raise CliError(f"terminal {attach} has ended")
        else:
            request = {"cwd": cwd or "", "command": shlex.join(words)}
            attach = str((await client.post(pty, request))["session_id"])
        # Take over from an earlier connection, such as our own that broke.
        exit_code = await TerminalSession(client, f"{pty}/{attach}/ws", takeover="1").run()
        if exit_code is None:
            sys.stderr.write(
                f"\nleft running; reattach with:\n  paddock sandbox shell {sandbox_id} --attach {attach}\n"
            )
            return 0
        try:
            await client.delete(f"{pty}/{attach}")
        except RequestRefused:
            pass  # The sandbox was removed.
    return exit_code


async def _join_shared_terminal(cli: CliContext, sandbox_name: str, name: str) -> int:
    import secrets
    from urllib.parse import quote

    from paddock.cli.sandbox.sandbox_lookup import find_sandbox
    from paddock.cli.sandbox.terminal_session import TerminalSession

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox_name)
        path = f"/v1/sandboxes/{quote(sandbox_id, safe='')}/terminal"
        exit_code = await TerminalSession(client, path, name=name, viewer=f"cli-{secrets.token_hex(8)}").run()
    if exit_code is None:
        sys.stderr.write(f"\nleft running; reattach with:\n  paddock sandbox shell {sandbox_id} --terminal {name}\n")
        return 0
    return exit_code

"""`paddock sandbox logs`: prints the output of a sandbox's entrypoint or of a background command."""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError, RequestRefused, print_warning
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

ENTRYPOINT_COMMAND = "entrypoint"
"""The daemon's command id of a sandbox's entrypoint."""


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "logs",
        server=True,
        examples="""
            paddock sandbox logs 3f2a --follow
            paddock sandbox logs 3f2a --command 0123456789abcdef0123456789abcdef
        """,
    )(show_logs)


async def show_logs(
    cli: CliContext,
    sandbox: SandboxArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the command ends.")] = False,
    command: Annotated[
        str,
        typer.Option("--command", metavar="ID", help="Id of a command started with exec --detach.", show_default=False),
    ] = ENTRYPOINT_COMMAND,
    cursor: Annotated[int, typer.Option(metavar="N", help="Skip output before this offset.", min=0)] = 0,
) -> None:
    """Print the output of a sandbox's entrypoint or of a background command.

    The output is read from the daemon in the sandbox, so a server must be running and the sandbox must not have ended.
    If the command failed, the reason is printed on standard error.
    """
    from paddock.cli.sandbox.remote_command import CommandOutputWriter, RemoteCommand
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox)
        execution = RemoteCommand(client, sandbox_id, CommandOutputWriter(cli.as_json))
        execution.id, execution.cursor = command, cursor
        try:
            if follow:
                await execution.follow_output()
            else:
                await execution.print_output_so_far()
            reason = await execution.failure_reason()
        except RequestRefused as error:
            if error.status == 404 and command == ENTRYPOINT_COMMAND and error.server_code != "SANDBOX_NOT_FOUND":
                raise CliError(
                    f"sandbox {sandbox_id} has no entrypoint", hint="choose a command with --command ID"
                ) from None
            raise
    if reason and not cli.as_json:
        print_warning(reason)

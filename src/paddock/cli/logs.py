"""`paddock sandbox logs`: what a sandbox's entrypoint or a background command wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, Refused, warn
from paddock.cli.sandbox import SandboxArgument

ENTRYPOINT = "entrypoint"
"""The id under which the daemon runs a sandbox's entrypoint."""


def register(boxes: typer.Typer) -> None:
    command(
        boxes,
        "logs",
        server=True,
        examples="""
            paddock sandbox logs 3f2a --follow
            paddock sandbox logs 3f2a --command 0123456789abcdef0123456789abcdef
        """,
    )(logs)


async def logs(
    cli: Cli,
    sandbox: SandboxArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, until it ends.")] = False,
    command: Annotated[
        str, typer.Option("--command", metavar="ID", help="A command started with exec --detach.", show_default=False)
    ] = ENTRYPOINT,
    cursor: Annotated[int, typer.Option(metavar="N", help="Skip what was written before this offset.", min=0)] = 0,
) -> None:
    """Show what a sandbox's entrypoint, or a background command, has written.

    How it ended, unless it ended well, is said on standard error.
    """
    from paddock.cli.execution import Execution, Sink
    from paddock.cli.find import find

    async with cli.client() as client:
        sandbox_id = await find(client, sandbox)
        execution = Execution(client, sandbox_id, Sink(cli.as_json))
        execution.id, execution.cursor = command, cursor
        try:
            if follow:
                await execution.follow()
            else:
                await execution.catch_up()
            reason = await execution.failure()
        except Refused as error:
            if error.status == 404 and command == ENTRYPOINT and error.server_code != "SANDBOX_NOT_FOUND":
                raise CliError(
                    f"sandbox {sandbox_id} has no entrypoint", hint="name a command with --command ID"
                ) from None
            raise
    if reason and not cli.as_json:
        warn(reason)

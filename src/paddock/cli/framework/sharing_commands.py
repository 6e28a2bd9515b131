"""The `share` and `unshare` commands of sessions, runs and sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

OpenClient = Callable[[CliContext], AbstractAsyncContextManager["ServerClient"]]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME", help="IDs, ID prefixes, or names.", show_default=False)
]


def register_sharing_commands(
    app: typer.Typer,
    group_name: str,
    objects: str,
    open_client: OpenClient,
    find_path: Callable[[ServerClient, str], Awaitable[str]],
) -> None:
    """Add `share` and `unshare` to a command group; `find_path` resolves a name to an API path."""

    async def set_visibility(cli: CliContext, names: list[str], visibility: str) -> None:
        done: list[Any] = []
        async with open_client(cli) as client:
            for name in names:
                done.append(
                    await client.request_json("PATCH", await find_path(client, name), json={"visibility": visibility})
                )
        if cli.as_json:
            return cli.out.print_json(done)
        return cli.out.print_line("\n".join(f"{each['id']}  {each['visibility']}" for each in done))

    async def share(cli: CliContext, names: NamesArgument) -> None:
        await set_visibility(cli, names, "tenant")

    async def unshare(cli: CliContext, names: NamesArgument) -> None:
        await set_visibility(cli, names, "private")

    share.__doc__ = f"Let every key of the tenant see and use {objects}."
    unshare.__doc__ = f"Make {objects} visible only to their owner."
    register_command(app, "share", server=True, examples=f"paddock {group_name} share 3f2a")(share)
    register_command(app, "unshare", server=True, examples=f"paddock {group_name} unshare 3f2a")(unshare)

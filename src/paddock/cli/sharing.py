"""`share` and `unshare` of sessions, runs and sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli

if TYPE_CHECKING:
    from paddock.cli.client import Client

Opened = Callable[[Cli], AbstractAsyncContextManager["Client"]]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Ids, beginnings of ids, names.", show_default=False)]


def register_sharing(
    app: typer.Typer, called: str, thing: str, opened: Opened, path_of: Callable[[Client, str], Awaitable[str]]
) -> None:
    """Add the two commands to the group `called`, whose objects `path_of` finds."""

    async def change(cli: Cli, names: list[str], visibility: str) -> None:
        done: list[Any] = []
        async with opened(cli) as client:
            for name in names:
                done.append(await client.ask("PATCH", await path_of(client, name), json={"visibility": visibility}))
        if cli.as_json:
            return cli.out.document(done)
        return cli.out.line("\n".join(f"{each['id']}  {each['visibility']}" for each in done))

    async def share(cli: Cli, names: Names) -> None:
        await change(cli, names, "tenant")

    async def unshare(cli: Cli, names: Names) -> None:
        await change(cli, names, "private")

    share.__doc__ = f"Let every key of the tenant see and use {thing}."
    unshare.__doc__ = f"Make {thing} visible to their owner alone again."
    command(app, "share", server=True, examples=f"paddock {called} share 3f2a")(share)
    command(app, "unshare", server=True, examples=f"paddock {called} unshare 3f2a")(unshare)

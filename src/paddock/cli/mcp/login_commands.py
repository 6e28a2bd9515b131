"""`paddock mcp login|logout`: sign in at an MCP server by OAuth, and out."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.mcp.server_commands import ServerArgument, server_path
from paddock.cli.output.browser import open_in_browser
from paddock.cli.output.errors import CliError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

POLL_SECONDS = 0.5


def register_commands(app: typer.Typer) -> typer.Typer:
    register_command(
        app,
        "login",
        server=True,
        examples="""
            paddock mcp login tracker
            paddock mcp login tracker --print
            paddock mcp login tracker --status
        """,
    )(log_in)
    register_command(app, "logout", server=True, examples="paddock mcp logout tracker")(log_out)
    return app


async def log_in(
    cli: CliContext,
    name: ServerArgument,
    print_only: Annotated[bool, typer.Option("--print", help="Print the link instead of opening a browser.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the sign-in is done.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only show whether you are signed in.")] = False,
) -> None:
    """Sign in at an MCP server: opens its page in a browser, and waits until you have confirmed there.

    The link works once, within ten minutes. The server keeps the tokens, encrypted, and renews them.
    """
    path = f"{server_path(name)}/login"
    async with cli.open_client() as client:
        if status:
            return _show_state(cli, name, await client.get(path))
        started = await client.post(path)
        if no_wait:
            return cli.out.print_json(started) if cli.as_json else cli.out.print_line(started["url"])
        is_opened = not print_only and not cli.as_json and open_in_browser(started["url"])
        if not is_opened:
            # Standard output is for the result.
            sys.stderr.write(f"Open in a browser that reaches this server:\n{started['url']}\n")
        sys.stderr.write("Waiting until you have signed in and confirmed; end with Ctrl-C.\n")
        sys.stderr.flush()
        state = await _wait_until_done(client, path, started["id"])
    return _show_state(cli, name, state)


async def log_out(cli: CliContext, name: ServerArgument) -> None:
    """Sign out at an MCP server: the tokens are deleted, and revoked if the authorization server can do that."""
    async with cli.open_client() as client:
        ended = await client.request_json("DELETE", f"{server_path(name)}/login")
    if cli.as_json:
        return cli.out.print_json(ended)
    return cli.out.print_line(f"Signed out at {name}{'; the tokens are revoked' if ended['revoked'] else ''}.")


async def _wait_until_done(client: ServerClient, path: str, started: str) -> dict[str, Any]:
    """Return the state once the sign-in has ended well. Raises `CliError` otherwise."""
    while True:
        state: dict[str, Any] = await client.get(path)
        last = state.get("last")
        if last is None or last["id"] != started:
            raise CliError("another sign-in at this server has replaced this one")
        if last["state"] == "done":
            return state
        if last["state"] == "failed":
            raise CliError(f"not signed in: {last['error']}")
        await asyncio.sleep(POLL_SECONDS)


def _show_state(cli: CliContext, name: str, state: dict[str, Any]) -> None:
    if cli.as_json:
        return cli.out.print_json(state)
    if not state["needed"]:
        return cli.out.print_line(f"{name} needs no sign-in.")
    if not state["signedIn"]:
        return cli.out.print_line(f"Not signed in at {name}.")
    account = f" as {state['account']}" if state.get("account") else ""
    scopes = f", scopes {' '.join(state['scopes'])}" if state["scopes"] else ""
    return cli.out.print_line(f"Signed in at {name}{account} ({state['issuer']}{scopes}).")

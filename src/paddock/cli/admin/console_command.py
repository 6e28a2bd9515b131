"""`paddock console`: opens the web console in a browser, signed in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.browser import open_in_browser


def register_commands(app: typer.Typer) -> None:
    register_command(
        app,
        "console",
        server=True,
        examples="""
            paddock console
            paddock console --print
        """,
    )(open_web_console)


async def open_web_console(
    cli: CliContext,
    print_only: Annotated[bool, typer.Option("--print", help="Print the link instead of opening a browser.")] = False,
) -> None:
    """Open the console in a browser, signed in.

    The link works once, within two minutes, and signs the browser in with this command's API key.
    """
    async with cli.open_client() as client:
        login = await client.post("/v1/login/codes")
        # In the fragment, which browsers do not send, so that the code appears in no log.
        address = f"{client.url}/#code={login['code']}"
    if cli.as_json:
        return cli.out.print_json({"url": address, "expiresAt": login["expiresAt"]})
    if not print_only and open_in_browser(address):
        return cli.out.print_line(f"opened {client.url} in your browser")
    cli.out.print_line(address)
    if not print_only:
        sys.stderr.write(
            f"  Open it in a browser {_opening_instructions(address)}. It works once, within two minutes.\n"
        )
    return None


def _opening_instructions(address: str) -> str:
    """Describe on which machine the link can be opened."""
    import socket
    from urllib.parse import urlsplit

    from paddock.auth.network_exposure import is_local_only_address

    parts = urlsplit(address)
    if not is_local_only_address(parts.hostname or ""):
        return f"that reaches {parts.hostname}"
    name = socket.gethostname()
    return (
        f"on this machine ({name}); from elsewhere, first run there: ssh -L {parts.port}:127.0.0.1:{parts.port} {name}"
    )

"""`paddock console`: opens the console in a browser, signed in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli


def register(app: typer.Typer) -> None:
    command(
        app,
        "console",
        server=True,
        examples="""
            paddock console
            paddock console --print
        """,
    )(console)


async def console(
    cli: Cli,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the address instead of opening a browser.")
    ] = False,
) -> None:
    """Open the console in a browser, signed in.

    The address that is opened or printed signs one browser in, within two minutes, as the key that this command uses.
    """
    async with cli.client() as client:
        made = await client.post("/v1/login/codes")
        # Behind the #, so that it is never sent to a server, nor kept in a log.
        address = f"{client.url}/#code={made['code']}"
    if cli.as_json:
        return cli.out.document({"url": address, "expiresAt": made["expiresAt"]})
    if not print_only and _opened(address):
        return cli.out.line(f"opened {client.url} in your browser")
    cli.out.line(address)
    if not print_only:
        sys.stderr.write(f"  Open it in a browser {_where(address)}. It works once, within two minutes.\n")
    return None


def _where(address: str) -> str:
    """Say on which machine an address can be opened."""
    import socket
    from urllib.parse import urlsplit

    from paddock.auth.exposure import is_loopback

    parts = urlsplit(address)
    if not is_loopback(parts.hostname or ""):
        return f"that reaches {parts.hostname}"
    name = socket.gethostname()
    return (
        f"on this machine ({name}); from elsewhere, first run there: ssh -L {parts.port}:127.0.0.1:{parts.port} {name}"
    )


def _opened(address: str) -> bool:
    """Whether a browser took it. One that would take the terminal for itself is none."""
    import os
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False

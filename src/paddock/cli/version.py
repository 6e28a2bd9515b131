"""`paddock version`."""

from __future__ import annotations

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli


def register(app: typer.Typer) -> None:
    command(app, "version", examples="paddock version --json")(version)


def version(cli: Cli) -> None:
    """Show which Paddock this is."""
    import platform

    from paddock import __version__

    if cli.as_json:
        cli.out.document({"paddock": __version__, "python": platform.python_version(), "system": platform.platform()})
    else:
        cli.out.line(f"paddock {__version__} (Python {platform.python_version()}, {platform.platform()})")

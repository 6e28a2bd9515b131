"""`paddock version`: prints the versions of Paddock and Python."""

from __future__ import annotations

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext


def register_commands(app: typer.Typer) -> None:
    register_command(app, "version", examples="paddock version --json")(show_version)


def show_version(cli: CliContext) -> None:
    """Show version information."""
    import platform

    from paddock import __version__

    if cli.as_json:
        cli.out.print_json({"paddock": __version__, "python": platform.python_version(), "system": platform.platform()})
    else:
        cli.out.print_line(f"paddock {__version__} (Python {platform.python_version()}, {platform.platform()})")

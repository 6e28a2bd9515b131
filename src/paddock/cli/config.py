"""`paddock config`: every setting in use and where it came from."""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError


def register(app: typer.Typer) -> None:
    settings = group("Look at the configuration.")
    app.add_typer(settings, name="config")
    command(settings, "show", examples="paddock config show\npaddock config show sandboxes --changed")(show)
    command(settings, "path", examples="paddock config path")(path)
    command(settings, "check", examples="paddock config check --config paddock.yaml")(check)


def show(
    cli: Cli,
    section: Annotated[str | None, typer.Argument(metavar="KEY", help="Only this setting or section.")] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default.")] = False,
) -> None:
    """Show every setting, its value, and where it came from.

    Secrets are masked. A `${NAME}` that is not set in this shell is shown as unresolved.
    """
    from paddock.config import describe

    lines = describe(cli.readable)
    if section:
        lines = [line for line in lines if line.key == section or line.key.startswith(f"{section}.")]
        if not lines:
            raise CliError(f"there is no setting {section}", hint="see them all: paddock config show")
    if changed:
        lines = [line for line in lines if line.origin != "default"]
    if cli.as_json:
        return cli.out.document([line._asdict() for line in lines])
    rows = [[line.key, line.value, line.origin] for line in lines]
    return cli.out.table(["KEY", "VALUE", "FROM"], rows, wraps=["VALUE", "FROM"])


def path(cli: Cli) -> None:
    """Show which configuration file is read, if any."""
    file = cli.load({}, only=["data"]).file
    if cli.as_json:
        return cli.out.document({"file": str(file) if file else None, "data": str(cli.data)})
    if file is None:
        raise CliError("no configuration file is read", hint="all defaults; a paddock.yaml here would be found")
    return cli.out.line(str(file))


def check(cli: Cli) -> None:
    """Check whether `paddock serve` could start with the configuration in this shell.

    Every `${NAME}` must be set. The exit code is 0 if the configuration is valid.
    """
    file = cli.loaded.file
    if cli.as_json:
        return cli.out.document({"valid": True, "file": str(file) if file else None})
    return cli.out.line(f"valid: {file or 'no file, all defaults'}")

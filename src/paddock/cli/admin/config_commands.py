"""`paddock config`: shows and checks settings and their origins."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError


def register_commands(app: typer.Typer) -> None:
    settings = command_group("Show and check the configuration.")
    app.add_typer(settings, name="config")
    register_command(settings, "show", examples="paddock config show\npaddock config show sandboxes --changed")(
        show_config
    )
    register_command(settings, "path", examples="paddock config path")(show_config_path)
    register_command(settings, "check", examples="paddock config check --config paddock.yaml")(check_config)


def show_config(
    cli: CliContext,
    section: Annotated[str | None, typer.Argument(metavar="KEY", help="Setting or section to show.")] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only settings that differ from the default.")
    ] = False,
) -> None:
    """Show every setting, its value and its origin.

    Secrets are masked. A `${NAME}` that is not set in this shell is shown as unresolved.
    """
    from paddock.config import list_settings

    lines = list_settings(cli.lenient_config)
    if section:
        lines = [line for line in lines if line.key == section or line.key.startswith(f"{section}.")]
        if not lines:
            raise CliError(f"there is no setting {section}", hint="list all settings: paddock config show")
    if changed:
        lines = [line for line in lines if line.origin != "default"]
    if _depends_on_environment(section) and cli.has_server:
        sys.stderr.write(
            "note: this is the configuration with the environment of this shell; a running server has its own. "
            "Its models: paddock llm list\n"
        )
    if cli.as_json:
        return cli.out.print_json([line._asdict() for line in lines])
    rows = [[line.key, line.value, line.origin] for line in lines]
    return cli.out.print_table(["KEY", "VALUE", "FROM"], rows, wraps=["VALUE", "FROM"])


def _depends_on_environment(section: str | None) -> bool:
    """Return whether the shown settings include providers, which are found by their keys in the environment."""
    return section is None or section.partition(".")[0] == "llm"


def show_config_path(cli: CliContext) -> None:
    """Print the path of the configuration file in use."""
    file = cli.load_config({}, only=["data"]).file
    if cli.as_json:
        return cli.out.print_json({"file": str(file) if file else None, "data": str(cli.data_directory)})
    if file is None:
        raise CliError(
            "there is no configuration file",
            hint="all settings have their defaults; create ./paddock.yaml to change some",
        )
    return cli.out.print_line(str(file))


def check_config(cli: CliContext) -> None:
    """Check that `paddock serve` can start with the configuration in this shell.

    Every `${NAME}` must be set. The exit code is 0 if the configuration is valid.
    """
    file = cli.strict_config.file
    if cli.as_json:
        return cli.out.print_json({"valid": True, "file": str(file) if file else None})
    return cli.out.print_line(f"valid: {file or 'no file, all defaults'}")

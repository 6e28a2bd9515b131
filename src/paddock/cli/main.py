"""Entry point of the `paddock` command: builds the command tree and turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from paddock.cli.framework.command_registration import HELP_WIDTH
from paddock.cli.framework.command_table import COMMANDS, SUMMARIES
from paddock.cli.output.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE_ERROR,
    exit_code_for,
    print_error,
    report_error,
)

_HELP = """\
Run AI agents in sandboxes and see what they do.

\b
Start here:
  paddock doctor                          check this machine
  paddock run tasks/hello.yaml            run a task with an agent
  paddock chat                            chat with an agent in sandboxes
  paddock serve                           start the server
  paddock console                         open the web console
  paddock sandbox create --image host     create a sandbox
  paddock sandbox create --kind linux     create one with a desktop
  paddock sandbox shell SANDBOX           open a shell in it
"""


def _show_version(wanted: bool) -> None:
    if wanted:
        from paddock import __version__

        sys.stdout.write(f"paddock {__version__}\n")
        raise typer.Exit


def build_app(wanted: str | None = None) -> typer.Typer:
    """Build the command tree. With `wanted`, load only that command and list the others by name and summary."""
    app = typer.Typer(
        name="paddock", help=_HELP, no_args_is_help=True, rich_markup_mode=None, context_settings=HELP_WIDTH
    )
    app.callback()(_top_level_options)
    for name, summary in SUMMARIES.items():
        modules = COMMANDS[name]
        if wanted is None or modules == COMMANDS.get(wanted):
            group = app
            for module in modules:
                group = importlib.import_module(f"paddock.cli.{module}").register_commands(group) or group
        else:
            app.command(name, help=summary)(_unused_command)
    return app


def _unused_command() -> None:
    raise AssertionError("only the requested command is run")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed as one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words
    as_json, debug = "--json" in own, "--debug" in own
    try:
        code = build_app(_find_command_name(words))(words, prog_name="paddock", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        # The reader of our output is gone: discard what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's error for invalid arguments
            return _report_usage_error(error, as_json)
        if debug:
            raise
        report_error(error, as_json=as_json)
        return exit_code_for(error)


def _find_command_name(words: Sequence[str]) -> str | None:
    """Return the name of the command to run, or of the one being completed in a shell."""
    if "_PADDOCK_COMPLETE" in os.environ:
        from paddock.cli.framework.shell_completion import typed_command_words as typed

        words = typed()
    return next((word for word in words if word in COMMANDS), "")


def _report_usage_error(error: Exception, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")  # type: ignore[attr-defined]
        return EXIT_USAGE_ERROR
    path = getattr(context, "command_path", "paddock")
    message = _describe_wrong_value(error)
    if message is None:
        message = str(error.format_message()).rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
        message = message[:1].lower() + message[1:]
    hint = f"see: {path} --help"
    if path.endswith("sandbox exec") and "option" in message:
        hint = "put the options of the inner command after --, for example: paddock sandbox exec SANDBOX -- ls -l"
    print_error("USAGE", message, hint, as_json=as_json)
    return getattr(error, "exit_code", EXIT_FAILED)


def _describe_wrong_value(error: Exception) -> str | None:
    """Describe what value an option or argument expects; None if the value is not the problem."""
    parameter, details = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if parameter is None or details is None:
        return None
    detail = details()[0]
    if detail["type"] == "value_error":
        return None
    from paddock.config.yaml_files import explain_validation_error

    names = [name for name in parameter.opts if name.startswith("-")]
    return (
        f"{max(names, key=len, default=parameter.metavar or parameter.name.upper())} {explain_validation_error(detail)}"
    )


def _top_level_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    sys.exit(run())

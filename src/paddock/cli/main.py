"""The `paddock` command: all commands put together, and what happens when one fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from paddock.cli import config, copy, doctor, events, execute, image, key, logs, sandbox, serve, shell, snapshot
from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import BROKEN_PIPE, FAILED, INTERRUPTED, USAGE, exit_code_of, report, show

_HELP = """\
Runs AI agents in fenced computers, and shows what they do.

\b
Start here:
  paddock doctor                          see whether this machine can
  paddock serve                           start the server
  paddock sandbox create --image host     make a sandbox
  paddock sandbox shell SANDBOX           look around in it
"""


def _show_version(wanted: bool) -> None:
    if wanted:
        from paddock import __version__

        sys.stdout.write(f"paddock {__version__}\n")
        raise typer.Exit


def build() -> typer.Typer:
    """All commands."""
    app = typer.Typer(name="paddock", help=_HELP, no_args_is_help=True, rich_markup_mode=None)
    app.callback()(_top)
    serve.register(app)
    boxes = sandbox.register(app)
    for module in (execute, shell, copy, logs, snapshot):
        module.register(boxes)
    image.register(app)
    key.register(app)
    config.register(app)
    doctor.register(app)
    events.register(app)
    command(app, "version", examples="paddock version --json")(version)
    return app


def version(cli: Cli) -> None:
    """Show which Paddock this is."""
    import platform

    from paddock import __version__

    if cli.as_json:
        cli.out.document({"paddock": __version__, "python": platform.python_version(), "system": platform.platform()})
    else:
        cli.out.line(f"paddock {__version__} (Python {platform.python_version()}, {platform.platform()})")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors become one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words
    as_json, debug = "--json" in own, "--debug" in own
    try:
        code = build()(words, prog_name="paddock", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        # Whoever read our output has left; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer raises for arguments it cannot read
            return _misused(error, as_json)
        if debug:
            raise
        report(error, as_json=as_json)
        return exit_code_of(error)


def _misused(error: Exception, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")  # type: ignore[attr-defined]
        return USAGE
    path = getattr(context, "command_path", "paddock")
    message = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    message = message[:1].lower() + message[1:]
    hint = f"see: {path} --help"
    if path.endswith("sandbox exec") and "option" in message:
        hint = "options of the command itself go behind --, as in: paddock sandbox exec SANDBOX -- ls -l"
    show("USAGE", message, hint, as_json=as_json)
    return getattr(error, "exit_code", FAILED)


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    sys.exit(run())

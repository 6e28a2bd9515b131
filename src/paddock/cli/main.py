"""The `paddock` command: all commands put together, and what happens when one fails."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from paddock.cli.commands import WIDTH
from paddock.cli.failure import BROKEN_PIPE, FAILED, INTERRUPTED, USAGE, exit_code_of, report, show

_HELP = """\
Runs AI agents in fenced computers, and shows what they do.

\b
Start here:
  paddock doctor                          check this machine
  paddock run tasks/hello.yaml            have an agent do a task
  paddock chat                            chat with an agent in sandboxes
  paddock serve                           start the server
  paddock console                         open its console in a browser
  paddock sandbox create --image host     make a sandbox
  paddock sandbox create --kind linux     make one with a desktop
  paddock sandbox shell SANDBOX           look around in it
"""


def _show_version(wanted: bool) -> None:
    if wanted:
        from paddock import __version__

        sys.stdout.write(f"paddock {__version__}\n")
        raise typer.Exit


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "serve": ("serve",),
    "console": ("console",),
    "run": ("run",),
    "runs": ("runs", "runs_watch", "runs_change"),
    "chat": ("chat",),
    "session": ("session",),
    "doctor": ("doctor",),
    "sandbox": ("sandbox", "execute", "shell", "copy", "logs", "snapshot", "screenshot", "desktop", "record"),
    "tool": ("tool",),
    "task": ("task",),
    "llm": ("llm", "llm_log", "llm_show", "llm_export", "llm_usage", "llm_record", "llm_replay"),
    "image": ("image",),
    "kind": ("kind",),
    "pool": ("pool",),
    "key": ("key",),
    "keys": ("key",),
    "config": ("config",),
    "events": ("events",),
    "version": ("version",),
}
"""Every command at the top, and the modules that bring it; only those of the command that runs are imported."""
SUMMARIES: Mapping[str, str] = {
    "serve": "Start the server.",
    "console": "Open the console in a browser, signed in.",
    "run": "Run tasks, and bring back what comes of them.",
    "runs": "List, show, stop and remove runs of tasks.",
    "chat": "Chat with an agent that works in sandboxes.",
    "session": "List, show, search, keep and remove chats with agents.",
    "doctor": "Check this machine and suggest fixes.",
    "sandbox": "Make, use and remove sandboxes.",
    "tool": "List and call the tools of sandboxes.",
    "task": "Check, list and write task files.",
    "llm": "Ask models, and look at what was asked of them.",
    "image": "Build, list and remove images.",
    "kind": "List the sorts of computer that sandboxes can be.",
    "pool": "Keep sandboxes ready ahead of need.",
    "key": "Make, list and revoke API keys.",
    "config": "Look at the configuration.",
    "events": "Show what has happened to sandboxes, snapshots, pools and runs.",
    "version": "Show which Paddock this is.",
}


def build(wanted: str | None = None) -> typer.Typer:
    """All commands; or only the one `wanted` whole, and of the others the names and what they are for."""
    app = typer.Typer(name="paddock", help=_HELP, no_args_is_help=True, rich_markup_mode=None, context_settings=WIDTH)
    app.callback()(_top)
    for name, summary in SUMMARIES.items():
        modules = COMMANDS[name]
        if wanted is None or modules == COMMANDS.get(wanted):
            place = app
            for module in modules:
                place = importlib.import_module(f"paddock.cli.{module}").register(place) or place
        else:
            app.command(name, help=summary)(_stub)
    return app


def _stub() -> None:
    raise AssertionError("only the command that was asked for is run")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors become one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words
    as_json, debug = "--json" in own, "--debug" in own
    try:
        code = build(_command_of(words))(words, prog_name="paddock", standalone_mode=False)
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


def _command_of(words: Sequence[str]) -> str | None:
    """The command that is asked for, or that is to be completed."""
    if "_PADDOCK_COMPLETE" in os.environ:
        from paddock.cli.completion import words as typed

        words = typed()
    return next((word for word in words if word in COMMANDS), "")


def _misused(error: Exception, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")  # type: ignore[attr-defined]
        return USAGE
    path = getattr(context, "command_path", "paddock")
    message = _wrong_value(error)
    if message is None:
        message = str(error.format_message()).rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
        message = message[:1].lower() + message[1:]
    hint = f"see: {path} --help"
    if path.endswith("sandbox exec") and "option" in message:
        hint = "options of the command itself go behind --, as in: paddock sandbox exec SANDBOX -- ls -l"
    show("USAGE", message, hint, as_json=as_json)
    return getattr(error, "exit_code", FAILED)


def _wrong_value(error: Exception) -> str | None:
    """Say in our own words what an option or argument must be; None if its value is not what is wrong."""
    parameter, details = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if parameter is None or details is None:
        return None
    detail = details()[0]
    if detail["type"] == "value_error":
        return None
    from paddock.config.yamls import advice

    names = [name for name in parameter.opts if name.startswith("-")]
    return f"{max(names, key=len, default=parameter.metavar or parameter.name.upper())} {advice(detail)}"


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    sys.exit(run())

"""Errors of the command line, and how errors are printed: one line, a hint and an exit code."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from paddock.cli.output.formatting import sanitize_lines, sanitize_text
from paddock.errors import PaddockError

EXIT_FAILED = 1
EXIT_USAGE_ERROR = 2
EXIT_PADDOCK_FAILED = 125
"""Exit code of `exec` and `shell` if Paddock fails and not the command; the same as Docker's."""
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CliError(PaddockError):
    """The command failed."""

    code = "FAILED"

    def __init__(self, message: str = "", *, hint: str | None = None, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


class UsageError(CliError):
    """Usage error: a wrong command, option or argument."""

    code = "USAGE"

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_USAGE_ERROR)


class NoServerError(CliError):
    """No Paddock server answers."""

    code = "NO_SERVER"


class ConnectionLost(CliError):
    """The connection to the server was lost."""

    code = "CONNECTION_LOST"


class RequestRefused(CliError):
    """The server answered with an error."""

    def __init__(self, status: int, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.server_code = code


def error_code(error: BaseException) -> str:
    """Return the stable code of an error; for errors of the server, the server's code."""
    if isinstance(error, RequestRefused):
        return error.server_code
    return error.code if isinstance(error, PaddockError) else "INTERNAL_ERROR"


def exit_code_for(error: BaseException) -> int:
    return error.exit_code if isinstance(error, CliError) else EXIT_FAILED


def report_error(error: BaseException, *, as_json: bool) -> None:
    """Print an error and its hint on standard error."""
    message = str(error)
    hint = getattr(error, "hint", None)
    if not isinstance(error, PaddockError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
        hint = "this is a bug in Paddock; run the command again with --debug and report the output"
    print_error(error_code(error), message, hint, as_json=as_json)


def print_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {"code": code, "message": message}
        if hint:
            document["hint"] = hint
        sys.stderr.write(json.dumps({"error": document}) + "\n")
        return
    colours = supports_colour()
    label = "\x1b[1;31merror:\x1b[0m" if colours else "error:"
    sys.stderr.write(f"{label} {sanitize_lines(message)}\n")
    if hint:
        sys.stderr.write(f"  {sanitize_text(hint)}\n")


def print_warning(message: str) -> None:
    """Print a warning on standard error."""
    label = "\x1b[33mwarning:\x1b[0m" if supports_colour() else "warning:"
    sys.stderr.write(f"{label} {sanitize_text(message)}\n")


def supports_colour(stream: TextIO | None = None) -> bool:
    """Return whether a stream, by default standard error, is a terminal that accepts colours."""
    import os

    return (stream or sys.stderr).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

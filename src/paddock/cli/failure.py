"""Errors of the command line itself, and how any error is shown: one line, a hint, an exit code."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from paddock.cli.output import plain, readable
from paddock.errors import PaddockError

FAILED = 1
USAGE = 2
OURS = 125
"""Exit code of `exec` and its like for errors that are Paddock's and not the command's, as Docker has it."""
INTERRUPTED = 130
BROKEN_PIPE = 141


class CliError(PaddockError):
    """The command could not be carried out."""

    code = "FAILED"

    def __init__(self, message: str = "", *, hint: str | None = None, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


class UsageProblem(CliError):
    """Usage error: a wrong command, option or argument."""

    code = "USAGE"

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=USAGE)


class NoServer(CliError):
    """No Paddock server answers."""

    code = "NO_SERVER"


class ConnectionLost(CliError):
    """The connection to the server broke off."""

    code = "CONNECTION_LOST"


class Refused(CliError):
    """The server refused."""

    def __init__(self, status: int, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.server_code = code


def code_of(error: BaseException) -> str:
    """The stable name of an error, the server's own where it comes from there."""
    if isinstance(error, Refused):
        return error.server_code
    return error.code if isinstance(error, PaddockError) else "INTERNAL_ERROR"


def exit_code_of(error: BaseException) -> int:
    return error.exit_code if isinstance(error, CliError) else FAILED


def report(error: BaseException, *, as_json: bool) -> None:
    """Say on standard error what went wrong."""
    message = str(error)
    hint = getattr(error, "hint", None)
    if not isinstance(error, PaddockError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
        hint = "this is a fault of Paddock; run the same command with --debug and report what it prints"
    show(code_of(error), message, hint, as_json=as_json)


def show(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {"code": code, "message": message}
        if hint:
            document["hint"] = hint
        sys.stderr.write(json.dumps({"error": document}) + "\n")
        return
    colours = wants_colour()
    label = "\x1b[1;31merror:\x1b[0m" if colours else "error:"
    sys.stderr.write(f"{label} {readable(message)}\n")
    if hint:
        sys.stderr.write(f"  {plain(hint)}\n")


def warn(message: str) -> None:
    """Say something on standard error that does not end the command."""
    label = "\x1b[33mwarning:\x1b[0m" if wants_colour() else "warning:"
    sys.stderr.write(f"{label} {plain(message)}\n")


def wants_colour(stream: TextIO | None = None) -> bool:
    """Whether a stream, or else standard error, is a terminal whose owner has not asked for plain text."""
    import os

    return (stream or sys.stderr).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

"""Writes files atomically and shows a running count while they are written."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paddock.cli.output.errors import CliError

_REFRESH_SECONDS = 0.1


@contextmanager
def open_atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is renamed to `path` once it is complete, and removed if writing fails.

    Only the owner may read it, because recorded conversations are private.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def show_running_count(what: str) -> Iterator[Callable[[int], None]]:
    """Show a running count on a terminal, in a line that is erased at the end."""
    shown = 0.0
    visible = sys.stderr.isatty()

    def show(number: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if visible and now - shown >= _REFRESH_SECONDS:
            shown = now
            sys.stderr.write(f"\r\x1b[K{what}: {number:,}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

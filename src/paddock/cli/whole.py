"""Files that appear under their name only when they are whole, and what is shown while they grow."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paddock.cli.failure import CliError

_SHOWN_EVERY = 0.1


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its name when all is written, and of which nothing stays when that fails.

    Only its owner may read it: what was said to a model is nobody else's business.
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
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many there are by now, in a line that goes away at the end."""
    shown = 0.0
    visible = sys.stderr.isatty()

    def show(number: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if visible and now - shown >= _SHOWN_EVERY:
            shown = now
            sys.stderr.write(f"\r\x1b[K{what}: {number:,}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

"""A server that `paddock run` started, kept for the next command for a while after the run has ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.context import is_served

if TYPE_CHECKING:
    from paddock.config import Config

KEEP = b"keep\n"
"""What a command writes to its server's standard input to have it stay for a while."""
NOTE = "run-server.json"
"""The file in the data directory that says which server is kept, and with which configuration."""
_LOOK_EVERY = 0.25
_END_SECONDS = 40.0

Use = Callable[[], tuple[bool, int]]
"""Returns whether requests or runs are under way, and how many requests there have been."""


def serve_while_wanted(config: Config, use: Use) -> None:
    """End this server with the command that started it, or, when that says so, once it is idle for long enough."""

    def wait() -> None:
        received = b""
        while piece := os.read(sys.stdin.fileno(), 4096):
            received += piece
        if received == KEEP and _note(config):
            _wait_until_idle(config.runs.warm_server, use)
            (config.data / NOTE).unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="with-stdin", daemon=True).start()


def _wait_until_idle(seconds: float, use: Use) -> None:
    last, counted = time.monotonic(), -1
    while time.monotonic() - last < seconds:
        busy, requests = use()
        if busy or requests != counted:
            last, counted = time.monotonic(), requests
        time.sleep(min(_LOOK_EVERY, seconds))


def _note(config: Config) -> bool:
    path = config.data / NOTE
    try:
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump({"pid": os.getpid(), "config": fingerprint(config)}, file)
    except OSError:
        return False
    return True


def fingerprint(config: Config) -> str:
    """A digest of all settings that a kept server must share with the command that uses it."""
    import hashlib

    from paddock import __version__

    def plain(value: Any) -> Any:
        reveal = getattr(value, "get_secret_value", None)
        return reveal() if reveal else str(value)

    document = json.dumps(config.model_dump(exclude={"server"}), default=plain, sort_keys=True)
    return hashlib.sha256(f"{__version__}\0{document}".encode()).hexdigest()


def kept_server(data: Path) -> tuple[int, str] | None:
    """The process and the configuration of the kept server of a data directory, if there is one."""
    try:
        note = json.loads((data / NOTE).read_text())
        process, config = int(note["pid"]), str(note["config"])
        holder = int((data / "server.lock").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (process, config) if process == holder and is_served(data) else None


def end_kept_server(data: Path) -> None:
    """Ask the kept server of a data directory to end, and wait until it has; do nothing if there is none."""
    kept = kept_server(data)
    if kept is None:
        return
    try:
        # The descriptor means this process also when its number is given to another one.
        descriptor = os.pidfd_open(kept[0])
    except OSError:
        return
    try:
        if kept_server(data) == kept:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            _ended(descriptor)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _ended(descriptor: int) -> None:
    import select

    select.select([descriptor], [], [], _END_SECONDS)

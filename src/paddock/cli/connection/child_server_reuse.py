"""Keeps the server that `paddock run` started for the next command, until it is idle."""

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

from paddock.cli.connection.server_address import has_running_server

if TYPE_CHECKING:
    from paddock.config import Config

KEEP_MESSAGE = b"keep\n"
"""Written to a child server's standard input to keep it running after its command."""
KEPT_SERVER_FILE = "run-server.json"
"""File in the data directory with the kept server's process id and configuration fingerprint."""
_POLL_SECONDS = 0.25
_STOP_SECONDS = 40.0

ReadActivity = Callable[[], tuple[bool, int]]
"""Returns whether requests or runs are active, and the number of requests so far."""


def stop_server_when_unused(config: Config, use: ReadActivity) -> None:
    """Stop this server when its parent command ends or, if requested to stay, after an idle period."""

    def wait() -> None:
        received = b""
        while piece := os.read(sys.stdin.fileno(), 4096):
            received += piece
        if received == KEEP_MESSAGE and _write_note(config):
            _wait_until_idle(config.runs.warm_server, use)
            (config.data / KEPT_SERVER_FILE).unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="with-stdin", daemon=True).start()


def _wait_until_idle(seconds: float, use: ReadActivity) -> None:
    last, counted = time.monotonic(), -1
    while time.monotonic() - last < seconds:
        busy, requests = use()
        if busy or requests != counted:
            last, counted = time.monotonic(), requests
        time.sleep(min(_POLL_SECONDS, seconds))


def _write_note(config: Config) -> bool:
    path = config.data / KEPT_SERVER_FILE
    try:
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump({"pid": os.getpid(), "config": config_fingerprint(config)}, file)
    except OSError:
        return False
    return True


def config_fingerprint(config: Config) -> str:
    """Return a digest of all settings that a kept server must share with a command that uses it."""
    import hashlib

    from paddock import __version__

    def plain(value: Any) -> Any:
        reveal = getattr(value, "get_secret_value", None)
        return reveal() if reveal else str(value)

    document = json.dumps(config.model_dump(exclude={"server"}), default=plain, sort_keys=True)
    return hashlib.sha256(f"{__version__}\0{document}".encode()).hexdigest()


def read_kept_server(data: Path) -> tuple[int, str] | None:
    """Return the process id and configuration fingerprint of a data directory's kept server, if any."""
    try:
        note = json.loads((data / KEPT_SERVER_FILE).read_text())
        process, config = int(note["pid"]), str(note["config"])
        holder = int((data / "server.lock").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (process, config) if process == holder and has_running_server(data) else None


def stop_kept_server(data: Path) -> None:
    """Stop a data directory's kept server, if any, and wait for its end."""
    kept = read_kept_server(data)
    if kept is None:
        return
    try:
        # A pidfd is safe even if the process id is reused.
        descriptor = os.pidfd_open(kept[0])
    except OSError:
        return
    try:
        if read_kept_server(data) == kept:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            _wait_for_exit(descriptor)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _wait_for_exit(descriptor: int) -> None:
    import select

    select.select([descriptor], [], [], _STOP_SECONDS)

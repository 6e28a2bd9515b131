"""Validates server URLs and finds the running server of a data directory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paddock.cli.output.errors import CliError, NoServerError

DEFAULT_URL = "http://127.0.0.1:8420"
_START_SECONDS = 15.0
"""Time to wait for a server that is starting."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ServerTarget:
    """URL of a server and the API key for it."""

    url: str
    key: str | None


def no_server_error(url: str) -> NoServerError:
    return NoServerError(f"no Paddock server at {url}; start one with: paddock serve")


def running_server_url(data: Path) -> str | None:
    """Return the URL of the server that currently uses a data directory, if any."""
    import json

    if not has_running_server(data):
        return None
    try:
        document = json.loads((data / "server.json").read_text(encoding="utf-8"))
        return str(document["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def wait_for_server_url(data: Path, seconds: float = _START_SECONDS) -> str | None:
    """Return the URL of the server that uses a data directory, waiting for a server that is starting."""
    deadline = time.monotonic() + seconds
    while (url := running_server_url(data)) is None and has_running_server(data) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return url


def has_running_server(data: Path) -> bool:
    """Return whether a server holds the data directory's lock."""
    import fcntl

    try:
        descriptor = os.open(data / "server.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        raise CliError(f"{data} belongs to another user", hint="choose another directory with --data") from None
    try:
        # A shared lock, so that two concurrent checks do not mistake each other for a server.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def normalize_server_url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise CliError(f"{text!r} is not a server URL", hint=f"example: {DEFAULT_URL}")
    return url.rstrip("/")


def is_loopback_url(url: str) -> bool:
    from paddock.auth.network_exposure import is_local_only_address

    return is_local_only_address(urlsplit(url).hostname or "")

"""Listening sockets of the server, and the file that names its URL."""

from __future__ import annotations

import json
import os
import resource
import secrets
import socket
from pathlib import Path

from paddock.config.schema import Config
from paddock.errors import ConfigError, Unavailable
from paddock.store.data_lock import DataDirectoryLock


def check_port_is_free(config: Config) -> None:
    """Raise `Unavailable` if the port is taken, before any thread or process of the server is started.

    If the data directory is in use as well, raises `AlreadyRunning`, which explains more.
    """
    with DataDirectoryLock.acquire(config.data):
        open_listener(config.server.host, config.server.port).close()


def open_listener(host: str, port: int, setting: str = "server.port") -> socket.socket:
    """Open a listening socket. `setting` is named in errors.

    Raises `Unavailable` if the address is taken, `ConfigError` if it is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} is not an address of this machine: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        flag = ", for example with --port 9000" if setting == "server.port" else ""
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror}; stop the other program or set another {setting}{flag}"
        ) from None
    return listener


def listener_url(listener: socket.socket, host: str) -> str:
    """Return the URL of the server on this machine."""
    bound, port = listener.getsockname()[:2]
    if bound in ("0.0.0.0", "::"):  # noqa: S104
        bound = "127.0.0.1"
    elif host == "localhost":
        bound = host
    return f"http://[{bound}]:{port}" if ":" in bound else f"http://{bound}:{port}"


def write_server_file(path: Path, url: str) -> None:
    """Write the server's URL for the command line, atomically and readable by the owner only."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump({"pid": os.getpid(), "url": url}, file)
    partial.replace(path)


def raise_open_file_limit() -> None:
    """Raise the limit on open files: each sandbox and each connection needs one or two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

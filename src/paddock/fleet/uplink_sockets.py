"""Unix sockets through which sandboxes reach uplink services of the server."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Host names by which programs in a sandbox address its uplink services."""


class UplinkServer(Protocol):
    """A server of one uplink service of one sandbox."""

    async def listen(self, bound: socket.socket, /) -> None: ...

    async def close(self) -> None: ...


@asynccontextmanager
async def publish_uplink_socket(directory_path: Path, name: str) -> AsyncIterator[socket.socket]:
    """Bind the socket of uplink service `name`; publish it under its name at the end of the context.

    `directory_path` is the directory of the sandbox's sockets: only the host writes it, only the host and the sandbox
    can enter it. A socket that an earlier server left under the name is replaced. Nothing is published if the context
    raises.
    """
    directory = os.open(directory_path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    partial = f".{name}-{secrets.token_hex(4)}"
    try:
        yield _bind_socket(directory, partial)
        # Published only now that it is being served.
        os.rename(partial, f"{name}.sock", src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=directory)
        os.close(directory)


async def serve_uplink_socket(server: UplinkServer, directory_path: Path, name: str) -> None:
    """Serve uplink service `name` of the sandbox with this directory of sockets; close the server on failure."""
    try:
        async with publish_uplink_socket(directory_path, name) as bound:
            await server.listen(bound)
    except BaseException:
        await server.close()
        raise


def _bind_socket(directory: int, name: str) -> socket.socket:
    """Bind a socket in a directory, usable by every user that can enter the directory."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The path through /proc is short; the directory's own may exceed the limit of socket addresses.
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        os.chmod(name, 0o666, dir_fd=directory)  # noqa: S103
    except BaseException:
        listener.close()
        raise
    return listener


def is_from_web_page(headers: Mapping[str, str]) -> bool:
    """Return whether a request to an uplink service may come from a web page.

    Uplink services need no key, and a browser in the sandbox lets any page send requests to them. The browser sends the
    page's origin, and after DNS rebinding the foreign host name.
    """
    host = headers.get("Host", "127.0.0.1").rpartition(":")
    return "Origin" in headers or (host[0] or host[2]).lower() not in _LOOPBACK_NAMES

"""Sockets that boxes reach through their holes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names by which programs in a box call its holes."""


@asynccontextmanager
async def hole_socket(holes: Path, name: str) -> AsyncIterator[socket.socket]:
    """A socket for the hole `name` of a box, to be served within; it takes its place at the end, unless that raises.

    `holes` is the directory of the box's sockets. Only the host writes it, and nobody but the host and the box gets
    into it. Whatever an earlier server has left under the name is replaced.
    """
    directory = os.open(holes, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    partial = f".{name}-{secrets.token_hex(4)}"
    try:
        yield _bound(directory, partial)
        # Under its name it appears only now that it answers.
        os.rename(partial, f"{name}.sock", src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=directory)
        os.close(directory)


def _bound(directory: int, name: str) -> socket.socket:
    """A socket in a directory, which everybody may use who can get there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The way through /proc is short; the directory's own may be longer than the address of a socket can be.
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        os.chmod(name, 0o666, dir_fd=directory)  # noqa: S103
    except BaseException:
        listener.close()
        raise
    return listener


def from_a_page(headers: Mapping[str, str]) -> bool:
    """Whether a web page may be behind a request that came through a hole.

    Holes need no key, and a browser in the box lets any page send to them. It says where a page is from, and of a name
    that was made to lead here (DNS rebinding) it says the name.
    """
    host = headers.get("Host", "127.0.0.1").rpartition(":")
    return "Origin" in headers or (host[0] or host[2]).lower() not in _HERE

"""A worker process: carries out the tasks that come over its socket, one after another, until that is closed."""

from __future__ import annotations

import pickle
import resource
import socket
import sys
from typing import Any

from paddock.errors import PaddockError, Unavailable
from paddock.llm.offload.tasks import TASKS

HEAD = 16
"""Bytes before each message: the lengths of its two parts."""
_MOST_MEMORY = 6 * 2**30


def pack(value: Any, body: bytes) -> tuple[bytes, bytes]:
    """A message: a pickled value with its head, and a body that is sent as it is."""
    value = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(value).to_bytes(8, "big") + len(body).to_bytes(8, "big") + value, body


def lengths(head: bytes) -> tuple[int, int]:
    return int.from_bytes(head[:8], "big"), int.from_bytes(head[8:], "big")


def main(connection: socket.socket) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    with connection, connection.makefile("rb") as incoming:
        while head := incoming.read(HEAD):
            first, second = lengths(head)
            # Both ends are this program's own, and nobody else has the socket.
            name, argument = pickle.loads(incoming.read(first))  # noqa: S301
            for part in pack(*_carried_out(name, argument, incoming.read(second))):
                connection.sendall(part)


def _carried_out(name: str, argument: Any, body: bytes) -> tuple[Any, bytes]:
    """The result and its body, or the error and nothing."""
    try:
        return TASKS[name](argument, body)
    except PaddockError as error:
        return error, b""
    except MemoryError:
        return Unavailable("this request takes more memory to read than there is; make it smaller"), b""
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}"), b""


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

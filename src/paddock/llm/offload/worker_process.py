"""Worker process: runs the tasks it receives over its socket, one after another, until the socket closes."""

from __future__ import annotations

import pickle
import resource
import socket
import sys
from typing import Any

from paddock.errors import PaddockError, Unavailable
from paddock.llm.offload.worker_tasks import TASKS

HEADER_BYTES = 16
"""Size of a message's header: the lengths of its two parts."""
_MAX_MEMORY = 6 * 2**30


def pack_worker_message(value: Any, body: bytes) -> tuple[bytes, bytes]:
    """Return the two parts of a message: header with pickled value, and the body as it is."""
    value = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(value).to_bytes(8, "big") + len(body).to_bytes(8, "big") + value, body


def worker_message_lengths(head: bytes) -> tuple[int, int]:
    return int.from_bytes(head[:8], "big"), int.from_bytes(head[8:], "big")


def main(connection: socket.socket) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    with connection, connection.makefile("rb") as incoming:
        while head := incoming.read(HEADER_BYTES):
            first, second = worker_message_lengths(head)
            # Both ends belong to this program, and no other process has the socket.
            name, argument = pickle.loads(incoming.read(first))  # noqa: S301
            for part in pack_worker_message(*_run_task(name, argument, incoming.read(second))):
                connection.sendall(part)


def _run_task(name: str, argument: Any, body: bytes) -> tuple[Any, bytes]:
    """Run a task, and return its result and body, or the error and an empty body."""
    try:
        return TASKS[name](argument, body)
    except PaddockError as error:
        return error, b""
    except MemoryError:
        return Unavailable("parsing this request takes too much memory; make it smaller"), b""
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}"), b""


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

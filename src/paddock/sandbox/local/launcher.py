"""The process that starts boxes: `launch.py`, kept running so that a start costs a fork and no interpreter."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.sandbox.local.processes import memory_file

PROGRAM = str(Path(__file__).with_name("launch.py"))
FIRST_KEPT = 3
"""The box's first process finds the descriptors it is given from this number on, in their order.

They are few and their numbers small, because a shell can only name those of one digit.
"""


class Launcher:
    """Sends plans to `launch.py`, which forks for each; started when first needed, and again if it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None

    async def launch(self, plan: Mapping[str, Any], log: int, kept: Sequence[int]) -> bool:
        """Carry out a plan; False when it failed, which is then explained in the log.

        Once sent, a plan is seen to its end even if the caller is cancelled, so that nothing starts unseen.
        """
        finished, finish = os.pipe2(os.O_CLOEXEC)
        try:
            with memory_file("plan", json.dumps(plan).encode()) as document:
                self._send([document, log, finish, *kept])
            os.close(finish)
            finish = -1
            waiting = asyncio.ensure_future(_first_byte(finished))
            try:
                return await asyncio.shield(waiting)
            except asyncio.CancelledError:
                await asyncio.wait([waiting])
                raise
        finally:
            os.close(finished)
            if finish >= 0:
                os.close(finish)

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            self._process.wait()
        self._door = self._process = None

    def _send(self, descriptors: Sequence[int]) -> None:
        for last_try in (False, True):
            door = self._door or self._open()
            try:
                socket.send_fds(door, [b"launch"], descriptors)
                return
            except OSError:
                self.close()
                if last_try:
                    raise

    def _open(self) -> socket.socket:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", PROGRAM, str(theirs.fileno()), str(FIRST_KEPT)],
                stdin=subprocess.DEVNULL,
                env={},  # bubblewrap keeps it, as a process of the sandbox's user.
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C at the server's terminal is for the server.
            )
        return self._door


async def _first_byte(descriptor: int) -> bool:
    """Whether anything arrives before the other end is closed."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 1) != b""

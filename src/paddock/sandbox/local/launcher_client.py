"""Client of the launcher process: keeps `launcher_process.py` running, so that a sandbox start costs only a fork."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.errors import InvalidInput
from paddock.sandbox.local.process_control import open_memory_file

_LAUNCHED = b"!"
_LAUNCHED_WITHOUT_REDIRECTION = b"?"
LAUNCHER_PROGRAM = str(Path(__file__).with_name("launcher_process.py"))
SOURCE_ROOT = str(Path(__file__).parents[3])
FIRST_PASSED_DESCRIPTOR = 3
"""First descriptor number passed to the sandbox's first process; the others follow in order.

The numbers are small, because shells can name only single-digit descriptors.
"""


@dataclass(frozen=True)
class LaunchOutcome:
    """Outcome of a plan: executed or not, connections redirected to the daemon or not."""

    launched: bool
    redirected: bool


class LauncherClient:
    """Sends launch plans to `launcher_process.py`; starts it on first use and again after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._plan_socket: socket.socket | None = None

    async def launch(self, plan: Mapping[str, Any], log: int, passed: Sequence[int]) -> LaunchOutcome:
        """Execute a plan. After a failure the reason is in the log.

        Raises `InvalidInput` for a mount whose target is a file where a directory is needed, or the other way round.

        A cancelled caller still waits for the end of a sent plan, so that nothing starts untracked.
        """
        result_reader, result_writer = os.pipe2(os.O_CLOEXEC)
        try:
            with open_memory_file("plan", json.dumps(plan).encode()) as document:
                self._send([document, log, result_writer, *passed])
            os.close(result_writer)
            result_writer = -1
            reading = asyncio.ensure_future(_read_first_bytes(result_reader))
            try:
                outcome = await asyncio.shield(reading)
            except asyncio.CancelledError:
                await asyncio.wait([reading])
                raise
            if outcome not in (b"", _LAUNCHED, _LAUNCHED_WITHOUT_REDIRECTION):
                raise InvalidInput(f"nothing can be mounted at {outcome.decode(errors='replace')}")
            return LaunchOutcome(launched=outcome != b"", redirected=outcome == _LAUNCHED)
        finally:
            os.close(result_reader)
            if result_writer >= 0:
                os.close(result_writer)

    def close(self) -> None:
        if self._plan_socket is not None:
            self._plan_socket.close()
        if self._process is not None:
            self._process.wait()
        self._plan_socket = self._process = None

    def _send(self, descriptors: Sequence[int]) -> None:
        for last_try in (False, True):
            plan_socket = self._plan_socket or self._open()
            try:
                socket.send_fds(plan_socket, [b"launch"], descriptors)
                return
            except OSError:
                self.close()
                if last_try:
                    raise

    def _open(self) -> socket.socket:
        self._plan_socket, process_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with process_socket:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    LAUNCHER_PROGRAM,
                    str(process_socket.fileno()),
                    str(FIRST_PASSED_DESCRIPTOR),
                    SOURCE_ROOT,
                ],
                stdin=subprocess.DEVNULL,
                env={},  # bubblewrap keeps it, as a process of the sandbox's user.
                pass_fds=[process_socket.fileno()],
                start_new_session=True,  # Ctrl-C at the server's terminal must reach only the server.
            )
        return self._plan_socket


async def _read_first_bytes(descriptor: int) -> bytes:
    """Return the first received bytes; empty if the peer closes before."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 4096)

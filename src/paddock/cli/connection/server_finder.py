"""Finds the server for a command: the named one, the running one, or a child process started for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from paddock.cli.connection.child_server_reuse import (
    KEEP_MESSAGE,
    config_fingerprint,
    read_kept_server,
    stop_kept_server,
)
from paddock.cli.connection.data_directory import create_data_directory
from paddock.cli.connection.server_address import has_running_server, running_server_url
from paddock.cli.connection.server_client import ServerClient
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError
from paddock.cli.output.formatting import sanitize_text

SERVER_LOG_NAME = "run-server.log"
_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_RETURN_SECONDS = 5.0
"""Time in which a service manager may restart a server that ended."""
_START_OR_STOP_SECONDS = 15.0
"""Time to wait for a server that is starting or stopping."""
_CONNECT_SECONDS = 1.0
_POLL_SECONDS = 0.05
_LOG_TAIL_BYTES = 2000
_MAX_LOG_BYTES = 4 * 2**20
"""Size above which the log file is overwritten."""
WITH_STDIN_OPTION = "--with-stdin"
"""Hidden option of `paddock serve`: end when the command that started the server ends."""
PrintStatus = Callable[[str], None]


class ChildServer:
    """`paddock serve` as a child process, which ends when this process ends, even by a crash."""

    def __init__(self, cli: CliContext) -> None:
        self._cli = cli
        self._process: subprocess.Popen[bytes] | None = None
        self.log: Path = cli.data_directory / SERVER_LOG_NAME

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> str:
        """Start the server and return its URL, or that of another one that locked the data directory first."""
        await asyncio.to_thread(self._spawn)
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            # Any server that holds the data directory's lock will do.
            if url := await asyncio.to_thread(find_responding_server, self._cli.data_directory):
                return url
            if not self.is_running and not has_running_server(self._cli.data_directory):
                raise CliError(f"the server did not start: {self._last_log_line()}", hint=f"log file: {self.log}")
            await asyncio.sleep(_POLL_SECONDS)
        raise CliError(f"the server was not ready after {_READY_SECONDS:.0f} s", hint=f"log file: {self.log}")

    def _spawn(self) -> None:
        create_data_directory(self._cli.data_directory)
        words = [sys.executable, "-m", "paddock.cli.main", "serve", "--json", "--port", "0", WITH_STDIN_OPTION]
        words += self._cli.location_options()
        mode = "ab" if not self.log.exists() or self.log.stat().st_size < _MAX_LOG_BYTES else "wb"
        with open(self.log, mode, opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            self._process = subprocess.Popen(
                words,
                # The pipe closes when this process ends, which ends the server; its own session keeps Ctrl-C from it.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def _last_log_line(self) -> str:
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return "its log is empty"
        last = lines[-1] if lines else "its log is empty"
        try:
            document = json.loads(last)
            error = document.get("error")
            return str(error["message"] if isinstance(error, dict) else document["event"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return sanitize_text(last)

    def leave_running(self) -> None:
        """Let the server outlive this process for a while."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self._process = None
        with suppress(OSError):  # The server has ended already.
            process.stdin.write(KEEP_MESSAGE)
            process.stdin.close()
        process.returncode = 0  # Keeps `subprocess` from warning about a running child.

    async def stop(self) -> None:
        """Stop the server and wait for its end."""
        process = self._process
        if process is None:
            return
        self._process = None
        if process.stdin is not None:
            process.stdin.close()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)


class ServerFinder:
    """Finds the server for a command, and starts a child server if none is running. Use as an async context manager."""

    def __init__(self, cli: CliContext, *, own: bool = True) -> None:
        self._cli = cli
        self._may_start = own and not cli.has_named_server
        self._child: ChildServer | None = None
        self._clients: list[ServerClient] = []
        self._keep_child = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.__aexit__(None, None, None)
        if self._child is None:
            return
        if self._keep_child and error is None:
            self._child.leave_running()
        else:
            await self._child.stop()

    def keep_child_running(self) -> None:
        """Keep the child server, if any, running for a while after this command."""
        self._keep_child = self._child is not None and self._cli.lenient_config.config.runs.warm_server > 0

    @property
    def is_local(self) -> bool:
        """Return whether the server uses this command's data directory."""
        return not self._cli.has_named_server or self._named_server_is_local()

    def _named_server_is_local(self) -> bool:
        return self._cli.server_target().url == running_server_url(self._cli.data_directory)

    async def find_client(self, say: PrintStatus = lambda text: None) -> ServerClient:
        """Return a client of the server, starting a child server if needed and reporting that through `say`.

        Raises `NoServerError` if no server is running and none may be started.
        """
        others = bool(self._clients) and self._child is None
        if self._may_start and not self._clients:
            await asyncio.to_thread(self._end_outdated_server)
        if self._may_start and not await self._wait_for_server(_RETURN_SECONDS if others else 0.0):
            if self._child is not None:
                await self._child.stop()
            before = "the server is gone; starting" if self._clients else "starting"
            say(f"{before} a temporary server")
            self._child = ChildServer(self._cli)
            await self._child.start()
        if not self._clients or self._clients[-1].url != self._cli.server_target().url:
            self._clients.append(self._cli.open_client())
        return self._clients[-1]

    def _end_outdated_server(self) -> None:
        """Stop a kept server if its configuration differs from this command's.

        With unset variables in the configuration, no comparison is possible, and the kept server is used.
        """
        kept = read_kept_server(self._cli.data_directory)
        if kept is None or self._cli.lenient_config.unset:
            return
        if kept[1] != config_fingerprint(self._cli.lenient_config.config):
            stop_kept_server(self._cli.data_directory)

    async def _wait_for_server(self, patience: float) -> bool:
        """Wait for a starting or stopping server, for a missing one `patience` seconds; return whether one answers."""
        started_at = last_served_at = time.monotonic()
        while await asyncio.to_thread(find_responding_server, self._cli.data_directory) is None:
            now = time.monotonic()
            if has_running_server(self._cli.data_directory):
                last_served_at = now
                if now - started_at >= _START_OR_STOP_SECONDS:
                    return False
            elif now - last_served_at >= patience:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


def find_responding_server(data: Path) -> str | None:
    """Return the URL of a data directory's server if it accepts connections; a stopping server does not."""
    url = running_server_url(data)
    if url is None:
        return None
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), _CONNECT_SECONDS).close()
    except OSError:
        return None
    return url


def find_parent_command(data: Path) -> str | None:
    """Return the command that started the data directory's server as its child, if any."""
    from paddock.cli.framework.command_table import COMMANDS

    try:
        server = int((data / "server.lock").read_text())
        if WITH_STDIN_OPTION not in _process_arguments(server):
            return None
        status = Path(f"/proc/{server}/status").read_text()
        parent = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
        name = next(word for word in _process_arguments(parent) if word in COMMANDS)
    except (OSError, ValueError, StopIteration):
        return None
    return f"`paddock {name}` (pid {parent})"


def _process_arguments(process: int) -> list[str]:
    """Return the command-line arguments of a process."""
    return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")


@asynccontextmanager
async def open_any_server(cli: CliContext) -> AsyncIterator[ServerClient]:
    """Open a client of the server, starting a temporary server if none is running."""
    # A user with an API key means a server that already runs, so none is started.
    async with ServerFinder(cli, own=not os.environ.get("PADDOCK_API_KEY")) as servers:
        yield await servers.find_client()

"""The server that runs are sent to: the one that is named, the one that runs here, or one of our own."""

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

from paddock.cli.client import Client
from paddock.cli.context import Cli, is_served, server_of
from paddock.cli.failure import CliError
from paddock.cli.output import plain
from paddock.cli.warm import KEEP, end_kept_server, fingerprint, kept_server

LOG = "run-server.log"
_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_BACK_SECONDS = 5.0
"""How long a server that is gone may take to be there again; services start theirs anew."""
_FREE_SECONDS = 15.0
"""How long a server that is starting or stopping is waited for."""
_CONNECT_SECONDS = 1.0
_LOOK_AGAIN = 0.05
_TOLD = 2000
_LARGEST_LOG = 4 * 2**20
"""Bytes after which the log begins anew."""
WITH_STDIN = "--with-stdin"
"""What a server is started with that is to end with the command it is for."""
Say = Callable[[str], None]


class OwnServer:
    """`paddock serve` as a child, which ends with us however we end."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._process: subprocess.Popen[bytes] | None = None
        self.log: Path = cli.data / LOG

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> str:
        """Start it and return its address; another server's, if that one was quicker to take the data directory."""
        await asyncio.to_thread(self._spawn)
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            # Whoever holds the data directory is the server of it, us or not.
            if url := await asyncio.to_thread(answering, self._cli.data):
                return url
            if not self.runs and not is_served(self._cli.data):
                raise CliError(f"the server did not start: {self._last_words()}", hint=f"its log: {self.log}")
            await asyncio.sleep(_LOOK_AGAIN)
        raise CliError("the server did not get ready in time", hint=f"its log: {self.log}")

    def _spawn(self) -> None:
        self._cli.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = [sys.executable, "-m", "paddock.cli.main", "serve", "--json", "--port", "0", WITH_STDIN]
        words += self._cli.same_place()
        kept = "ab" if not self.log.exists() or self.log.stat().st_size < _LARGEST_LOG else "wb"
        with open(self.log, kept, opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            self._process = subprocess.Popen(
                words,
                # Ends it when we are gone, even without a word. Ctrl-C is ours to hear, so it has a session of its own.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def _last_words(self) -> str:
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TOLD))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return "it left no word"
        last = lines[-1] if lines else "it left no word"
        try:
            document = json.loads(last)
            said = document.get("error")
            return str(said["message"] if isinstance(said, dict) else document["event"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return plain(last)

    def let_go(self) -> None:
        """Have it stay for a while, without us."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self._process = None
        with suppress(OSError):  # It has ended by itself.
            process.stdin.write(KEEP)
            process.stdin.close()
        process.returncode = 0  # It outlives us, and is not waited for.

    async def stop(self) -> None:
        """End it, and wait until it has."""
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


class Servers:
    """Finds the server for runs, and starts one where there is none. Use as an async context manager."""

    def __init__(self, cli: Cli, *, own: bool = True) -> None:
        self._cli = cli
        self._may_start = own and not cli.names_server
        self._own: OwnServer | None = None
        self._clients: list[Client] = []
        self._keep = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.__aexit__(None, None, None)
        if self._own is None:
            return
        if self._keep and error is None:
            self._own.let_go()
        else:
            await self._own.stop()

    def keep_warm(self) -> None:
        """Leave our own server running for a while after us, if there is one."""
        self._keep = self._own is not None and self._cli.loaded.config.runs.warm_server > 0

    @property
    def local(self) -> bool:
        """Whether the server's data directory is ours to look into."""
        return not self._cli.names_server or self._named_is_ours()

    def _named_is_ours(self) -> bool:
        return self._cli.target().url == server_of(self._cli.data)

    async def find(self, say: Say = lambda text: None) -> Client:
        """A client of the server. Says so when it starts one. Raises `NoServer` where there is none and none may be."""
        others = bool(self._clients) and self._own is None
        if self._may_start and not self._clients:
            await asyncio.to_thread(self._end_outdated)
        if self._may_start and not await self._comes(_BACK_SECONDS if others else 0.0):
            if self._own is not None:
                await self._own.stop()
            before = "the server is gone; going on with" if self._clients else "starting"
            say(f"{before} a server of its own")
            self._own = OwnServer(self._cli)
            await self._own.start()
        if not self._clients or self._clients[-1].url != self._cli.target().url:
            self._clients.append(self._cli.client())
        return self._clients[-1]

    def _end_outdated(self) -> None:
        """End a kept server whose configuration is not ours."""
        kept = kept_server(self._cli.data)
        if kept is not None and kept[1] != fingerprint(self._cli.loaded.config):
            end_kept_server(self._cli.data)

    async def _comes(self, patience: float) -> bool:
        """Whether a server answers; one that starts or stops is waited for, and for so long one that is not there."""
        began = gone = time.monotonic()
        while await asyncio.to_thread(answering, self._cli.data) is None:
            now = time.monotonic()
            if is_served(self._cli.data):
                gone = now
                if now - began >= _FREE_SECONDS:
                    return False
            elif now - gone >= patience:
                return False
            await asyncio.sleep(_LOOK_AGAIN)
        return True


def answering(data: Path) -> str | None:
    """The address of the server of a data directory, if it answers there: one that stops does not any more."""
    url = server_of(data)
    if url is None:
        return None
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), _CONNECT_SECONDS).close()
    except OSError:
        return None
    return url


def helped_by(data: Path) -> str | None:
    """The command that the server of a data directory was started for, and ends with, if there is one."""
    from paddock.cli.main import COMMANDS

    try:
        server = int((data / "server.lock").read_text())
        if WITH_STDIN not in _words(server):
            return None
        status = Path(f"/proc/{server}/status").read_text()
        parent = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
        name = next(word for word in _words(parent) if word in COMMANDS)
    except (OSError, ValueError, StopIteration):
        return None
    return f"`paddock {name}` (pid {parent})"


def _words(process: int) -> list[str]:
    """What a process was started with."""
    return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")


@asynccontextmanager
async def any_server(cli: Cli) -> AsyncIterator[Client]:
    """A client of the server; where none runs, of one that is there for the moment."""
    # Whoever has a key of their own means a server that somebody else has started.
    async with Servers(cli, own=not os.environ.get("PADDOCK_API_KEY")) as servers:
        yield await servers.find()

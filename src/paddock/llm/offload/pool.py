"""Worker processes for large requests to models, so that reading one does not keep all other clients waiting.

Workers are started when they are needed and end after a while without work. One that dies is replaced; what it was
working on is tried once more.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from typing import Any

import structlog

from paddock.errors import Unavailable
from paddock.llm.offload.process import HEAD, lengths, pack

WORKERS = 2
MOST_WAITING = 32
"""Requests that wait for a worker; others are refused."""
WAIT = 20.0
"""Seconds that a request waits for a worker at most."""
WORK = 60.0
"""Seconds that a worker has for one request."""
IDLE = 60.0
"""Seconds after which a worker without work ends."""
RETRY_AFTER = 2
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Of the environment; the rest may hold keys of providers, which a worker has no need for."""
log = structlog.get_logger()


class Busy(Unavailable):
    """All workers are busy."""

    def __init__(self, message: str = "too many large requests are being read; try again in a moment") -> None:
        super().__init__(message)
        self.retry_after = RETRY_AFTER


class WorkerPool:
    """At most `workers` processes, and a bounded queue for them. Close it when the server stops."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._free = asyncio.Semaphore(workers)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._starting: set[asyncio.Future[_Worker]] = set()
        self._reaping: set[asyncio.Future[None]] = set()
        self._waiting = 0
        self._closed = False

    async def run(self, task: str, argument: Any, body: bytes) -> tuple[Any, bytes]:
        """Have a worker carry out a task; its result and body. Raises what the task raises, and `Busy`."""
        if self._closed or self._waiting >= MOST_WAITING:
            raise Busy
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT):
                await self._free.acquire()
        except TimeoutError:
            raise Busy from None
        finally:
            self._waiting -= 1
        try:
            for _ in range(2):
                try:
                    value, said = await self._once(task, argument, body)
                except (OSError, asyncio.IncompleteReadError):
                    continue  # It died; perhaps not of this.
                if isinstance(value, BaseException):
                    raise value
                return value, said
        finally:
            self._free.release()
        log.warning("large request killed two workers", task=task, bytes=len(body))
        raise Busy("the process that reads large requests died twice; make the request smaller")

    async def close(self) -> None:
        """End all workers."""
        self._closed = True
        await asyncio.gather(*self._starting, return_exceptions=True)
        for worker in list(self._all):
            self._drop(worker)
        await asyncio.gather(*self._reaping)

    async def _once(self, task: str, argument: Any, body: bytes) -> tuple[Any, bytes]:
        worker = self._idle.pop() if self._idle else await self._begin()
        worker.work()
        try:
            async with asyncio.timeout(WORK):
                answer = await worker.ask(task, argument, body)
        except TimeoutError:
            self._drop(worker)
            raise Busy("the request takes too long to read; make it smaller") from None
        except BaseException:
            # Also when the client is gone: what the worker answers then must not be taken for another's.
            self._drop(worker)
            raise
        if self._closed:
            self._drop(worker)
        else:
            self._idle.append(worker)
            worker.rest(self._retire)
        return answer

    async def _begin(self) -> _Worker:
        starting = asyncio.ensure_future(_Worker.start())
        self._starting.add(starting)
        starting.add_done_callback(self._started)
        try:
            # A process that is being started cannot be left halfway.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._unwanted)
            raise

    def _started(self, starting: asyncio.Future[_Worker]) -> None:
        self._starting.discard(starting)
        if starting.exception() is None:
            self._all.add(starting.result())

    def _unwanted(self, starting: asyncio.Future[_Worker]) -> None:
        if starting.exception() is None:
            self._drop(starting.result())

    def _retire(self, worker: _Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        if worker in self._all:
            self._all.discard(worker)
            worker.kill()
            reaping = asyncio.ensure_future(asyncio.to_thread(worker.reap))
            self._reaping.add(reaping)
            reaping.add_done_callback(self._reaping.discard)


class _Worker:
    """One process and the connection to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls) -> _Worker:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # uvloop would copy the page tables of this process in its own thread.
                process = await asyncio.to_thread(_spawn, theirs.fileno())
            reader, writer = await asyncio.open_connection(sock=ours, limit=2**20)
        except BaseException:
            ours.close()
            raise
        return cls(process, reader, writer)

    async def ask(self, task: str, argument: Any, body: bytes) -> tuple[Any, bytes]:
        for part in pack((task, argument), body):
            self._writer.write(part)
        await self._writer.drain()
        first, second = lengths(await self._reader.readexactly(HEAD))
        value = pickle.loads(await self._reader.readexactly(first))  # noqa: S301 - it is this program's own process
        return value, await self._reader.readexactly(second)

    def work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rest(self, retire: Any) -> None:
        self._timer = asyncio.get_running_loop().call_later(IDLE, retire, self)

    def kill(self) -> None:
        self.work()
        self._writer.close()
        self._process.kill()

    def reap(self) -> None:
        """Wait for the process, which has been killed."""
        self._process.wait()


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "paddock.llm.offload.process", str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[descriptor],
        start_new_session=True,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    )

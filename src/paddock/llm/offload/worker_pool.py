"""Worker processes for large model requests, so that parsing one does not block all other clients.

Workers are started on demand and end when idle. A worker that dies is replaced, and its task is retried once.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import structlog

from paddock.errors import Unavailable
from paddock.llm.offload.worker_process import HEADER_BYTES, pack_worker_message, worker_message_lengths

DEFAULT_WORKERS = 2
MAX_WAITING = 32
"""Requests that may wait for a worker; further ones are refused."""
QUEUE_SECONDS = 20.0
"""Maximum seconds that a request waits for a worker."""
TASK_SECONDS = 60.0
"""Maximum seconds that a worker spends on one request."""
IDLE_SECONDS = 60.0
"""Seconds after which an idle worker ends."""
READ_SIZE = 2**20
"""Bytes of a result that are read at once."""
RETRY_AFTER = 2
_PASSED_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Environment variables that workers inherit; others may contain provider keys."""
log = structlog.get_logger()


class WorkersBusy(Unavailable):
    """All workers are busy."""

    def __init__(self, message: str = "too many large requests are being read; try again in a moment") -> None:
        super().__init__(message)
        self.retry_after = RETRY_AFTER


class OffloadWorkerPool:
    """At most `workers` processes, and a bounded queue for them. Close it when the server stops."""

    def __init__(self, workers: int = DEFAULT_WORKERS) -> None:
        self._free = asyncio.Semaphore(workers)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._starting: set[asyncio.Future[_Worker]] = set()
        self._reaping: set[asyncio.Future[None]] = set()
        self._waiting = 0
        self._closed = False

    async def run_task(self, task: str, argument: Any, body: bytes) -> tuple[Any, bytes]:
        """Run a task in a worker, and return its result and body. Raises the task's error, or `WorkersBusy`."""
        value, pieces = await self._run_in_pieces(task, argument, body)
        return value, pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def call(self, function: Callable[..., bytes], *arguments: Any) -> list[bytes]:
        """Call a function of a module in a worker, and return its result in pieces.

        Raises its `PaddockError`, or `WorkersBusy`.
        """
        return (await self._run_in_pieces("call", (function, arguments), b""))[1]

    async def _run_in_pieces(self, task: str, argument: Any, body: bytes) -> tuple[Any, list[bytes]]:
        if self._closed or self._waiting >= MAX_WAITING:
            raise WorkersBusy
        self._waiting += 1
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise WorkersBusy from None
        finally:
            self._waiting -= 1
        try:
            for _ in range(2):
                try:
                    value, result_body = await self._run_once(task, argument, body)
                except (OSError, asyncio.IncompleteReadError):
                    continue  # The worker died, perhaps for another reason.
                if isinstance(value, BaseException):
                    try:
                        raise value
                    finally:
                        value = None  # Its traceback refers to this frame, and so to the body.
                return value, result_body
        finally:
            self._free.release()
        log.warning("large request killed two workers", task=task, bytes=len(body))
        raise WorkersBusy("the worker process for large requests died twice; make the request smaller")

    async def close(self) -> None:
        """Stop all workers."""
        self._closed = True
        await asyncio.gather(*self._starting, return_exceptions=True)
        for worker in list(self._all):
            self._stop_worker(worker)
        await asyncio.gather(*self._reaping)

    async def _run_once(self, task: str, argument: Any, body: bytes) -> tuple[Any, list[bytes]]:
        worker = self._idle.pop() if self._idle else await self._start_worker()
        worker.cancel_idle_timer()
        try:
            async with asyncio.timeout(TASK_SECONDS):
                answer = await worker.run_task(task, argument, body)
        except TimeoutError:
            self._stop_worker(worker)
            raise WorkersBusy("parsing the request takes too long; make it smaller") from None
        except BaseException:
            # Also on cancellation: the worker's late result must not be taken for that of another request.
            self._stop_worker(worker)
            raise
        if self._closed:
            self._stop_worker(worker)
        else:
            self._idle.append(worker)
            worker.start_idle_timer(self._retire)
        return answer

    async def _start_worker(self) -> _Worker:
        starting = asyncio.ensure_future(_Worker.start())
        self._starting.add(starting)
        starting.add_done_callback(self._started)
        try:
            # Starting a process must not be cancelled halfway.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._stop_unwanted)
            raise

    def _started(self, starting: asyncio.Future[_Worker]) -> None:
        self._starting.discard(starting)
        if starting.exception() is None:
            self._all.add(starting.result())

    def _stop_unwanted(self, starting: asyncio.Future[_Worker]) -> None:
        if starting.exception() is None:
            self._stop_worker(starting.result())

    def _retire(self, worker: _Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            self._stop_worker(worker)

    def _stop_worker(self, worker: _Worker) -> None:
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
        server_socket, worker_socket = socket.socketpair()
        try:
            with worker_socket:
                # Spawn in a thread: uvloop would block the event loop while it copies this process's page tables.
                process = await asyncio.to_thread(_spawn, worker_socket.fileno())
            reader, writer = await asyncio.open_connection(sock=server_socket, limit=2**20)
        except BaseException:
            server_socket.close()
            raise
        return cls(process, reader, writer)

    async def run_task(self, task: str, argument: Any, body: bytes) -> tuple[Any, list[bytes]]:
        for part in pack_worker_message((task, argument), body):
            self._writer.write(part)
        await self._writer.drain()
        first, second = worker_message_lengths(await self._reader.readexactly(HEADER_BYTES))
        value = pickle.loads(await self._reader.readexactly(first))  # noqa: S301 - from a child process of this program
        pieces: list[bytes] = []
        while second:
            pieces.append(await self._reader.read(min(second, READ_SIZE)))
            if not pieces[-1]:
                raise asyncio.IncompleteReadError(b"", second)
            second -= len(pieces[-1])
        return value, pieces or [b""]

    def cancel_idle_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start_idle_timer(self, retire: Any) -> None:
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, retire, self)

    def kill(self) -> None:
        self.cancel_idle_timer()
        self._writer.close()
        self._process.kill()

    def reap(self) -> None:
        """Wait for the killed process."""
        self._process.wait()


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "paddock.llm.offload.worker_process", str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[descriptor],
        start_new_session=True,
        env={name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ},
    )

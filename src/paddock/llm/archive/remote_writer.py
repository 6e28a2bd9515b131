"""Server side of the archive's writer process: starts it, sends it commands and restarts it."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from paddock.config.llm import ArchiveConfig
from paddock.errors import Unavailable
from paddock.llm.archive.write_queue import MAX_BATCH, queued_exchange_size
from paddock.llm.archive.writer_api import ExchangeWriter
from paddock.llm.archive.writer_process_messages import (
    CommandDoneReport,
    DeleteExchangesCommand,
    FlushWritesCommand,
    IndexAllCommand,
    StartWriterCommand,
    WriteExchangesCommand,
    WriterStatusReport,
    encode_write_command,
    encode_writer_message,
    read_writer_report,
)
from paddock.llm.exchange import Exchange

BATCH_SECONDS = 0.05
"""Seconds between batches."""
CROWDED_BYTES = 16 * 2**20
"""Queued bytes above which model requests are slowed down."""
MAX_CAPACITY_WAIT = 2.0
"""Maximum seconds a model request waits for capacity; longer write problems must not block answers."""
CLOSE_SECONDS = 30.0
"""Seconds the writer process has to finish when the server stops."""
_MAX_REPORT_BYTES = 2**20
_SENT_ALONE_BYTES = 4 * 2**20
"""Size of an exchange that is sent without batching: encoding several of that size would block the event loop."""
_MIN_PAUSE, _MAX_PAUSE = 0.1, 5.0
_LOG_EVERY = 10.0
_PASSED_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Environment variables that the writer process inherits; others may contain provider keys."""
log = structlog.get_logger()


@dataclass(slots=True)
class _PendingCommand:
    """A command that is not confirmed yet. It is sent again to the next process if this one dies.

    Only the encoded message is kept, which takes a fraction of the memory of its exchanges.
    """

    message: tuple[bytes, ...]
    size: int
    future: asyncio.Future[int] | None
    exchange_count: int = 0
    """Number of exchanges in the command."""
    shares: dict[str, int] | None = None
    """Bytes by tenant, unless a caller waits for the command."""


class RemoteExchangeWriter(ExchangeWriter):
    """Writes through a separate process, which is started on demand."""

    def __init__(
        self, database: str, settings: ArchiveConfig, secrets: Iterable[str], written: Callable[[], None]
    ) -> None:
        self.lost_count = 0
        self.waiting_bytes = 0
        self._start_message = StartWriterCommand(database, settings.model_dump_json().encode(), list(secrets))
        self._max_waiting = settings.max_waiting
        self._on_written = written
        self._waiting: dict[str, int] = {}
        """Queued bytes by tenant."""
        self._numbers = itertools.count(1)
        self._crowded_bytes = min(CROWDED_BYTES, settings.max_waiting // 4)
        self._capacity: asyncio.Event | None = None
        """Set when the queue has become shorter."""
        self._batch: list[Exchange] = []
        self._batch_shares: dict[str, int] = {}
        """Bytes by tenant in the current batch."""
        self._timer: asyncio.TimerHandle | None = None
        self._pending: dict[int, _PendingCommand] = {}
        self._unsent: deque[tuple[bytes, ...]] = deque()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._closing = False
        self._reported_lost = 0
        self._write_problem: str | None = None
        self._next_log = 0.0

    def enqueue(self, exchange: Exchange) -> None:
        size = queued_exchange_size(exchange)
        tenant = exchange.caller.tenant
        waiting = self._waiting.get(tenant, 0)
        # A tenant may use at most half of the queue, so that one busy tenant cannot cause losses for others.
        if self._closing or self.waiting_bytes + size > self._max_waiting or waiting + size > self._max_waiting // 2:
            self._count_lost("the archive is closed" if self._closing else "more waits than archive.max_waiting allows")
            return
        self._waiting[tenant] = waiting + size
        self.waiting_bytes += size
        self._batch_shares[tenant] = self._batch_shares.get(tenant, 0) + size
        self._batch.append(exchange)
        if len(self._batch) == 1:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._send_batch)
        if len(self._batch) >= MAX_BATCH or size > _SENT_ALONE_BYTES:
            self._send_batch()

    def prepare_to_write(self) -> None:
        # Start early: exchanges queued during the start exist only in this process.
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._run(), name="archive writer process")

    @property
    def is_crowded(self) -> bool:
        return self.waiting_bytes > self._crowded_bytes and self._write_problem is None

    async def wait_for_capacity(self) -> None:
        if self._capacity is None:
            self._capacity = asyncio.Event()
        try:
            async with asyncio.timeout(MAX_CAPACITY_WAIT):
                await self._capacity.wait()
        except TimeoutError:
            pass

    async def write_now(self, exchange: Exchange) -> None:
        if self._closing:
            raise Unavailable("The archive is closed; the server is stopping.")
        size = queued_exchange_size(exchange)
        if self.waiting_bytes + size > self._max_waiting:
            raise Unavailable("More waits to be archived than archive.max_waiting allows; try again later.")
        self.waiting_bytes += size
        await self._request(WriteExchangesCommand(next(self._numbers), [exchange], now=True), size)

    async def flush(self) -> None:
        self._send_batch()
        if self._pending:
            await self._request(FlushWritesCommand(next(self._numbers)))

    def ensure_writable(self) -> None:
        if self._write_problem is not None:
            raise Unavailable(self._write_problem)

    async def wait_until_searchable(self) -> None:
        self._send_batch()
        await self._request(IndexAllCommand(next(self._numbers)))

    async def delete(self, numbers: Sequence[int]) -> int:
        self._send_batch()
        return await self._request(DeleteExchangesCommand(next(self._numbers), list(numbers)))

    async def close(self) -> None:
        """Write all queued exchanges and stop. Exchanges that cannot be written now are lost and counted."""
        self._send_batch()
        self._closing = True
        if self._task is None:
            return
        if self._writer is not None and not self._unsent:
            # At end of file the process finishes its writes and exits.
            self._writer.write_eof()
        try:
            await asyncio.wait_for(self._ended.wait(), CLOSE_SECONDS)
        except TimeoutError:
            log.error("archive writer process did not finish in time", waiting_bytes=self.waiting_bytes)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _send_batch(self) -> None:
        """Send the current batch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._batch:
            batch, self._batch = self._batch, []
            shares, self._batch_shares = self._batch_shares, {}
            self._send_command(
                WriteExchangesCommand(next(self._numbers), batch, now=False), sum(shares.values()), None, shares
            )

    async def _request(
        self,
        command: WriteExchangesCommand | FlushWritesCommand | IndexAllCommand | DeleteExchangesCommand,
        size: int = 0,
    ) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._send_command(command, size, future)
        return await future

    def _send_command(
        self,
        command: WriteExchangesCommand | FlushWritesCommand | IndexAllCommand | DeleteExchangesCommand,
        size: int,
        future: asyncio.Future[int] | None,
        shares: dict[str, int] | None = None,
    ) -> None:
        exchange_count = len(command.exchanges) if isinstance(command, WriteExchangesCommand) else 0
        try:
            message = (
                encode_write_command(command)
                if isinstance(command, WriteExchangesCommand)
                else (encode_writer_message(command),)
            )
        except Exception as error:
            if isinstance(command, WriteExchangesCommand) and exchange_count > 1:
                # An exchange that cannot be encoded must not take the others of its batch with it.
                for exchange in command.exchanges:
                    single_size = queued_exchange_size(exchange)
                    single = WriteExchangesCommand(next(self._numbers), [exchange], now=False)
                    self._send_command(single, single_size, None, {exchange.caller.tenant: single_size})
            else:
                self._pending[command.number] = _PendingCommand((), size, future, exchange_count, shares)
                self._complete(CommandDoneReport(command.number, f"The exchange cannot be archived: {error!r}."))
            return
        self._pending[command.number] = _PendingCommand(message, size, future, exchange_count, shares)
        if self._writer is not None:
            for part in message:
                self._writer.write(part)
        else:
            self._unsent.append(message)
            self.prepare_to_write()

    async def _run(self) -> None:
        """Keep a writer process running until the archive closes and everything is written."""
        pause = _MIN_PAUSE
        while True:
            started = time.monotonic()
            code: int | None = None
            try:
                code = await self._run_process()
            except OSError as error:
                self._log_error("could not start archive writer process", error.strerror or repr(error))
            if self._closing and (code == 0 or not self._pending):
                for number in list(self._pending):
                    self._complete(
                        CommandDoneReport(number, "The server stopped before the exchange could be written.")
                    )
                self._ended.set()
                return
            self._write_problem = "The archive's writer process died; it is being restarted."
            self._log_error("archive writer process died", "its commands are sent to a new process")
            self._unsent = deque(each.message for each in self._pending.values())
            pause = _MIN_PAUSE if time.monotonic() - started > _MAX_PAUSE else min(pause * 2, _MAX_PAUSE)
            await asyncio.sleep(pause)

    async def _run_process(self) -> int:
        """Start a process, read its reports until it ends, and return its exit code."""
        server_socket, worker_socket = socket.socketpair()
        with worker_socket:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "paddock.llm.archive.writer_process",
                str(worker_socket.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[worker_socket.fileno()],
                start_new_session=True,
                # Per-thread malloc arenas would hold much unused memory.
                env={name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
                | {"MALLOC_ARENA_MAX": "2"},
            )
        try:
            reader, writer = await asyncio.open_connection(sock=server_socket, limit=_MAX_REPORT_BYTES)
        except BaseException:
            # Also on cancellation, as when a server stops right after its start: the process must not be left behind.
            server_socket.close()
            process.kill()
            await process.wait()
            raise
        try:
            writer.write(encode_writer_message(self._start_message))
            while self._unsent:
                for part in self._unsent.popleft():
                    writer.write(part)
            self._writer = writer
            self._reported_lost = 0
            self._write_problem = None
            if self._closing:
                writer.write_eof()
            while True:
                answer = await read_writer_report(reader)
                if isinstance(answer, WriterStatusReport):
                    self.lost_count += answer.lost - self._reported_lost
                    self._reported_lost = answer.lost
                    self._write_problem = answer.trouble
                else:
                    self._complete(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer = None
            writer.close()
            if not self._closing and process.returncode is None:
                process.kill()
            await process.wait()
        return process.returncode or 0

    def _complete(self, answer: CommandDoneReport) -> None:
        sent = self._pending.pop(answer.number, None)
        if sent is None:
            return
        self.waiting_bytes -= sent.size
        if self._capacity is not None and self.waiting_bytes <= self._crowded_bytes // 2:
            self._capacity.set()
            self._capacity = None
        for tenant, share in (sent.shares or {}).items():
            remaining = self._waiting.get(tenant, 0) - share
            if remaining > 0:
                self._waiting[tenant] = remaining
            else:
                self._waiting.pop(tenant, None)
        if sent.future is None:
            if answer.error is not None and sent.exchange_count:
                self._count_lost(answer.error, sent.exchange_count)
        elif not sent.future.done():
            if answer.error is None:
                sent.future.set_result(answer.result)
            else:
                sent.future.set_exception(Unavailable(answer.error))
        if sent.exchange_count and answer.error is None:
            self._on_written()

    def _count_lost(self, reason: str, count: int = 1) -> None:
        self.lost_count += count
        self._log_error("exchanges were lost", reason)

    def _log_error(self, message: str, reason: str) -> None:
        now = time.monotonic()
        if now >= self._next_log:
            self._next_log = now + _LOG_EVERY
            log.error(message, reason=reason, lost=self.lost_count, waiting_bytes=self.waiting_bytes)

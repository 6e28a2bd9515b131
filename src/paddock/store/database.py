"""Opens the database and runs units of work in it.

A unit of work is a plain function of a connection. Writes go through one thread that runs all waiting units as one
transaction, so many writers share one flush to disk; reads go to a few threads of their own and never wait for writes.
One hop to a thread per unit is also what makes it fast: an async driver takes one hop per statement
(docs/decisions/0010-sqlite-durability.md has the figures).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, Self, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import QueuePool

from paddock.errors import ConfigError, Unavailable
from paddock.store.schema_migration import migrate_schema
from paddock.store.storage_errors import explain_storage_error

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], T]

_READERS = 4
_LARGEST_BATCH = 256
_BUSY_SECONDS = 5.0
_PROBE_EVERY = 5.0
"""Minimum seconds between probe writes."""
_MIN_FREE_BYTES = 2**20
"""Free disk bytes below which writes are expected to fail."""


class _Job(Generic[T]):
    """A queued write."""

    def __init__(self, work: Work[T], flush: bool) -> None:
        self.work = work
        self.flush = flush
        self.future: Future[T] = Future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class Store:
    """The open database. Make one with `Store.open` and `close` it, or use it as an async context manager."""

    def __init__(self, path: Path, engine: Engine, writer: Connection) -> None:
        self.path = path
        self._engine = engine
        self._writer = writer
        self._waiting: deque[_Job[Any]] = deque()
        self._write_thread = ThreadPoolExecutor(1, "store-write")
        self._read_threads = ThreadPoolExecutor(_READERS, "store-read")
        self._inode = path.stat().st_ino
        self._last_error: str | None = None
        """Error of the last write, `None` after a success."""
        self._probe_at = 0.0
        self._closing = threading.Lock()
        self._closed = False

    @classmethod
    async def open(cls, location: str | Path) -> Self:
        """Open the database at a path or `sqlite:///` address, created or migrated as needed.

        Raises `ConfigError` for an address of another kind or a database made by a newer Paddock,
        `Unavailable` when it cannot be read or written.
        """
        path = _path(location)
        return await asyncio.to_thread(cls._open, path)

    @classmethod
    async def open_to_read(cls, location: str | Path) -> Self:
        """Open a database read-only, with or without a running server.

        A database of an older Paddock is migrated first. Writes raise `Unavailable`. Raises as `open` does.
        """
        return await asyncio.to_thread(cls._open, _path(location), read_only=True)

    @classmethod
    def _open(cls, path: Path, *, read_only: bool = False) -> Self:
        engine = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite gives its journal the same permissions; both hold tokens of sandboxes.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            engine = _engine(path)
            migrate_schema(engine, path)
            if read_only:
                engine.dispose()
                engine = _engine(path, read_only=True)
            return cls(path, engine, engine.connect().execution_options(writes=True))
        except (OSError, DBAPIError) as error:
            if engine:
                engine.dispose()
            raise explain_storage_error(error, path) from error
        except BaseException:
            if engine:
                engine.dispose()
            raise

    async def close(self) -> None:
        """Finish queued writes and close the file. Later calls raise `Unavailable`."""
        with self._closing:
            self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._write_thread.shutdown(wait=True)
        self._read_threads.shutdown(wait=True)
        self._writer.close()
        self._engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(self, work: Work[T], *, flush: bool = True) -> T:
        """Run `work` in a transaction and return its result once it is safely on disk.

        When it raises, nothing of it is kept. It may run more than once, so it must not change anything but the
        database. If the caller is cancelled, the work may or may not happen. Without `flush` it outlives the server at
        once and a power failure only with the next write that is flushed: nothing that comes later is kept without it.
        """
        return await asyncio.wrap_future(self.submit(work, flush=flush))

    def submit(self, work: Work[T], *, flush: bool = True) -> Future[T]:
        """Queue a write. Futures are settled in the order of the writes, and after they are on disk."""
        job = _Job(work, flush)
        with self._closing:
            if self._closed:
                raise Unavailable("The database is closed; the server is stopping.")
            self._waiting.append(job)
            self._write_thread.submit(self._write_waiting)
        return job.future

    async def check(self) -> None:
        """Raise `Unavailable` if the last write failed or the disk is full.

        Writes itself only after a write has failed, and then every few seconds at most.
        """
        await asyncio.to_thread(self._check_disk)
        if self._last_error is not None:
            now = time.monotonic()
            if now >= self._probe_at:
                self._probe_at = now + _PROBE_EVERY
                # Writes one page; the value is unused.
                await self.write(lambda connection: connection.exec_driver_sql(f"PRAGMA user_version = {int(now)}"))
            if (last_error := self._last_error) is not None:
                raise Unavailable(last_error)
        await self.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())

    def _check_disk(self) -> None:
        try:
            if self.path.stat().st_ino != self._inode:
                raise Unavailable(f"The database {self.path} was replaced by another; restart the server.")
            disk = os.statvfs(self.path)
        except FileNotFoundError:
            raise Unavailable(f"The database {self.path} is gone; stop the server and restore a copy.") from None
        except OSError as error:
            raise explain_storage_error(error, self.path) from error
        if disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES and disk.f_blocks:
            raise Unavailable(f"The disk that holds {self.path} is full; free some space and try again.")

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one consistent view of all that was written before."""
        with self._closing:
            if self._closed:
                raise Unavailable("The database is closed; the server is stopping.")
            future = self._read_threads.submit(self._read, work)
        return await asyncio.wrap_future(future)

    def _read(self, work: Work[T]) -> T:
        try:
            with self._engine.connect() as connection, connection.begin():
                return work(connection)
        except DBAPIError as error:
            raise explain_storage_error(error, self.path) from error

    def _write_waiting(self) -> None:
        jobs: list[_Job[Any]] = []
        while self._waiting and len(jobs) < _LARGEST_BATCH:
            job = self._waiting.popleft()
            if job.future.set_running_or_notify_cancel():
                jobs.append(job)
        with nullcontext() if any(job.flush for job in jobs) else self._unflushed():
            if len(jobs) > 1 and not self._write_together(jobs):
                for job in jobs:
                    self._write_alone(job)
            elif len(jobs) == 1:
                self._write_alone(jobs[0])
        for job in jobs:
            job.settle()

    @contextmanager
    def _unflushed(self) -> Iterator[None]:
        driver: Any = self._writer.connection.driver_connection
        driver.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            driver.execute("PRAGMA synchronous = FULL")

    def _write_alone(self, job: _Job[Any]) -> None:
        job.error = None
        try:
            with self._writer.begin():
                job.result = job.work(self._writer)
            self._last_error = None
        except DBAPIError as error:
            job.error = explain_storage_error(error, self.path)
            job.error.__cause__ = error
            if isinstance(job.error, Unavailable):
                self._last_error, self._probe_at = job.error.message, time.monotonic() + _PROBE_EVERY
        except BaseException as error:  # the error belongs to the caller
            job.error = error

    def _write_together(self, jobs: list[_Job[Any]]) -> bool:
        """Run all writes in one transaction; return false and roll back if the database fails."""
        try:
            with self._writer.begin():
                for job in jobs:
                    self._writer.exec_driver_sql("SAVEPOINT job")
                    try:
                        job.result = job.work(self._writer)
                    except Exception as error:
                        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError):
                            raise
                        job.error = explain_storage_error(error, self.path) if isinstance(error, DBAPIError) else error
                        self._writer.exec_driver_sql("ROLLBACK TO job")
                    self._writer.exec_driver_sql("RELEASE job")
        except Exception:  # the failing job gets its error when it runs alone
            return False
        self._last_error = None
        return True


def _path(location: str | Path) -> Path:
    text = str(location)
    if "://" in text and not text.startswith("sqlite:///"):
        raise ConfigError(
            f"Paddock keeps its data in SQLite so far; {text.split('://')[0]} addresses are not supported."
        )
    return Path(text.removeprefix("sqlite:///"))


def _engine(path: Path, *, read_only: bool = False) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        pool_size=_READERS + 1,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": _BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        # Without this, Python's driver decides by itself when transactions begin.
        connection.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -8192"):
            connection.execute(f"PRAGMA {pragma}")
        if read_only:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that starts as a reader and then writes can fail at once where waiting would have done.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine

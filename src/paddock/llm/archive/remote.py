"""The archive's writer as the server sees it: letters to an archivist in a process of its own."""

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
from paddock.llm.archive.letters import (
    Begin,
    CatchUp,
    Done,
    Flush,
    Keep,
    Remove,
    Status,
    pack,
    read_answer,
)
from paddock.llm.archive.scribe import Scribe
from paddock.llm.archive.writer import LARGEST_BATCH, weight
from paddock.llm.exchange import Exchange

EVERY = 0.05
"""Seconds between letters."""
CROWDED = 16 * 2**20
"""Bytes that wait before those who ask models are made to wait a little too."""
PATIENCE = 2.0
"""Seconds for which they are. What cannot be written for longer than that is no reason not to answer."""
LAST_WAIT = 30.0
"""Seconds the archivist has to write what waits when the server stops."""
_LARGEST_ANSWER = 2**20
_POSTED_ALONE = 4 * 2**20
"""Bytes of an exchange that does not wait for others: packing several of that size would hold the event loop."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SHOUT_EVERY = 10.0
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Of the environment; the rest may hold keys of providers, which the archivist has no need for."""
log = structlog.get_logger()


@dataclass(slots=True)
class _Sent:
    """A letter that has not been seen to. Should the archivist die, the next one gets it again.

    What waits is kept as it was packed, which takes a fraction of the memory of what it was packed from.
    """

    letter: bytes
    size: int
    future: asyncio.Future[int] | None
    kept: int = 0
    """How many exchanges it has."""
    shares: dict[str, int] | None = None
    """What tenants have in it, unless somebody waits for it."""


class RemoteScribe(Scribe):
    """Writes by letter. The archivist is started when there is something to write."""

    def __init__(
        self, database: str, settings: ArchiveConfig, secrets: Iterable[str], written: Callable[[], None]
    ) -> None:
        self.lost = 0
        self.waiting_bytes = 0
        self._begin = Begin(database, settings.model_dump_json().encode(), list(secrets))
        self._max_waiting = settings.max_waiting
        self._told = written
        self._waiting: dict[str, int] = {}
        """What waits, by tenant."""
        self._numbers = itertools.count(1)
        self._crowded = min(CROWDED, settings.max_waiting // 4)
        self._gained: asyncio.Event | None = None
        """Set once less waits."""
        self._batch: list[Exchange] = []
        self._shares: dict[str, int] = {}
        """What tenants have in the batch."""
        self._timer: asyncio.TimerHandle | None = None
        self._sent: dict[int, _Sent] = {}
        self._unsent: deque[bytes] = deque()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._closing = False
        self._lost_there = 0
        self._trouble: str | None = None
        self._next_shout = 0.0

    def keep(self, exchange: Exchange) -> None:
        size = weight(exchange)
        tenant = exchange.caller.tenant
        waiting = self._waiting.get(tenant, 0)
        # Nobody may take more than half, or one who says much would cost others what they said.
        if self._closing or self.waiting_bytes + size > self._max_waiting or waiting + size > self._max_waiting // 2:
            self._lose("the archive is closed" if self._closing else "more waits than archive.max_waiting allows")
            return
        self._waiting[tenant] = waiting + size
        self.waiting_bytes += size
        self._shares[tenant] = self._shares.get(tenant, 0) + size
        self._batch.append(exchange)
        if len(self._batch) == 1:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._post)
        if len(self._batch) >= LARGEST_BATCH or size > _POSTED_ALONE:
            self._post()

    def expect(self) -> None:
        # What is kept while it starts is nowhere but here.
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._run(), name="archivist")

    @property
    def crowded(self) -> bool:
        return self.waiting_bytes > self._crowded and self._trouble is None

    async def room(self) -> None:
        if self._gained is None:
            self._gained = asyncio.Event()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._gained.wait()
        except TimeoutError:
            pass

    async def keep_now(self, exchange: Exchange) -> None:
        if self._closing:
            raise Unavailable("The archive is closed; the server is stopping.")
        size = weight(exchange)
        if self.waiting_bytes + size > self._max_waiting:
            raise Unavailable("More waits to be archived than archive.max_waiting allows; try again later.")
        self.waiting_bytes += size
        await self._ask(Keep(next(self._numbers), [exchange], now=True), size)

    async def flush(self) -> None:
        self._post()
        if self._sent:
            await self._ask(Flush(next(self._numbers)))

    def check(self) -> None:
        if self._trouble is not None:
            raise Unavailable(self._trouble)

    async def catch_up(self) -> None:
        self._post()
        await self._ask(CatchUp(next(self._numbers)))

    async def remove(self, numbers: Sequence[int]) -> int:
        self._post()
        return await self._ask(Remove(next(self._numbers), list(numbers)))

    async def close(self) -> None:
        """Have all that waits written. What cannot be written now is lost, and counted."""
        self._post()
        self._closing = True
        if self._task is None:
            return
        if self._writer is not None and not self._unsent:
            # It writes what it has and hangs up.
            self._writer.write_eof()
        try:
            await asyncio.wait_for(self._ended.wait(), LAST_WAIT)
        except TimeoutError:
            log.error("the archivist did not finish in time", waiting_bytes=self.waiting_bytes)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _post(self) -> None:
        """Send what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._batch:
            batch, self._batch = self._batch, []
            shares, self._shares = self._shares, {}
            self._send(Keep(next(self._numbers), batch, now=False), sum(shares.values()), None, shares)

    async def _ask(self, order: Keep | Flush | CatchUp | Remove, size: int = 0) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._send(order, size, future)
        return await future

    def _send(
        self,
        order: Keep | Flush | CatchUp | Remove,
        size: int,
        future: asyncio.Future[int] | None,
        shares: dict[str, int] | None = None,
    ) -> None:
        kept = len(order.exchanges) if isinstance(order, Keep) else 0
        try:
            letter = pack(order)
        except Exception as error:
            if isinstance(order, Keep) and kept > 1:
                # One that cannot be put into words must not take the others with it.
                for exchange in order.exchanges:
                    weighs = weight(exchange)
                    single = Keep(next(self._numbers), [exchange], now=False)
                    self._send(single, weighs, None, {exchange.caller.tenant: weighs})
            else:
                self._sent[order.number] = _Sent(b"", size, future, kept, shares)
                self._seen_to(Done(order.number, f"The exchange cannot be archived: {error!r}."))
            return
        self._sent[order.number] = _Sent(letter, size, future, kept, shares)
        if self._writer is not None:
            self._writer.write(letter)
        else:
            self._unsent.append(letter)
            self.expect()

    async def _run(self) -> None:
        """Keep an archivist at work until the archive closes and all is written."""
        pause = _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            code: int | None = None
            try:
                code = await self._employ()
            except OSError as error:
                self._shout("the archivist cannot be started", error.strerror or repr(error))
            if self._closing and (code == 0 or not self._sent):
                for number in list(self._sent):
                    self._seen_to(Done(number, "The server stopped before it could be written."))
                self._ended.set()
                return
            self._trouble = "The archive's writer has died; another is being started."
            self._shout("the archivist died", "its letters go to another")
            self._unsent = deque(each.letter for each in self._sent.values())
            pause = _FIRST_PAUSE if time.monotonic() - begun > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _employ(self) -> int:
        """Start one and read what it says until it is gone; its exit code."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "paddock.llm.archive.archivist",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # Threads that each have a heap of their own hold on to much that none of them uses.
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"MALLOC_ARENA_MAX": "2"},
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LARGEST_ANSWER)
        try:
            writer.write(pack(self._begin))
            while self._unsent:
                writer.write(self._unsent.popleft())
            self._writer = writer
            self._lost_there = 0
            self._trouble = None
            if self._closing:
                writer.write_eof()
            while True:
                answer = await read_answer(reader)
                if isinstance(answer, Status):
                    self.lost += answer.lost - self._lost_there
                    self._lost_there = answer.lost
                    self._trouble = answer.trouble
                else:
                    self._seen_to(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer = None
            writer.close()
            if not self._closing and process.returncode is None:
                process.kill()
            await process.wait()
        return process.returncode or 0

    def _seen_to(self, answer: Done) -> None:
        sent = self._sent.pop(answer.number, None)
        if sent is None:
            return
        self.waiting_bytes -= sent.size
        if self._gained is not None and self.waiting_bytes <= self._crowded // 2:
            self._gained.set()
            self._gained = None
        for tenant, share in (sent.shares or {}).items():
            left = self._waiting.get(tenant, 0) - share
            if left > 0:
                self._waiting[tenant] = left
            else:
                self._waiting.pop(tenant, None)
        if sent.future is None:
            if answer.error is not None and sent.kept:
                self._lose(answer.error, sent.kept)
        elif not sent.future.done():
            if answer.error is None:
                sent.future.set_result(answer.result)
            else:
                sent.future.set_exception(Unavailable(answer.error))
        if sent.kept and answer.error is None:
            self._told()

    def _lose(self, reason: str, count: int = 1) -> None:
        self.lost += count
        self._shout("exchanges were lost", reason)

    def _shout(self, what: str, reason: str) -> None:
        now = time.monotonic()
        if now >= self._next_shout:
            self._next_shout = now + _SHOUT_EVERY
            log.error(what, reason=reason, lost=self.lost, waiting_bytes=self.waiting_bytes)

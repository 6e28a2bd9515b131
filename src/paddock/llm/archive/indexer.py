"""Tells full-text search what was said, a moment after it was archived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import structlog

from paddock.errors import Unavailable
from paddock.llm.archive.answers import answer_of
from paddock.llm.archive.packing import to_pieces, unpack
from paddock.llm.archive.prepare import to_exchange
from paddock.llm.archive.words import said
from paddock.store.exchange_words import Unread, WordStore
from paddock.store.exchanges import to_summary

_PAGE = 64
_SHARE, _BUSY_SHARE = 1, 15
"""It rests this many times as long as it works: it takes at most half a processor from everybody else, and next to
nothing while exchanges wait to be written. What is not indexed yet is on disk, and takes no memory."""
_AFTER_TROUBLE = 2.0
log = structlog.get_logger()


class Indexer:
    """Indexes what is new whenever there is something."""

    def __init__(
        self, words: WordStore, threads: Executor, news: Callable[[], asyncio.Event], busy: Callable[[], bool]
    ) -> None:
        self._words = words
        self._threads = threads
        self._news = news
        self._busy = busy
        self._one_at_a_time = asyncio.Lock()
        self._task = asyncio.create_task(self._run(), name="archive indexer")

    async def catch_up(self) -> None:
        """Index all there is, now. Raises `Unavailable`."""
        while await self.step():
            pass

    async def step(self) -> bool:
        """Index some; whether there may be more."""
        async with self._one_at_a_time:
            unread = await self._words.unread(_PAGE)
            if not unread:
                return False
            loop = asyncio.get_running_loop()
            await self._words.add(await loop.run_in_executor(self._threads, self._read, unread))
            return len(unread) == _PAGE

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            news = self._news()
            try:
                more = True
                while more:
                    begun = time.monotonic()
                    more = await self.step()
                    share = _BUSY_SHARE if self._busy() else _SHARE
                    await asyncio.sleep((time.monotonic() - begun) * share)
                await news.wait()
            except Unavailable:
                await asyncio.sleep(_AFTER_TROUBLE)
            except Exception:
                log.exception("exchanges cannot be indexed")
                await asyncio.sleep(_AFTER_TROUBLE)

    def _read(self, unread: Sequence[Unread]) -> Sequence[tuple[int, str]]:
        found = []
        for each in unread:
            found.append((each.number, words_of(each)))
            time.sleep(0)
        return found


def words_of(unread: Unread) -> str:
    """What was said in an exchange that was not said before, and the answer. Never fails."""
    try:
        row = unread.row
        response = to_pieces(unpack(row.response)) if row.response else []
        messages = [unpack(packed) for packed in unread.messages]
        # What stands before the new ones is another message, or whose conversation it is.
        begins = bool(messages) and not messages[0].startswith(b"{")
        return said(messages[1:], answer_of(to_exchange(to_summary(row), b"", response)), replies=begins)
    except Exception:  # Whatever it is, the others can still be found.
        log.exception("an exchange cannot be indexed", number=unread.number)
        return ""

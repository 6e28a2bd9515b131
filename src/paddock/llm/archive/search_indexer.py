"""Add archived exchanges to the full-text index, shortly after they were written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import structlog

from paddock.errors import Unavailable
from paddock.llm.archive.compression import decode_archived_response, decompress
from paddock.llm.archive.exchange_encoding import exchange_from_summary
from paddock.llm.archive.exchange_parsing import parse_archived_answer
from paddock.llm.archive.search_text import extract_exchange_text
from paddock.store.model_exchanges.exchange_search import ExchangeSearchStore, UnindexedExchange
from paddock.store.model_exchanges.exchange_store import exchange_summary_from_row

_PAGE = 64
_SHARE, _BUSY_SHARE = 1, 15
"""Pause as a multiple of the working time: the indexer takes at most half a processor, and next to nothing while
exchanges wait to be written. Unindexed exchanges are on disk and take no memory."""
_RETRY_SECONDS = 2.0
log = structlog.get_logger()


class ExchangeSearchIndexer:
    """Indexes new exchanges in the background."""

    def __init__(
        self,
        words: ExchangeSearchStore,
        threads: Executor,
        get_write_event: Callable[[], asyncio.Event],
        busy: Callable[[], bool],
    ) -> None:
        self._words = words
        self._threads = threads
        self._get_write_event = get_write_event
        self._busy = busy
        self._one_at_a_time = asyncio.Lock()
        self._task = asyncio.create_task(self._run(), name="archive indexer")

    async def index_all(self) -> None:
        """Index everything now. Raises `Unavailable`."""
        while await self.index_batch():
            pass

    async def index_batch(self) -> bool:
        """Index one batch, and return whether there may be more."""
        async with self._one_at_a_time:
            unread = await self._words.list_unindexed(_PAGE)
            if not unread:
                return False
            loop = asyncio.get_running_loop()
            await self._words.add(await loop.run_in_executor(self._threads, self._extract_texts, unread))
            return len(unread) == _PAGE

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            written = self._get_write_event()
            try:
                more = True
                while more:
                    started = time.monotonic()
                    more = await self.index_batch()
                    share = _BUSY_SHARE if self._busy() else _SHARE
                    await asyncio.sleep((time.monotonic() - started) * share)
                await written.wait()
            except Unavailable:
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:
                log.exception("could not index exchanges")
                await asyncio.sleep(_RETRY_SECONDS)

    def _extract_texts(self, unread: Sequence[UnindexedExchange]) -> Sequence[tuple[int, str]]:
        found = []
        for each in unread:
            found.append((each.number, extract_search_text(each)))
            time.sleep(0)
        return found


def extract_search_text(unread: UnindexedExchange) -> str:
    """Return the new text of an exchange: messages not sent before, and the answer. Never fails."""
    try:
        row = unread.row
        response = decode_archived_response(decompress(row.response)) if row.response else []
        messages = [decompress(packed) for packed in unread.messages]
        # The first item is the preceding message, or the owner's record if the conversation begins here.
        begins = bool(messages) and not messages[0].startswith(b"{")
        return extract_exchange_text(
            messages[1:],
            parse_archived_answer(exchange_from_summary(exchange_summary_from_row(row), b"", response)),
            replies=begins,
        )
    except Exception:  # One bad exchange must not stop indexing of the others.
        log.exception("could not index exchange", number=unread.number)
        return ""

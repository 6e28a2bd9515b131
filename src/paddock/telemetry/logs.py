"""The newest lines of the server's log, for people who have no terminal at hand."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import traceback
from collections import deque
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

KEPT = 5000
LEVELS = ("debug", "info", "warning", "error", "critical")
_LONGEST = 4000
"""Characters of one field; whoever wants the rest has the log itself."""
_LONGEST_TRACE = 20_000


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was logged."""

    number: int
    """1, 2, 3 … since the server started."""
    at: datetime
    level: str
    event: str
    fields: Mapping[str, Any]

    def fits(self, level: str = "debug", words: str = "") -> bool:
        """Whether it is as serious as that at least, and has all the words in it."""
        if LEVELS.index(self.level) < LEVELS.index(level):
            return False
        if not words:
            return True
        text = f"{self.event} {self.fields}".lower()
        return all(word in text for word in words.lower().split())


class LogRing:
    """Keeps so many lines, and tells of new ones. Lines may come from any thread."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lines: deque[Line] = deque(maxlen=kept)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._followers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._closed = False

    def capture(self, logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Keep a line and pass it on as it is: a processor of structlog's."""
        fields = {name: _plain(value) for name, value in line.items() if name not in _OWN}
        if trace := _trace(line):
            fields["exception"] = trace
        level = str(line.get("level", method))
        with self._lock:
            kept = Line(
                number=next(self._numbers),
                at=_moment(line.get("timestamp")),
                level=level if level in LEVELS else "info",
                event=str(line.get("event", ""))[:_LONGEST],
                fields=fields,
            )
            self._lines.append(kept)
            followers = list(self._followers)
        self._wake(followers)
        return line

    def read(self, after: int = 0, limit: int = KEPT, level: str = "debug", words: str = "") -> Sequence[Line]:
        """The newest lines that fit, oldest first."""
        with self._lock:
            kept = list(self._lines)
        return [line for line in kept if line.number > after and line.fits(level, words)][-limit:]

    @property
    def last(self) -> int:
        """The number of the newest line."""
        with self._lock:
            return self._lines[-1].number if self._lines else 0

    async def follow(self, after: int = 0, level: str = "debug", words: str = "") -> AsyncIterator[Line]:
        """Lines after one, as they come, until the server stops. Who falls far behind misses some."""
        news = asyncio.Event()
        follower = (asyncio.get_running_loop(), news)
        with self._lock:
            self._followers.add(follower)
        try:
            while True:
                news.clear()
                last = self.last
                for line in self.read(after, level=level, words=words):
                    yield line
                after = max(after, last)
                if self._closed:
                    return
                await news.wait()
        finally:
            with self._lock:
                self._followers.discard(follower)

    def close(self) -> None:
        """Let those go who follow."""
        self._closed = True
        with self._lock:
            followers = list(self._followers)
        self._wake(followers)

    def _wake(self, followers: Sequence[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        for loop, news in followers:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                pass  # Its loop has ended, and with it whoever followed.


_OWN = frozenset({"event", "level", "timestamp", "exc_info", "stack_info", "exception"})


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_LONGEST]


def _moment(text: object) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.now(UTC)


def _trace(line: Mapping[str, Any]) -> str:
    """Where an exception happened. Without local variables, among which are the keys of requests."""
    if isinstance(told := line.get("exception"), str):
        return told[-_LONGEST_TRACE:]
    found = line.get("exc_info")
    if found is True:
        found = sys.exc_info()
    if isinstance(found, BaseException):
        return "".join(traceback.format_exception(found))[-_LONGEST_TRACE:]
    if isinstance(found, tuple) and found[1] is not None:
        return "".join(traceback.format_exception(found[1]))[-_LONGEST_TRACE:]
    return ""

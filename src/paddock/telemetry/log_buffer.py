"""Keeps the newest lines of the server's log in memory for the API and console."""

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

CAPACITY = 5000
LEVELS = ("debug", "info", "warning", "error", "critical")
_MAX_FIELD_LENGTH = 4000
"""Characters kept of one field; the full text is in the log itself."""
_MAX_TRACE_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log entry."""

    number: int
    """1, 2, 3 … since the server started."""
    at: datetime
    level: str
    event: str
    fields: Mapping[str, Any]

    def matches(self, level: str = "debug", words: str = "") -> bool:
        """Return whether the line has at least this level and contains all the words."""
        if LEVELS.index(self.level) < LEVELS.index(level):
            return False
        if not words:
            return True
        text = f"{self.event} {self.fields}".lower()
        return all(word in text for word in words.lower().split())


class LogBuffer:
    """Bounded buffer of log lines with followers. Lines may come from any thread."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._lines: deque[LogLine] = deque(maxlen=capacity)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._followers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._closed = False

    def capture(self, logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Store a line and return it unchanged; used as a structlog processor."""
        fields = {name: _plain_value(value) for name, value in line.items() if name not in _STANDARD_FIELDS}
        if trace := _exception_text(line):
            fields["exception"] = trace
        level = str(line.get("level", method))
        with self._lock:
            kept = LogLine(
                number=next(self._numbers),
                at=_parse_time(line.get("timestamp")),
                level=level if level in LEVELS else "info",
                event=str(line.get("event", ""))[:_MAX_FIELD_LENGTH],
                fields=fields,
            )
            self._lines.append(kept)
            followers = list(self._followers)
        self._wake(followers)
        return line

    def read(self, after: int = 0, limit: int = CAPACITY, level: str = "debug", words: str = "") -> Sequence[LogLine]:
        """Return the newest matching lines, oldest first."""
        with self._lock:
            kept = list(self._lines)
        return [line for line in kept if line.number > after and line.matches(level, words)][-limit:]

    @property
    def last_number(self) -> int:
        """Number of the newest line."""
        with self._lock:
            return self._lines[-1].number if self._lines else 0

    async def follow(self, after: int = 0, level: str = "debug", words: str = "") -> AsyncIterator[LogLine]:
        """Yield matching lines after a number until the server stops; slow followers miss lines."""
        changed = asyncio.Event()
        follower = (asyncio.get_running_loop(), changed)
        with self._lock:
            self._followers.add(follower)
        try:
            while True:
                changed.clear()
                last = self.last_number
                for line in self.read(after, level=level, words=words):
                    yield line
                after = max(after, last)
                if self._closed:
                    return
                await changed.wait()
        finally:
            with self._lock:
                self._followers.discard(follower)

    def close(self) -> None:
        """End all followers."""
        self._closed = True
        with self._lock:
            followers = list(self._followers)
        self._wake(followers)

    def _wake(self, followers: Sequence[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        for loop, changed in followers:
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:
                pass  # The follower's event loop has ended.


_STANDARD_FIELDS = frozenset({"event", "level", "timestamp", "exc_info", "stack_info", "exception"})


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_MAX_FIELD_LENGTH]


def _parse_time(text: object) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.now(UTC)


def _exception_text(line: Mapping[str, Any]) -> str:
    """Return an exception's traceback without local variables, which may contain keys."""
    if isinstance(text := line.get("exception"), str):
        return text[-_MAX_TRACE_LENGTH:]
    found = line.get("exc_info")
    if found is True:
        found = sys.exc_info()
    if isinstance(found, BaseException):
        return "".join(traceback.format_exception(found))[-_MAX_TRACE_LENGTH:]
    if isinstance(found, tuple) and found[1] is not None:
        return "".join(traceback.format_exception(found[1]))[-_MAX_TRACE_LENGTH:]
    return ""

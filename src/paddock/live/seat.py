"""One viewer's place at a terminal."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from paddock.live.scroll import STDIN

if TYPE_CHECKING:
    from paddock.live.hub import Hub

MOST_WORDS = 32
"""Messages that wait for a viewer who does not read."""
HELD_EVERY = 1.0
"""Seconds between two messages to one viewer that somebody else has the keyboard."""
LARGEST_SIDE = 1000
_MAY_NOT_TYPE = "this key may watch; to type takes the scope sandboxes:write"


class Size(NamedTuple):
    """Columns and rows."""

    columns: int
    rows: int

    @classmethod
    def of(cls, columns: Any, rows: Any) -> Size:
        """Raises `ValueError` for what is no size of a terminal."""
        if not (_is_side(columns) and _is_side(rows)):
            raise ValueError(f"cols and rows are whole numbers from 1 to {LARGEST_SIDE}")
        return cls(columns, rows)


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_SIDE


class Seat:
    """Give what comes from the viewer to `receive`, and send them what `messages` yields, until it ends."""

    def __init__(
        self,
        hub: Hub,
        viewer: str,
        lease: AbstractContextManager[Any],
        *,
        since: int,
        size: Size | None,
        may_type: bool,
    ) -> None:
        self.viewer = viewer
        self.size = size
        self.position = since
        self.moved_at = asyncio.get_running_loop().time()
        self.started = False
        self._hub = hub
        self._lease = lease
        self._may_type = may_type
        self._words: deque[Mapping[str, Any]] = deque(maxlen=MOST_WORDS)
        self._news = asyncio.Event()
        self._held_told = float("-inf")

    async def messages(self) -> AsyncIterator[bytes | Mapping[str, Any]]:
        """What to send: bytes as they are, mappings as JSON. Who asks for the next has sent the last."""
        hub = self._hub
        frame, self.position = hub.scroll.replay(self.position)
        if frame:
            yield frame
        self.started = True
        self._move()
        yield hub.welcome()
        while True:
            self._news.clear()
            while self._words:
                yield self._words.popleft()
            frame, position = hub.scroll.take(self.position)
            if frame:
                yield frame
                self.position = position
                self._move()
            elif hub.last_word is not None:
                yield hub.last_word
                return
            else:
                await self._news.wait()

    async def receive(self, message: bytes | str) -> None:
        """Act on what the viewer has sent. What makes no sense is answered and otherwise ignored."""
        if isinstance(message, bytes):
            if message[:1] == bytes((STDIN,)):
                await self._type(message[1:])
            return
        try:
            frame = json.loads(message)
            kind = frame["type"]
            if kind == "ping":
                self.tell({"type": "pong"})
            elif kind == "stdin":
                await self._type(str(frame["data"]).encode())
            elif kind == "resize":
                size = Size.of(frame["cols"], frame["rows"])
                if self._may_type:
                    await self._hub.resize(self, size)
            elif kind == "signal":
                if self._allowed():
                    await self._hub.signal(self, str(frame["signal"])[:20])
            else:
                raise ValueError(f"unknown frame type {str(kind)[:40]!r}")
        except KeyError as error:
            self.tell({"type": "error", "code": "INVALID_FRAME", "error": f"{error} is missing"})
        except (ValueError, TypeError, RecursionError) as error:
            self.tell({"type": "error", "code": "INVALID_FRAME", "error": str(error)[:200]})

    def tell(self, word: Mapping[str, Any]) -> None:
        """Have something sent; the oldest is dropped if the viewer does not read."""
        self._words.append(word)
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    def close(self) -> None:
        self._hub.leave(self)
        self._lease.__exit__(None, None, None)

    async def _type(self, data: bytes) -> None:
        if data and self._allowed() and not await self._hub.type(self, data):
            self.tell({"type": "error", "code": "STDIN_STUCK", "error": "the terminal takes no input now; try again"})

    def _allowed(self) -> bool:
        if not self._may_type:
            self.tell({"type": "error", "code": "FORBIDDEN", "error": _MAY_NOT_TYPE})
            return False
        holder = self._hub.held_from(self)
        if holder is None:
            return True
        now = asyncio.get_running_loop().time()
        if now - self._held_told >= HELD_EVERY:
            self._held_told = now
            self.tell({"type": "held", "by": holder.name, "viewer": holder.viewer})
        return False

    def _move(self) -> None:
        self.moved_at = asyncio.get_running_loop().time()
        self._hub.moved()

"""One viewer's connection to a shared terminal."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from paddock.live.terminal.scrollback import STDIN

if TYPE_CHECKING:
    from paddock.live.terminal.shared_terminal import SharedTerminal

MAX_QUEUED_MESSAGES = 32
"""Messages queued for a viewer that does not read."""
HELD_INTERVAL = 1.0
"""Seconds between two `held` messages to one viewer."""
MAX_SIDE = 1000
MAX_TEXT_FRAME = 64 * 2**10
"""Characters of a text frame; input of any length can be sent as bytes."""
_MAY_NOT_TYPE = "this key may only watch; typing requires the scope sandboxes:write"


class TerminalSize(NamedTuple):
    """Size of a terminal in characters."""

    columns: int
    rows: int

    @classmethod
    def parse(cls, columns: Any, rows: Any) -> TerminalSize:
        """Validate columns and rows. Raises `ValueError`."""
        if not (_is_valid_side(columns) and _is_valid_side(rows)):
            raise ValueError(f"cols and rows must be whole numbers from 1 to {MAX_SIDE}")
        return cls(columns, rows)


def _is_valid_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE


class TerminalViewer:
    """One viewer: pass its messages to `handle_message`, and send it what `messages` yields."""

    def __init__(
        self,
        terminal: SharedTerminal,
        viewer: str,
        lease: AbstractContextManager[Any],
        *,
        since: int,
        size: TerminalSize | None,
        may_type: bool,
    ) -> None:
        self.viewer_id = viewer
        self.size = size
        self.position = since
        self.advanced_at = asyncio.get_running_loop().time()
        self.started = False
        self._terminal = terminal
        self._lease = lease
        self._may_type = may_type
        self._messages: deque[Mapping[str, Any]] = deque(maxlen=MAX_QUEUED_MESSAGES)
        self._wakeup = asyncio.Event()
        self._held_sent_at = float("-inf")

    async def messages(self) -> AsyncIterator[bytes | Mapping[str, Any]]:
        """Yield messages to send: bytes as they are, mappings as JSON. Asking for the next confirms the last."""
        terminal = self._terminal
        frame, self.position = terminal.scrollback.replay_message(self.position)
        if frame:
            yield frame
        self.started = True
        self._note_progress()
        yield terminal.connected_message()
        while True:
            self._wakeup.clear()
            while self._messages:
                yield self._messages.popleft()
            frame, position = terminal.scrollback.next_message(self.position)
            if frame:
                yield frame
                self.position = position
                self._note_progress()
            elif terminal.final_message is not None:
                yield terminal.final_message
                return
            else:
                await self._wakeup.wait()

    async def handle_message(self, message: bytes | str) -> None:
        """Handle a viewer's message. Invalid messages get an error message and are otherwise ignored."""
        if isinstance(message, bytes):
            if message[:1] == bytes((STDIN,)):
                await self._send_input(message[1:])
            return
        try:
            if len(message) > MAX_TEXT_FRAME:
                raise ValueError(f"text frames have at most {MAX_TEXT_FRAME} characters; send input as bytes")
            frame = json.loads(message)
            kind = frame["type"]
            if kind == "ping":
                self.queue_message({"type": "pong"})
            elif kind == "stdin":
                await self._send_input(str(frame["data"]).encode())
            elif kind == "resize":
                size = TerminalSize.parse(frame["cols"], frame["rows"])
                if self._may_type:
                    await self._terminal.resize_viewer(self, size)
            elif kind == "signal":
                if self._may_send_input():
                    await self._terminal.send_signal(self, str(frame["signal"])[:20])
            else:
                raise ValueError(f"unknown frame type {str(kind)[:40]!r}")
        except KeyError as error:
            self.queue_message({"type": "error", "code": "INVALID_FRAME", "error": f"{error} is missing"})
        except (ValueError, TypeError, RecursionError) as error:
            self.queue_message({"type": "error", "code": "INVALID_FRAME", "error": str(error)[:200]})

    def queue_message(self, message: Mapping[str, Any]) -> None:
        """Queue a message; the oldest one is dropped if the viewer does not read."""
        self._messages.append(message)
        self._wakeup.set()

    def wake_reader(self) -> None:
        self._wakeup.set()

    def close(self) -> None:
        self._terminal.remove_viewer(self)
        self._lease.__exit__(None, None, None)

    async def _send_input(self, data: bytes) -> None:
        if data and self._may_send_input() and not await self._terminal.send_input(self, data):
            self.queue_message(
                {"type": "error", "code": "STDIN_STUCK", "error": "the terminal does not accept input now; try again"}
            )

    def _may_send_input(self) -> bool:
        if not self._may_type:
            self.queue_message({"type": "error", "code": "FORBIDDEN", "error": _MAY_NOT_TYPE})
            return False
        holder = self._terminal.holder_blocking(self)
        if holder is None:
            return True
        now = asyncio.get_running_loop().time()
        if now - self._held_sent_at >= HELD_INTERVAL:
            self._held_sent_at = now
            self.queue_message({"type": "held", "by": holder.name, "viewer": holder.viewer})
        return False

    def _note_progress(self) -> None:
        self.advanced_at = asyncio.get_running_loop().time()
        self._terminal.note_viewer_progress()

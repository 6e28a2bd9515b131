"""Counts what people do during takeovers: clicks, keys and lines, never the typed text."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paddock.live.rfb_protocol import CLIPBOARD_PROVIDE, CUT_TEXT, KEY, POINTER, QEMU
from paddock.model.screens import InputControlHolder

MAX_TAKEOVERS = 20
"""Finished takeovers kept per sandbox; older ones are dropped."""
MAX_SANDBOXES = 10_000
MAX_NAMES = 20
"""Distinct keys and terminals that are counted by name in one takeover."""
_WHEEL = 0b1111000
_KEY_NAMES = {
    0xFF08: "BackSpace",
    0xFF09: "Tab",
    0xFF0D: "Enter",
    0xFF1B: "Escape",
    0xFF50: "Home",
    0xFF51: "Left",
    0xFF52: "Up",
    0xFF53: "Right",
    0xFF54: "Down",
    0xFF55: "PageUp",
    0xFF56: "PageDown",
    0xFF57: "End",
    0xFF63: "Insert",
    0xFF8D: "Enter",
    0xFFFF: "Delete",
}
_MODIFIERS = range(0xFFE1, 0xFFEF)
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|O[A-Za-z]|.)", re.DOTALL)


@dataclass
class Takeover:
    """One period in which a person had mouse and keyboard of a sandbox, with activity counts."""

    viewer: str
    name: str
    since: datetime
    until: datetime | None = None
    reason: str | None = None
    """Why the takeover ended: `released`, `connection_lost`, `forced` and the like."""
    clicks: int = 0
    scrolls: int = 0
    characters: int = 0
    pastes: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    """Presses of each key that types no character."""
    terminals: dict[str, int] = field(default_factory=dict)
    """Lines sent to each terminal."""

    @property
    def has_activity(self) -> bool:
        """Tell whether there was any activity."""
        return bool(self.clicks or self.scrolls or self.characters or self.pastes or self.keys or self.terminals)

    def describe(self) -> str:
        """Return a summary of the activity for an agent to read."""
        parts = [
            _count(self.clicks, "mouse click"),
            _count(self.scrolls, "turn of the mouse wheel", "turns of the mouse wheel"),
            _count(self.characters, "character typed (not shown here)", "characters typed (not shown here)"),
            _count(self.pastes, "text copied into the clipboard", "texts copied into the clipboard"),
        ]
        if self.keys:
            parts.append("keys: " + ", ".join(f"{name} ({count})" for name, count in self.keys.items()))
        for name, lines in self.terminals.items():
            parts.append(f"typed in the terminal {name} ({_count(lines, 'line') or 'no whole line'})")
        return "; ".join(each for each in parts if each) or "nothing was clicked or typed"


class TakeoverTracker:
    """Records takeovers per sandbox as input leases begin and end."""

    def __init__(self) -> None:
        self._current: dict[str, Takeover] = {}
        self._finished: dict[str, deque[Takeover]] = {}
        self._buttons: dict[str, int] = {}

    def begin_takeover(self, sandbox_id: str, holder: InputControlHolder) -> None:
        """Start counting for a new holder of the input."""
        self._current[sandbox_id] = Takeover(holder.viewer, holder.name, holder.since)
        self._buttons.pop(sandbox_id, None)

    def end_takeover(self, sandbox_id: str, reason: str) -> None:
        """Finish the current takeover of a sandbox, if there is one."""
        takeover = self._current.pop(sandbox_id, None)
        self._buttons.pop(sandbox_id, None)
        if takeover is None:
            return
        takeover.until, takeover.reason = datetime.now(UTC), reason
        self._finished.setdefault(sandbox_id, deque(maxlen=MAX_TAKEOVERS)).append(takeover)
        while len(self._finished) > MAX_SANDBOXES:
            del self._finished[next(iter(self._finished))]

    def finished_takeovers(self, sandbox_id: str) -> Sequence[Takeover]:
        """Return finished takeovers that have not been dropped, oldest first."""
        return tuple(self._finished.get(sandbox_id, ()))

    def forget_takeovers(self, sandbox_id: str, takeovers: Sequence[Takeover]) -> None:
        """Drop takeovers that have been reported."""
        left = [
            each for each in self._finished.get(sandbox_id, ()) if all(each is not takeover for takeover in takeovers)
        ]
        if left:
            self._finished[sandbox_id] = deque(left, maxlen=MAX_TAKEOVERS)
        else:
            self._finished.pop(sandbox_id, None)

    def record_rfb_message(self, sandbox_id: str, viewer: str, message: bytes) -> None:
        """Count a complete RFB message that this viewer sends to the display."""
        takeover = self._takeover_of(sandbox_id, viewer)
        if takeover is None:
            return
        kind = message[0]
        if kind == POINTER:
            self._record_pointer(sandbox_id, takeover, message[1])
        elif (kind == KEY and message[1]) or (kind == QEMU and (message[2] or message[3])):
            _record_key(takeover, int.from_bytes(message[4:8], "big"))
        elif kind == CUT_TEXT and _has_text(message):
            takeover.pastes += 1

    def record_terminal_input(self, sandbox_id: str, viewer: str, terminal: str, data: bytes) -> None:
        """Count input that this viewer sends to a terminal."""
        takeover = self._takeover_of(sandbox_id, viewer)
        if takeover is None:
            return
        plain = _SEQUENCE.sub(b"", data)  # Drop cursor keys and the terminal's own replies.
        written = plain.decode(errors="replace")
        takeover.characters += sum(character.isprintable() for character in written)
        if terminal in takeover.terminals or len(takeover.terminals) < MAX_NAMES:
            lines = plain.count(b"\r") + plain.count(b"\n")
            takeover.terminals[terminal] = takeover.terminals.get(terminal, 0) + lines

    def _takeover_of(self, sandbox_id: str, viewer: str) -> Takeover | None:
        takeover = self._current.get(sandbox_id)
        return takeover if takeover is not None and takeover.viewer == viewer else None

    def _record_pointer(self, sandbox_id: str, takeover: Takeover, buttons: int) -> None:
        pressed = buttons & ~self._buttons.get(sandbox_id, 0)
        self._buttons[sandbox_id] = buttons
        if pressed & _WHEEL:
            takeover.scrolls += 1
        if pressed & ~_WHEEL:
            takeover.clicks += 1


def _record_key(takeover: Takeover, symbol: int) -> None:
    if symbol in _MODIFIERS:
        return
    if 0x20 <= symbol <= 0x7E or 0xA0 <= symbol <= 0xFE00 or symbol >= 0x01000000:
        takeover.characters += 1
        return
    name = _KEY_NAMES.get(symbol) or (f"F{symbol - 0xFFBD}" if 0xFFBE <= symbol <= 0xFFD5 else "others")
    if name in takeover.keys or len(takeover.keys) < MAX_NAMES:
        takeover.keys[name] = takeover.keys.get(name, 0) + 1


def _has_text(message: bytes) -> bool:
    """Tell whether a clipboard message carries text; extended messages may only announce or request it."""
    extended = message[4] >= 0x80
    return bool(int.from_bytes(message[8:12], "big") & CLIPBOARD_PROVIDE) if extended else len(message) > 8


def _count(number: int, one: str, many: str | None = None) -> str:
    if not number:
        return ""
    return f"{number} {one if number == 1 else many or one + 's'}"

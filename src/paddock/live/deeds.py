"""What persons do in sandboxes while they have mouse and keyboard: how much of what, never what they typed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paddock.live.rfb import CUT_TEXT, KEY, POINTER, PROVIDE, QEMU
from paddock.model.screens import Holder

MOST_STINTS = 20
"""Stints of one sandbox that wait to be told of; older ones are forgotten."""
MOST_SANDBOXES = 10_000
MOST_NAMES = 20
"""Different keys and terminals of one stint that are named."""
_WHEEL = 0b1111000
_NAMED = {
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
class Stint:
    """The time that one person had mouse and keyboard of a sandbox."""

    viewer: str
    name: str
    since: datetime
    until: datetime | None = None
    reason: str | None = None
    """How it ended: `released`, `connection_lost`, `forced` and the like."""
    clicks: int = 0
    scrolls: int = 0
    characters: int = 0
    pastes: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    """Keys that write nothing, and how often each was pressed."""
    terminals: dict[str, int] = field(default_factory=dict)
    """Terminals that were typed in, and how many lines were sent there."""

    @property
    def touched(self) -> bool:
        """Whether anything was done at all."""
        return bool(self.clicks or self.scrolls or self.characters or self.pastes or self.keys or self.terminals)

    def words(self) -> str:
        """What was done, for an agent to read."""
        told = [
            _count(self.clicks, "mouse click"),
            _count(self.scrolls, "turn of the mouse wheel", "turns of the mouse wheel"),
            _count(self.characters, "character typed (not shown here)", "characters typed (not shown here)"),
            _count(self.pastes, "text copied into the clipboard", "texts copied into the clipboard"),
        ]
        if self.keys:
            told.append("keys: " + ", ".join(f"{name} ({count})" for name, count in self.keys.items()))
        for name, lines in self.terminals.items():
            told.append(f"typed in the terminal {name} ({_count(lines, 'line') or 'no whole line'})")
        return "; ".join(each for each in told if each) or "nothing was clicked or typed"


class Deeds:
    """Counts along with the leases, sandbox by sandbox."""

    def __init__(self) -> None:
        self._open: dict[str, Stint] = {}
        self._over: dict[str, deque[Stint]] = {}
        self._buttons: dict[str, int] = {}

    def began(self, sandbox_id: str, holder: Holder) -> None:
        """A person has taken mouse and keyboard."""
        self._open[sandbox_id] = Stint(holder.viewer, holder.name, holder.since)
        self._buttons.pop(sandbox_id, None)

    def ended(self, sandbox_id: str, reason: str) -> None:
        """They are the agent's again, or another person's."""
        stint = self._open.pop(sandbox_id, None)
        self._buttons.pop(sandbox_id, None)
        if stint is None:
            return
        stint.until, stint.reason = datetime.now(UTC), reason
        self._over.setdefault(sandbox_id, deque(maxlen=MOST_STINTS)).append(stint)
        while len(self._over) > MOST_SANDBOXES:
            del self._over[next(iter(self._over))]

    def finished(self, sandbox_id: str) -> Sequence[Stint]:
        """The stints that are over and have not been forgotten, oldest first."""
        return tuple(self._over.get(sandbox_id, ()))

    def forget(self, sandbox_id: str, stints: Sequence[Stint]) -> None:
        """These have been told of."""
        left = [each for each in self._over.get(sandbox_id, ()) if all(each is not stint for stint in stints)]
        if left:
            self._over[sandbox_id] = deque(left, maxlen=MOST_STINTS)
        else:
            self._over.pop(sandbox_id, None)

    def passed(self, sandbox_id: str, viewer: str, message: bytes) -> None:
        """A message of RFB, whole, of this viewer goes to the display."""
        stint = self._of(sandbox_id, viewer)
        if stint is None:
            return
        kind = message[0]
        if kind == POINTER:
            self._pointed(sandbox_id, stint, message[1])
        elif (kind == KEY and message[1]) or (kind == QEMU and (message[2] or message[3])):
            _pressed(stint, int.from_bytes(message[4:8], "big"))
        elif kind == CUT_TEXT and _gives_text(message):
            stint.pastes += 1

    def typed(self, sandbox_id: str, viewer: str, terminal: str, data: bytes) -> None:
        """This viewer has typed in a terminal."""
        stint = self._of(sandbox_id, viewer)
        if stint is None:
            return
        plain = _SEQUENCE.sub(b"", data)  # Cursor keys, and what the terminal itself answers.
        written = plain.decode(errors="replace")
        stint.characters += sum(character.isprintable() for character in written)
        if terminal in stint.terminals or len(stint.terminals) < MOST_NAMES:
            lines = plain.count(b"\r") + plain.count(b"\n")
            stint.terminals[terminal] = stint.terminals.get(terminal, 0) + lines

    def _of(self, sandbox_id: str, viewer: str) -> Stint | None:
        stint = self._open.get(sandbox_id)
        return stint if stint is not None and stint.viewer == viewer else None

    def _pointed(self, sandbox_id: str, stint: Stint, buttons: int) -> None:
        pressed = buttons & ~self._buttons.get(sandbox_id, 0)
        self._buttons[sandbox_id] = buttons
        if pressed & _WHEEL:
            stint.scrolls += 1
        if pressed & ~_WHEEL:
            stint.clicks += 1


def _pressed(stint: Stint, symbol: int) -> None:
    if symbol in _MODIFIERS:
        return
    if 0x20 <= symbol <= 0x7E or 0xA0 <= symbol <= 0xFE00 or symbol >= 0x01000000:
        stint.characters += 1
        return
    name = _NAMED.get(symbol) or (f"F{symbol - 0xFFBD}" if 0xFFBE <= symbol <= 0xFFD5 else "others")
    if name in stint.keys or len(stint.keys) < MOST_NAMES:
        stint.keys[name] = stint.keys.get(name, 0) + 1


def _gives_text(message: bytes) -> bool:
    """Whether a message of the clipboard has text; those of the extended one may only ask or tell."""
    extended = message[4] >= 0x80
    return bool(int.from_bytes(message[8:12], "big") & PROVIDE) if extended else len(message) > 8


def _count(number: int, one: str, many: str | None = None) -> str:
    if not number:
        return ""
    return f"{number} {one if number == 1 else many or one + 's'}"

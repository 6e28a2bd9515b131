"""What an action did to the screen: every input tool's result says it."""

from __future__ import annotations

import time

from .manager import called, client_list, described, focus
from .results import Result, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context

WAIT = {
    "type": "number",
    "minimum": 0,
    "maximum": 10,
    "default": 0.3,
    "description": "Seconds to wait for the screen to react before answering; 0 answers at once.",
}
MAX_NEW = 3
QUIET = 0.03
"""Seconds without a change after which a reaction is taken to be over."""


class Effects:
    """Made before an action; afterwards it tells what has changed."""

    def __init__(self, context: Context) -> None:
        self._display = context.display
        self._caller = context.caller
        with self._display.session() as connection:
            connection.arm()
            self._serial = connection.serial
            self._focus = focus(connection)
            self._windows = set(client_list(connection))

    def result(self, text: str, wait: float, **structured: Any) -> Result:
        """Wait for the reaction, and describe the action together with it."""
        changed = self._settle(wait)
        with self._display.session() as connection:
            window, title = focus(connection)
            changed = changed or connection.serial != self._serial
            fresh = [one for one in client_list(connection) if one not in self._windows and one != window]
            shown = [one for one in (described(connection, one) for one in fresh[:MAX_NEW]) if one and not one.dock]
        moved = window != self._focus[0]
        text += "; the screen changed" if changed else "; the screen did not change"
        if moved and window:
            text += f"; {quoted(title)} (0x{window:x}) is the active window now"
        elif moved:
            text += "; no window is active now"
        elif title != self._focus[1]:
            text += f"; the active window's title is {quoted(title)} now"
        for opened in shown:
            text += f"; {called(opened)} has opened, and is not active"
        focused = {"window": f"0x{window:x}" if window else "", "title": title}
        return Result(text, structured={**structured, "screen_changed": changed, "focus": focused})

    def _settle(self, wait: float) -> bool:
        """Wait for a first change, and then until the screen is quiet for a moment; within bounds."""
        if wait <= 0:
            return False
        deadline = time.monotonic() + wait
        serial = self._serial
        if not self._display.wait(serial, wait, self._caller):
            return False
        while time.monotonic() < deadline:
            with self._display.session() as connection:
                serial = connection.serial
            if not self._display.wait(serial, min(QUIET, deadline - time.monotonic()), self._caller):
                break
        return True

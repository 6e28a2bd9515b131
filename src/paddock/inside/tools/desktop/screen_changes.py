"""Detects what an input action changed on the screen, for the results of input tools."""

from __future__ import annotations

import time

from ..tool_result import ToolCallResult, quote_title
from .window_manager import describe_window, focused_window, list_window_ids, read_x_window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_context import ToolContext

WAIT_SCHEMA = {
    "type": "number",
    "minimum": 0,
    "maximum": 10,
    "default": 0.3,
    "description": "Seconds to wait for the screen to react; 0 returns at once.",
}
MAX_NEW = 3
QUIET_SECONDS = 0.03
"""Minimum seconds without a change after which a reaction counts as finished."""
QUIET_SHARE = 0.1
"""Share of the caller's wait that is at least needed without a change: a longer wait suits slower programs."""


class ScreenChanges:
    """Created before an action; afterwards it describes what has changed."""

    def __init__(self, context: ToolContext) -> None:
        self._display = context.display
        self._caller = context.caller
        with self._display.connection() as connection:
            connection.request_change_event()
            self._serial = connection.change_serial
            self._focus = focused_window(connection)
            self._windows = set(list_window_ids(connection))

    def wait_and_describe(self, text: str, wait: float, **structured: Any) -> ToolCallResult:
        """Wait for the reaction and return the result that describes action and reaction."""
        changed = self._wait_until_still(wait)
        with self._display.connection() as connection:
            window, title = focused_window(connection)
            changed = changed or connection.change_serial != self._serial
            new_ids = [one for one in list_window_ids(connection) if one not in self._windows and one != window]
            new_windows = [read_x_window(connection, one) for one in new_ids[:MAX_NEW]]
            shown = [one for one in new_windows if one and not one.dock]
        moved = window != self._focus[0]
        text += "; the screen changed" if changed else "; the screen did not change"
        if moved and window:
            text += f"; {quote_title(title)} (0x{window:x}) is now the active window"
        elif moved:
            text += "; now no window is active"
        elif title != self._focus[1]:
            text += f"; the active window's title is now {quote_title(title)}"
        for opened in shown:
            text += f"; {describe_window(opened)} has opened but is not active"
        focused = {"window": f"0x{window:x}" if window else "", "title": title}
        return ToolCallResult(text, structured={**structured, "screen_changed": changed, "focus": focused})

    def _wait_until_still(self, wait: float) -> bool:
        """Wait at most `wait` seconds for a first change, and then until the screen is still."""
        if wait <= 0:
            return False
        deadline = time.monotonic() + wait
        quiet = max(QUIET_SECONDS, QUIET_SHARE * wait)
        serial = self._serial
        if not self._display.wait_for_change(serial, wait, self._caller):
            return False
        while time.monotonic() < deadline:
            with self._display.connection() as connection:
                serial = connection.change_serial
            if not self._display.wait_for_change(serial, min(quiet, deadline - time.monotonic()), self._caller):
                break
        return True

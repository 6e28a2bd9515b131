"""Reads lines from the terminal, with a persistent history."""

from __future__ import annotations

import signal
from pathlib import Path

PROMPT = "\001\x1b[1;32m\002you>\001\x1b[0m\002 "
_MAX_HISTORY_LINES = 1000


class TerminalLineEditor:
    """Reads lines, with editing and a history file if `readline` is available."""

    def __init__(self, history_path: Path) -> None:
        self._history_path = history_path
        self._ready = False

    async def read_line(self, prompt: str = PROMPT) -> str:
        """Read one line. Raises `EOFError` on Ctrl-D, `KeyboardInterrupt` on Ctrl-C."""
        self._load_history()
        previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            # Blocks the main thread on purpose: only it receives Ctrl-C, and events printed meanwhile would
            # disturb the line being typed.
            return input(prompt)  # noqa: ASYNC250
        finally:
            signal.signal(signal.SIGINT, previous_handler)

    def _load_history(self) -> None:
        if self._ready:
            return
        self._ready = True
        try:
            import readline
        except ImportError:
            return
        try:
            readline.read_history_file(self._history_path)
        except OSError:
            pass
        readline.set_history_length(_MAX_HISTORY_LINES)

    def close(self) -> None:
        try:
            import readline

            self._history_path.touch(mode=0o600)
            readline.write_history_file(self._history_path)
        except (ImportError, OSError):
            pass

"""Reads lines from the terminal, with a persistent history."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROMPT = "\001\x1b[1;32m\002you>\001\x1b[0m\002 "
_MAX_HISTORY_LINES = 1000
_SIGNAL_CHECK_SECONDS = 0.1


class TerminalLineEditor:
    """Reads lines, with editing and a history file if `readline` is available."""

    def __init__(self, history_path: Path) -> None:
        self._history_path = history_path
        self._ready = False

    async def read_line(self, prompt: str = PROMPT) -> str:
        """Read one line. Raises `EOFError` on Ctrl-D, `KeyboardInterrupt` on Ctrl-C."""
        self._load_history()
        with _handle_ctrl_c():
            # Blocks the main thread on purpose: only it receives Ctrl-C, and events printed meanwhile would
            # disturb the line being typed.
            return input(prompt)  # noqa: ASYNC250

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


@contextmanager
def _handle_ctrl_c() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C, also if it comes just before `input` waits for the terminal.

    `input` handles signals only when one interrupts its wait, so a Ctrl-C shortly before that would have no effect
    until the next key. The ticks of a timer interrupt the wait.
    """
    previous_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    previous_alarm = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, _SIGNAL_CHECK_SECONDS, _SIGNAL_CHECK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_alarm)
        signal.signal(signal.SIGINT, previous_interrupt)

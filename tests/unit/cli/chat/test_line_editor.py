"""Reading lines from a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

READ_LINE = """
import asyncio, ctypes, functools, readline, signal, sys
from pathlib import Path
from paddock.cli.chat.line_editor import TerminalLineEditor

async def main():
    if sys.argv[2] == "interrupted":
        # C code raises the signal just before the wait; Python code would handle it at once.
        readline.set_pre_input_hook(functools.partial(ctypes.CDLL(None)["raise"], int(signal.SIGINT)))
    try:
        result = "line " + await TerminalLineEditor(Path(sys.argv[1])).read_line("ready> ")
    except KeyboardInterrupt:
        result = "interrupted"
    unchanged = signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    print(result, unchanged, file=sys.stderr)

asyncio.run(main())
"""


def read_line_on_terminal(history: Path, mode: str, typed: bytes) -> str:
    """Read a line in a program on a pseudo-terminal, and return the result that the program reports."""
    terminal, program_side = os.openpty()
    try:
        os.write(terminal, typed)
        result = subprocess.run(
            [sys.executable, "-c", READ_LINE, str(history), mode],
            stdin=program_side,
            stdout=program_side,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
    finally:
        os.close(terminal)
        os.close(program_side)
    return result.stderr.decode().strip()


def test_ctrl_c_just_before_the_wait_interrupts_it(tmp_path: Path) -> None:
    assert read_line_on_terminal(tmp_path / "history", "interrupted", b"") == "interrupted True"


def test_typed_line_is_read(tmp_path: Path) -> None:
    assert read_line_on_terminal(tmp_path / "history", "plain", b"hello\n") == "line hello True"

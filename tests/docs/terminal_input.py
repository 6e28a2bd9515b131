"""Run a command in a terminal, type at its prompts, and print the screen's text.

Usage: python -m tests.docs.terminal_input COMMAND [TYPED ...]
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time

PROMPT = re.compile(rb"(?:\$ |and why: |answer: |you> )\Z")
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07|[\x01\x02]")
KEYS = {"^D": b"\x04", "^C": b"\x03"}
COMMAND_TIMEOUT = 90.0
TIMEOUT_EXIT_CODE = 124


def main(command: str, typed: list[str]) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", command])
    remaining = [KEYS.get(each, each.encode() + b"\r") for each in typed]
    seen, answered_length = b"", 0
    deadline, timed_out = time.monotonic() + COMMAND_TIMEOUT, False
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            timed_out = True
            break
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # The terminal closes with its last process.
            break
        if not chunk:
            break
        seen += chunk
        text = CONTROL.sub(b"", seen)
        if remaining and len(text) > answered_length and PROMPT.search(text):
            answered_length = len(text)
            os.write(terminal, remaining.pop(0))
    sys.stdout.write(CONTROL.sub(b"", seen).decode(errors="replace").replace("\r", ""))
    if remaining:
        sys.stdout.write(f"\n({len(remaining)} typed lines had no prompt)\n")
    exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if timed_out:
        sys.stdout.write(f"\n(still running after {COMMAND_TIMEOUT:g} seconds)\n")
    return TIMEOUT_EXIT_CODE if timed_out else exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

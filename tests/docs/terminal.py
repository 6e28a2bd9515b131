"""Run a command in a terminal, type at its prompts, and print what was on the screen.

Usage: python -m tests.docs.terminal COMMAND [TYPED ...]
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
SECONDS = 90.0


def main(command: str, typed: list[str]) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", command])
    waiting = [KEYS.get(each, each.encode() + b"\r") for each in typed]
    seen, answered = b"", 0
    deadline = time.monotonic() + SECONDS
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            sys.stdout.write(f"(still running after {SECONDS} seconds)\n")
            break
        try:
            read = os.read(terminal, 65536)
        except OSError:  # The terminal closes with its last process.
            break
        if not read:
            break
        seen += read
        text = CONTROL.sub(b"", seen)
        if waiting and len(text) > answered and PROMPT.search(text):
            answered = len(text)
            os.write(terminal, waiting.pop(0))
    sys.stdout.write(CONTROL.sub(b"", seen).decode(errors="replace").replace("\r", ""))
    if waiting:
        sys.stdout.write(f"\n({len(waiting)} typed lines were not asked for)\n")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

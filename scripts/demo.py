"""The main job, end to end: an agent works on a goal in a fenced computer, and what it made comes back.

Everything is done with the `paddock` commands a user would type; they are shown as they run.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

PADDOCK = [sys.executable, "-m", "paddock"]
TASK = "tasks/hello.yaml"


def styled(text: str, style: int) -> str:
    return f"\033[{style}m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def main() -> int:
    os.chdir(Path(__file__).parent.parent)
    words = ["run", TASK, "--show"]
    print(
        styled("claude-code reads a table and writes a report, in a sandbox that reaches nothing but the LLM proxy.", 1)
    )
    print("The first time, its image is built, which takes a minute or two.\n")
    print(styled(f"$ paddock {shlex.join(words)}", 2), flush=True)
    started = time.monotonic()
    code = subprocess.run([*PADDOCK, *words], check=False).returncode
    if code:
        return code
    took = time.monotonic() - started
    print(f"\n{styled('Done', 1)} in {took:.1f} s. Look further with the same command, .venv/bin/paddock:")
    for command, meaning in (
        ("runs list", "all runs; `runs show` and `runs get` have more about one"),
        ("llm log", "every request to a model, once `paddock serve` runs"),
        ("task new mine", "a commented task file to start from"),
        ("doctor", "what this machine can do, and how to mend what it cannot"),
    ):
        print(f"  paddock {command:<14} {styled(meaning, 2)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

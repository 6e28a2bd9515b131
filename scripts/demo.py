"""Run the sample task from start to finish, then print the commands to go on with.

Every step is a `paddock` command, printed as the user can type it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PADDOCK = [sys.executable, "-m", "paddock"]
TASK = "tasks/hello.yaml"


def styled(text: str, style: int) -> str:
    return f"\033[{style}m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def paddock_command() -> str:
    """Return `paddock` as the user must type it: by name if PATH leads to this environment, else by path."""
    program = Path(sys.executable).with_name("paddock")
    found = shutil.which("paddock")
    if found is not None and Path(found).resolve() == program.resolve():
        return "paddock"
    return str(program.relative_to(ROOT)) if program.is_relative_to(ROOT) else str(program)


NEXT_STEPS = (
    ("serve", "start the server with the web console, and leave it running"),
    ("console", "in a second terminal: open the console in your browser, signed in"),
    ("chat", "talk to an agent in the terminal"),
    ("runs show hello", "everything about the run above"),
    ("task new mine", "write a commented task file to start from"),
    ("doctor", "check this machine, with a fix for each problem"),
)


def main() -> int:
    os.chdir(ROOT)
    paddock = paddock_command()
    arguments = ["run", TASK, "--show"]
    print(
        styled(
            "claude-code reads a table and writes a report, in a sandbox that reaches nothing but the model proxy.", 1
        )
    )
    print("The first time, its image is built, which takes a minute or two.\n")
    print(styled(f"$ {paddock} {shlex.join(arguments)}", 2), flush=True)
    started = time.monotonic()
    code = subprocess.run([*PADDOCK, *arguments], check=False).returncode
    if code:
        return code
    print(f"\n{styled('Done', 1)} in {time.monotonic() - started:.1f} s. What to do next:")
    width = max(len(command) for command, _ in NEXT_STEPS)
    for command, meaning in NEXT_STEPS:
        print(f"  {paddock} {command:<{width}}  {styled(meaning, 2)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

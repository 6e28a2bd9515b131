"""The main job, end to end: a fenced computer, work done in it, an attempt to get out, the result brought back.

Everything is done with the `paddock` commands a user would type; they are shown as they run.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PADDOCK = [sys.executable, "-m", "paddock"]
DATA = Path(os.environ.get("PADDOCK_DATA", "~/.paddock")).expanduser()

INPUT = """month,visitors
January,1820
February,2140
March,2675
April,3310
"""

WORK = """
import csv, pathlib, platform
rows = list(csv.DictReader(open("/workspace/visitors.csv")))
most = max(int(row["visitors"]) for row in rows)
lines = [f"{row['month']:<10} {'#' * round(30 * int(row['visitors']) / most):<30} {row['visitors']}" for row in rows]
report = "# Visitors\\n\\n" + "\\n".join(lines) + f"\\n\\nwritten in {platform.node()}\\n"
pathlib.Path("/workspace/report.md").write_text(report)
print(f"{len(rows)} months read, report written")
"""

ESCAPE = """
import os, socket
def tried(what, attempt):
    try:
        attempt()
        print(f"  {what:<32} GOT THROUGH")
    except OSError as error:
        print(f"  {what:<32} refused: {error.strerror or error}")
tried("read the host's /etc/shadow", lambda: open("/etc/shadow").read())
tried("write to the image", lambda: open("/usr/bin/evil", "w"))
tried("signal the server on the host", lambda: os.kill(SERVER, 0))
tried("reach the host's loopback", lambda: socket.create_connection(("127.0.0.1", PORT), 2))
tried("reach the internet", lambda: socket.create_connection(("192.0.2.1", 80), 2))
tried("become root", lambda: os.setuid(0))
"""


def styled(text: str, style: int) -> str:
    return f"\033[{style}m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def say(text: str) -> None:
    print(f"\n{styled(text, 1)}", flush=True)


def paddock(*words: str, show: bool = True, capture: bool = False) -> str:
    if show:
        print(styled(f"$ paddock {shlex.join(words)}", 2), flush=True)
    done = subprocess.run([*PADDOCK, *words], check=False, text=True, stdout=subprocess.PIPE if capture else None)
    if done.returncode:
        sys.exit(f"error: paddock {words[0]} ended with code {done.returncode}")
    return (done.stdout or "").strip()


def work_in(image: str, scratch: Path, port: int, pid: int) -> None:
    """Create a sandbox, do a small job in it, bring the result back."""
    started = time.monotonic()
    sandbox = paddock("sandbox", "create", "--image", image, "--timeout", "10m", "--quiet", capture=True)
    print(f"{sandbox} runs after {time.monotonic() - started:.2f} s")
    try:
        paddock("sandbox", "cp", str(scratch / "visitors.csv"), f"{sandbox}:/workspace/visitors.csv")
        paddock("sandbox", "cp", str(scratch / "work.py"), f"{sandbox}:/workspace/work.py")
        paddock("sandbox", "exec", sandbox, "--", "python3", "/workspace/work.py")
        say("It tries to get out")
        (scratch / "escape.py").write_text(ESCAPE.replace("PORT", str(port)).replace("SERVER", str(pid)))
        paddock("sandbox", "cp", str(scratch / "escape.py"), f"{sandbox}:/tmp/escape.py", show=False)
        paddock("sandbox", "exec", sandbox, "--", "python3", "/tmp/escape.py")
        say("The result comes back")
        paddock("sandbox", "cp", f"{sandbox}:/workspace/report.md", str(scratch / "report.md"))
        print("\n" + (scratch / "report.md").read_text())
    finally:
        paddock("sandbox", "rm", sandbox)


def serve() -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers."""
    print(styled(f"$ paddock serve --port 0 --data {DATA}", 2), flush=True)
    note = DATA / "server.json"
    log = (DATA / "demo.log").open("wb")
    server = subprocess.Popen([*PADDOCK, "serve", "--port", "0"], stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while not (note.exists() and json.loads(note.read_text())["pid"] == server.pid):
        if server.poll() is not None or time.monotonic() > deadline:
            print((DATA / "demo.log").read_text(), file=sys.stderr)
            sys.exit("error: the server did not start; see above")
        time.sleep(0.05)
    return server


def main() -> None:
    DATA.mkdir(mode=0o700, parents=True, exist_ok=True)
    started = time.monotonic()
    say("Is this machine fit?")
    paddock("doctor")
    say("A server")
    server = serve()
    try:
        port = int(json.loads((DATA / "server.json").read_text())["url"].rsplit(":", 1)[1].strip("/"))
        with tempfile.TemporaryDirectory() as directory:
            scratch = Path(directory)
            (scratch / "visitors.csv").write_text(INPUT)
            (scratch / "work.py").write_text(WORK)
            say("A fenced computer made of this machine's own programs, ready at once")
            work_in("host", scratch, port, server.pid)
            say("A computer of its own: the `code` image (built once, then kept)")
            paddock("image", "build", "code")
            work_in("code", scratch, port, server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    say(f"Done in {time.monotonic() - started:.0f} s. Try it yourself:")
    print("  .venv/bin/paddock serve                      # in one terminal")
    print("  .venv/bin/paddock sandbox create             # in another")
    print("  .venv/bin/paddock sandbox shell SANDBOX")


if __name__ == "__main__":
    main()

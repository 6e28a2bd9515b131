"""Colours on the screens of sandboxes, and in pictures."""

from __future__ import annotations

import subprocess

import httpx

from tests.support.server import run_in_sandbox

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
Colour = tuple[int, int, int]
_PAINT = """
import sys, time
from Xlib import X, display
d = display.Display()
root = d.screen().root
size = root.get_geometry()
for colour in sys.argv[2:]:
    w = root.create_window(0, 0, size.width, size.height, 0, d.screen().root_depth, X.InputOutput, X.CopyFromParent,
        background_pixel=int(colour, 16), override_redirect=True)
    w.map()
    d.sync()
    time.sleep(float(sys.argv[1]))
print("painted", flush=True)
time.sleep(600)
"""


def paint(client: httpx.Client, sandbox: str, *colours: Colour, pause: float = 0.0) -> None:
    """Fill a sandbox's screen with each colour in turn; the last one stays."""
    named = " ".join("{:02x}{:02x}{:02x}".format(*colour) for colour in colours)
    program = f"cat > /tmp/paint.py <<'EOF'\n{_PAINT}\nEOF\n"
    start = f"(setsid python3 /tmp/paint.py {pause} {named} > /tmp/painted 2>&1 &) ; "
    wait = "for i in $(seq 500); do grep -qs . /tmp/painted && break; sleep 0.02; done; cat /tmp/painted"
    output, code = run_in_sandbox(
        client, sandbox, f"{program}rm -f /tmp/painted; {start}{wait}", envs={"DISPLAY": ":1"}
    )
    assert output.splitlines()[-1:] == ["painted"], (output, code)


def colour_of(jpeg: bytes) -> Colour:
    """Return the average colour of a JPEG."""
    words = [
        "ffmpeg",
        "-loglevel",
        "error",
        "-f",
        "mjpeg",
        "-i",
        "pipe:0",
        "-frames:v",
        "1",
        "-vf",
        "scale=1:1:flags=area",
    ]
    done = subprocess.run(
        [*words, "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"],
        input=jpeg,
        capture_output=True,
        check=True,
        timeout=30,
    )
    red, green, blue = done.stdout[:3]
    return red, green, blue


def is_like(jpeg: bytes, colour: Colour) -> bool:
    return all(abs(a - b) < 30 for a, b in zip(colour_of(jpeg), colour, strict=True))

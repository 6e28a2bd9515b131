"""Sandboxes with screens for the benchmarks, and their peers."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from peers import Paddock
from viewing import Screen, WebStream, children, unix, until_managed

MOVING = """
import time
from Xlib import X, display
d = display.Display(); s = d.screen()
w = s.root.create_window(900, 100, 200, 200, 0, s.root_depth, background_pixel=0, override_redirect=True)
w.map(); pens = [w.create_gc(foreground=colour) for colour in (0xff8800, 0x0088ff)]
turn = 0
while True:
    w.fill_rectangle(pens[turn % 2], turn % 180, turn % 180, 20, 20); d.flush(); turn += 1; time.sleep(0.005)
"""
RAW = """
import io, sys, time
from PIL import Image
from Xlib import X, display
d = display.Display(); s = d.screen()
took = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    raw = s.root.get_image(0, 0, s.width_in_pixels, s.height_in_pixels, X.ZPixmap, 0xffffffff)
    picture = Image.frombuffer("RGB", (s.width_in_pixels, s.height_in_pixels), raw.data, "raw", "BGRX", 0, 1)
    file = io.BytesIO(); picture.save(file, "JPEG", quality=80)
    took.append(time.perf_counter() - began)
print(sorted(took)[len(took) // 2])
"""
WITNESS = """
import time
from Xlib import X, display
d = display.Display(); s = d.screen()
w = s.root.create_window(300, 300, 400, 200, 0, s.root_depth, event_mask=X.ButtonPressMask, override_redirect=True)
w.map(); d.flush()
with open("/tmp/clicks", "w", buffering=1) as file:
    file.write("ready\\n")
    while True:
        if d.next_event().type == X.ButtonPress:
            file.write("%d\\n" % time.monotonic_ns())
"""


class Sandbox:
    """A sandbox of the server, asked in one connection that stays open."""

    def __init__(self, paddock: Paddock, sandbox: str) -> None:
        parts = urlsplit(paddock._url)
        self.id = sandbox
        self.path = f"/v1/sandboxes/{sandbox}"
        self.address = f"ws://{parts.netloc}{self.path}"
        name, _, value = paddock._authorization.partition(": ")
        self.headers = {name: value}
        self._paddock = paddock
        self._link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        headers = {**self.headers, "Content-Type": "application/json"}
        self._link.request(method, self.path + path, content, headers)
        answer = self._link.getresponse()
        return answer.status, answer.read()

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        status, said = self.ask("POST", f"/tools/{name}", arguments)
        result: dict[str, Any] = json.loads(said)
        if status != 200 or result["isError"]:
            raise RuntimeError(f"{name}: {said[:500]!r}")
        return result

    def run(self, command: str) -> str:
        """Return the output of a command in the sandbox."""
        status, said = self.ask("POST", "/proxy/44772/command", {"command": command})
        assert status == 200, said
        events = [json.loads(line) for line in said.splitlines() if line]
        return "\n".join(event["text"] for event in events if event["type"] == "stdout")

    def program(self, name: str, source: str) -> None:
        """Start a program that goes on."""
        self.ask("POST", "/tools/write_file", {"path": f"/tmp/{name}.py", "content": source})
        self.run(f"setsid nohup python3 /tmp/{name}.py >/dev/null 2>&1 </dev/null &")

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"sandbox {self.id} is not as it should be after {seconds:.0f} s")
            time.sleep(0.005)

    def is_up(self) -> bool:
        status, said = self.ask("GET", "/desktop")
        return status == 200 and all(service["ready"] for service in json.loads(said)["services"])

    def shown(self) -> Screen:
        """A viewer."""
        return Screen(WebStream(f"{self.address}/desktop", self.headers, "binary"))

    @property
    def first_process(self) -> int:
        report = (self._paddock._data / "boxes" / self.id / "report.jsonl").read_text().splitlines()[0]
        return int(json.loads(report)["child-pid"])

    @property
    def display(self) -> str:
        """The display's own socket, as root sees it from outside."""
        return f"/proc/{self.first_process}/root/tmp/.vnc.sock"

    def close(self) -> None:
        self._link.close()


async def new_sandbox(paddock: Paddock, kind: str = "linux", **more: Any) -> Sandbox:
    extensions = {"paddock.kind": kind, **more.pop("extensions", {})}
    return Sandbox(paddock, await paddock.create(extensions=extensions, **more))


async def ready_sandbox(paddock: Paddock, kind: str = "linux") -> Sandbox:
    sandbox = await new_sandbox(paddock, kind)
    await asyncio.to_thread(sandbox.until, sandbox.is_up)
    return sandbox


def by_hand(directory: Path, root: Path) -> tuple[float, float]:
    """Xvnc and openbox of an image in a bare bubblewrap: how long until `look` has seen what."""
    path = directory / "hand.sock"
    path.unlink(missing_ok=True)
    words = "Xvnc :1 -geometry 1280x800 -depth 24 -rfbport=-1 -rfbunixpath=/mnt/hand.sock -SecurityTypes=None -ac"
    script = f"{words} & until [ -e /tmp/.X11-unix/X1 ]; do sleep 0.002; done; DISPLAY=:1 exec openbox"
    fence = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", str(root), "/", "--proc", "/proc"]
    fence += [
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        "/run",
        "--tmpfs",
        "/mnt",
        "--bind",
        str(directory),
        "/mnt",
    ]
    began = time.perf_counter()
    process = subprocess.Popen([*fence, "sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return look(began, lambda: Screen(unix(str(path))), lambda: children(process.pid)[0])
    finally:
        process.kill()
        process.wait(10)


def look(began: float, watch: Callable[[], Screen], first_process: Callable[[], int]) -> tuple[float, float]:
    """A viewer that connects as soon as the desktop accepts it.

    Seconds until they have had a whole frame, and until they have had one of a screen with a window manager.
    """
    deadline = time.monotonic() + 60
    while True:
        try:
            screen = watch()
            break
        except (OSError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
    with screen.stream:
        screen.frame()
        first = time.perf_counter() - began
        until_managed(f"/proc/{first_process()}/root/tmp/.X11-unix/X1")
        screen.frame()
        return first, time.perf_counter() - began


def websockify(sandbox: Sandbox) -> AbstractContextManager[tuple[str, int]]:
    """noVNC's own relay on the display of a box: where it is, and which process."""
    program = shutil.which("websockify")
    if program is None:
        raise RuntimeError("websockify is not installed; apt install websockify")
    port = _free_port()
    return _relay(port, program, f"--unix-target={sandbox.display}", f"127.0.0.1:{port}")


def bare(sandbox: Sandbox) -> AbstractContextManager[tuple[str, int]]:
    """A loop of reading and writing in its place."""
    port = _free_port()
    return _relay(port, sys.executable, str(Path(__file__).with_name("bare.py")), sandbox.display, str(port))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def _relay(port: int, *words: str) -> Iterator[tuple[str, int]]:
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, **quiet)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield f"ws://127.0.0.1:{port}/", process.pid
    finally:
        process.terminate()
        process.wait(10)

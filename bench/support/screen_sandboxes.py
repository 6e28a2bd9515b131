"""Sandboxes with screens, and the bare desktops and relays they are compared with."""

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

from support.paddock_server import PaddockServer
from support.process_usage import child_processes
from support.viewer_clients import RfbViewer, WebSocketStream, connect_unix, wait_for_window_manager

MOVING_WINDOW_PROGRAM = """
import time
from Xlib import X, display
d = display.Display(); s = d.screen()
w = s.root.create_window(900, 100, 200, 200, 0, s.root_depth, background_pixel=0, override_redirect=True)
w.map(); pens = [w.create_gc(foreground=colour) for colour in (0xff8800, 0x0088ff)]
turn = 0
while True:
    w.fill_rectangle(pens[turn % 2], turn % 180, turn % 180, 20, 20); d.flush(); turn += 1; time.sleep(0.005)
"""
SCREENSHOT_PROGRAM = """
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
CLICK_LOGGER_PROGRAM = """
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


class ScreenSandbox:
    """A sandbox of the server, used through one persistent connection."""

    def __init__(self, paddock: PaddockServer, sandbox: str) -> None:
        parts = urlsplit(paddock._url)
        self.id = sandbox
        self.path = f"/v1/sandboxes/{sandbox}"
        self.address = f"ws://{parts.netloc}{self.path}"
        name, _, value = paddock._authorization.partition(": ")
        self.headers = {name: value}
        self._paddock = paddock
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        headers = {**self.headers, "Content-Type": "application/json"}
        self._connection.request(method, self.path + path, content, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def call_tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        status, body = self.request("POST", f"/tools/{name}", arguments)
        result: dict[str, Any] = json.loads(body)
        if status != 200 or result["isError"]:
            raise RuntimeError(f"{name}: {body[:500]!r}")
        return result

    def run_command(self, command: str) -> str:
        """Return the output of a command in the sandbox."""
        status, body = self.request("POST", "/proxy/44772/command", {"command": command})
        assert status == 200, body
        events = [json.loads(line) for line in body.splitlines() if line]
        return "\n".join(event["text"] for event in events if event["type"] == "stdout")

    def start_program(self, name: str, source: str) -> None:
        """Start a Python program in the background."""
        self.request("POST", "/tools/write_file", {"path": f"/tmp/{name}.py", "content": source})
        self.run_command(f"setsid nohup python3 /tmp/{name}.py >/dev/null 2>&1 </dev/null &")

    def wait_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"sandbox {self.id} is not as it should be after {seconds:.0f} s")
            time.sleep(0.005)

    def is_up(self) -> bool:
        status, body = self.request("GET", "/desktop")
        return status == 200 and all(service["ready"] for service in json.loads(body)["services"])

    def open_viewer(self) -> RfbViewer:
        """Connect a viewer to the desktop."""
        return RfbViewer(WebSocketStream(f"{self.address}/desktop", self.headers, "binary"))

    @property
    def first_process(self) -> int:
        report = (self._paddock._data / "boxes" / self.id / "report.jsonl").read_text().splitlines()[0]
        return int(json.loads(report)["child-pid"])

    @property
    def display_socket(self) -> str:
        """Path of the display's socket as root sees it from outside the sandbox."""
        return f"/proc/{self.first_process}/root/tmp/.vnc.sock"

    def close(self) -> None:
        self._connection.close()


async def create_screen_sandbox(paddock: PaddockServer, kind: str = "linux", **more: Any) -> ScreenSandbox:
    extensions = {"paddock.kind": kind, **more.pop("extensions", {})}
    return ScreenSandbox(paddock, await paddock.create_sandbox(extensions=extensions, **more))


async def create_ready_sandbox(paddock: PaddockServer, kind: str = "linux") -> ScreenSandbox:
    sandbox = await create_screen_sandbox(paddock, kind)
    await asyncio.to_thread(sandbox.wait_until, sandbox.is_up)
    return sandbox


def time_bare_desktop(directory: Path, root: Path) -> tuple[float, float]:
    """Start Xvnc and openbox of an image in a bare bubblewrap and return the times of `time_first_frames`."""
    path = directory / "hand.sock"
    path.unlink(missing_ok=True)
    xvnc = "Xvnc :1 -geometry 1280x800 -depth 24 -rfbport=-1 -rfbunixpath=/mnt/hand.sock -SecurityTypes=None -ac"
    script = f"{xvnc} & until [ -e /tmp/.X11-unix/X1 ]; do sleep 0.002; done; DISPLAY=:1 exec openbox"
    bwrap = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", str(root), "/", "--proc", "/proc"]
    bwrap += [
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
    started = time.perf_counter()
    process = subprocess.Popen([*bwrap, "sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return time_first_frames(
            started, lambda: RfbViewer(connect_unix(str(path))), lambda: child_processes(process.pid)[0]
        )
    finally:
        process.kill()
        process.wait(10)


def time_first_frames(
    started: float, connect: Callable[[], RfbViewer], first_process: Callable[[], int]
) -> tuple[float, float]:
    """Connect a viewer as soon as the desktop accepts it.

    Return the seconds until the first complete frame, and until the first one with a window manager.
    """
    deadline = time.monotonic() + 60
    while True:
        try:
            screen = connect()
            break
        except (OSError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
    with screen.stream:
        screen.read_frame()
        first = time.perf_counter() - started
        wait_for_window_manager(f"/proc/{first_process()}/root/tmp/.X11-unix/X1")
        screen.read_frame()
        return first, time.perf_counter() - started


def run_websockify(sandbox: ScreenSandbox) -> AbstractContextManager[tuple[str, int]]:
    """Run noVNC's own relay on the display of a sandbox; yield its address and process id."""
    program = shutil.which("websockify")
    if program is None:
        raise RuntimeError("websockify is not installed; apt install websockify")
    port = _free_port()
    return _run_relay(port, program, f"--unix-target={sandbox.display_socket}", f"127.0.0.1:{port}")


def run_bare_relay(sandbox: ScreenSandbox) -> AbstractContextManager[tuple[str, int]]:
    """Run the minimal relay on the display; yield its address and process id."""
    port = _free_port()
    return _run_relay(
        port, sys.executable, str(Path(__file__).with_name("bare_relay.py")), sandbox.display_socket, str(port)
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def _run_relay(port: int, *words: str) -> Iterator[tuple[str, int]]:
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

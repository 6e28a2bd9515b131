"""An Android device for tests: a real TCP server that speaks the protocol of adbd to the real `adb` program.

Commands run in a real shell, as on a device; Android's programs are shell functions that record their calls. So quoting
errors that would fail on a device fail here as well.
"""

from __future__ import annotations

import base64
import os
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CNXN, OPEN, OKAY, CLSE, WRTE, AUTH = (
    int.from_bytes(name, "little") for name in (b"CNXN", b"OPEN", b"OKAY", b"CLSE", b"WRTE", b"AUTH")
)
TOKEN, PUBLIC_KEY = 1, 3
BANNER = b"device::ro.product.name=fake;ro.product.model=Fake;ro.product.device=fake;features=shell_v2,cmd"
VERSION = 0x01000001
MAX_DATA = 256 * 1024
STDOUT, STDERR, EXIT = 1, 2, 3
SHELL_PROGRAMS = r"""
record() { for word; do printf '%s\037' "$word"; done >>"$DEVICE/calls"; printf '\n' >>"$DEVICE/calls"; }
input() {
  record input "$@"
  case $1 in
    text) printf %s "$2" | sed 's/%s/ /g' >>"$DEVICE/field" ;;
    keyevent)
      case $2 in 66) printf '\n' >>"$DEVICE/field" ;; 3) echo com.android.launcher/.Home >"$DEVICE/front" ;; esac ;;
  esac
}
am() {
  record am "$@"
  case $1 in
    start) case "$*" in
      *nowhere*) echo 'Error: Activity class {nowhere} does not exist.' ;;
      *) echo 'Starting: Intent'; echo org.browser/.Main >"$DEVICE/front" ;;
    esac ;;
    broadcast) printf %s "$6" | base64 -d >>"$DEVICE/field"; echo 'Broadcast completed: result=0' ;;
    force-stop) echo com.android.launcher/.Home >"$DEVICE/front" ;;
  esac
}
monkey() { record monkey "$@"; case $2 in *broken*) echo '** No activities found to run, monkey aborted.' ;;
  *) echo 'Events injected: 1'; echo "$2/.Main" >"$DEVICE/front" ;; esac; }
pm() { cat "$DEVICE/packages"; }
wm() { echo 'Physical size: 1080x2400'; }
dumpsys() { case "$*" in
  'window displays') echo "  init=1080x2400 420dpi cur=$(cat "$DEVICE/size") app=1080x2274" ;;
  *) echo "  mCurrentFocus=Window{1a2b u0 $(cat "$DEVICE/front")}" ;; esac; }
settings() { record settings "$@"; case "$*" in
  'put system user_rotation 1') echo 2400x1080 >"$DEVICE/size" ;;
  'put system user_rotation 0') echo 1080x2400 >"$DEVICE/size" ;;
  'get secure default_input_method') echo com.android.inputmethod/.Latin ;; esac; }
ime() { record ime "$@"; [ "$1" != list ] || cat "$DEVICE/keyboards"; }
screencap() { cat "$DEVICE/screen.png"; }
uiautomator() { cat "$DEVICE/ui.xml"; echo 'UI hierchary dumped to: /dev/tty'; }
"""
SCREENSHOT_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
UI_DUMP = """<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation="0">
<node class="android.widget.FrameLayout" text="" content-desc="" clickable="false" bounds="[0,0][1080,2400]">
<node class="android.widget.EditText" text="Search 搜索" resource-id="org.app:id/search" clickable="true" focused="true"
 bounds="[40,200][1040,320]" /><node class="android.widget.Button" text="" content-desc="Send &amp; go" clickable="true"
 bounds="[400,2000][680,2140]" /><node class="android.widget.TextView" text="" clickable="false" bounds="[0,0][9,9]" />
</node></hierarchy>"""


class FakeAndroidDevice:
    """State of the fake device and its received commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self.accepts_all_keys = True
        """Whether every key is accepted, as emulators do; otherwise a person must accept it on the screen."""
        self.awaiting_authorization: list[AdbConnection] = []
        self.connections: set[socket.socket] = set()
        self.max_connections = 0
        """Largest number of connections that were open at the same time."""
        self._server: FakeAdbServer | None = None
        self._thread: threading.Thread | None = None
        self.write("size", "1080x2400\n")
        self.write("front", "com.android.launcher/.Home\n")
        self.write("packages", "package:com.android.settings\npackage:org.app\npackage:org.apple\npackage:org.broken\n")
        self.write("keyboards", "com.android.inputmethod/.Latin\n")
        self.write("ui.xml", UI_DUMP)
        self.write("field", "")
        self.write("calls", "")
        (directory / "screen.png").write_bytes(SCREENSHOT_PNG)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    @property
    def field(self) -> str:
        """The text that was entered."""
        return (self.directory / "field").read_text()

    def calls(self, program: str) -> list[list[str]]:
        """Return the arguments of each call of a program."""
        lines = (self.directory / "calls").read_text().splitlines()
        words = [line.split("\x1f")[:-1] for line in lines]
        return [call[1:] for call in words if call and call[0] == program]

    def switch_on(self) -> None:
        """Start the server, at the same address as before."""
        handler = type("DeviceConnection", (AdbConnection,), {"device": self})
        port = int(self.address.rpartition(":")[2] or 0)
        self._server = FakeAdbServer(("127.0.0.1", port), handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def switch_off(self) -> None:
        """Stop the server and close every connection."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()
        self._server = None
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def accept(self) -> None:
        """Accept all keys, as tapping "allow" on the screen does."""
        self.accepts_all_keys = True
        for connection in self.awaiting_authorization:
            with suppress(OSError):
                connection.send_message(CNXN, VERSION, MAX_DATA, BANNER)

    def run(self, command: str) -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": os.environ["PATH"], "DEVICE": str(self.directory)}
        return subprocess.run(
            ["sh", "-c", f"{SHELL_PROGRAMS}\n{command}"], env=environment, capture_output=True, timeout=10
        )


class AdbConnection(socketserver.BaseRequestHandler):
    """Connection of one `adb` client. Streams are served one after the other, which is enough for commands."""

    device: FakeAndroidDevice

    def setup(self) -> None:
        self.device.connections.add(self.request)
        self.device.max_connections = max(self.device.max_connections, len(self.device.connections))

    def finish(self) -> None:
        self.device.connections.discard(self.request)

    def handle(self) -> None:
        try:
            while True:
                command, first_argument, _, data = self.receive_message()
                if command == AUTH and first_argument == PUBLIC_KEY:
                    self.device.awaiting_authorization.append(self)
                elif command in (CNXN, AUTH) and not self.device.accepts_all_keys:
                    self.send_message(AUTH, TOKEN, 0, os.urandom(20))
                elif command in (CNXN, AUTH):
                    self.send_message(CNXN, VERSION, MAX_DATA, BANNER)
                elif command == OPEN:
                    self.serve_stream(first_argument, data.rstrip(b"\0").decode())
        except (OSError, struct.error):
            return

    def serve_stream(self, remote: int, service: str) -> None:
        kind, _, command = service.partition(":")
        if not kind.startswith(("shell", "exec")):
            self.send_message(CLSE, 0, remote)
            return
        self.send_message(OKAY, 1, remote)
        done = self.device.run(command)
        if kind.startswith("shell,v2"):
            output = b"".join(
                struct.pack("<BI", number, len(data)) + data
                for number, data in ((STDOUT, done.stdout), (STDERR, done.stderr), (EXIT, bytes([done.returncode])))
            )
        else:
            output = done.stdout
        for start in range(0, len(output), MAX_DATA):
            self.send_message(WRTE, 1, remote, output[start : start + MAX_DATA])
            while self.receive_message()[0] != OKAY:
                self.send_message(OKAY, 1, remote)
        self.send_message(CLSE, 1, remote)

    def receive_message(self) -> tuple[int, int, int, bytes]:
        command, first_argument, second_argument, length, _, _ = struct.unpack("<6I", self.receive_exactly(24))
        return command, first_argument, second_argument, self.receive_exactly(length)

    def send_message(self, command: int, first_argument: int, second_argument: int, data: bytes = b"") -> None:
        head = struct.pack(
            "<6I", command, first_argument, second_argument, len(data), sum(data) & 0xFFFFFFFF, command ^ 0xFFFFFFFF
        )
        self.request.sendall(head + data)

    def receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.request.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data


class FakeAdbServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def run_fake_android() -> Iterator[FakeAndroidDevice]:
    """Run a fake device that `adb` can connect to at its `address`."""
    with tempfile.TemporaryDirectory(prefix="android-") as directory:
        device = FakeAndroidDevice(Path(directory))
        device.switch_on()
        try:
            yield device
        finally:
            device.switch_off()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

"""Runs commands on an Android device through the `adb` program."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import threading

from ..results import ToolError

LIMIT = 20.0
"""Seconds that a device gets for one command."""
MAX_OUTPUT = 64 * 1024 * 1024
MAX_WRONG = 64 * 1024
GLANCE = 0.2
"""Seconds to see whether a connection is closed at once, as one is that leads to a device which is not there."""
UNREACHABLE = 10.0
_LOST = ("device offline", "not found", "no devices", "closed", "device still authorizing")


class Bridge:
    """The way to one device; one in the network is connected to again when it was lost.

    `name` is what people call it, if that is not its address.
    """

    def __init__(self, device: str, name: str = "") -> None:
        self._device = device
        self._name = name or device
        self._remote = re.fullmatch(r"[^\s]+:\d+", device) is not None
        self._lock = threading.Lock()
        self._connected = not self._remote

    def shell(self, command: str, check: bool = True) -> str:
        """What a shell command says. Raises ToolError when it fails and `check` is set."""
        code, data, wrong = self._run(["shell", command])
        text = data.decode("utf-8", "replace")
        if check and code:
            said = (wrong.decode("utf-8", "replace") or text).strip()
            raise ToolError(f"the device refused `{command[:100]}`: {said[:300] or f'exit code {code}'}")
        return text

    def output(self, command: str) -> bytes:
        """What a command writes, byte for byte."""
        code, data, wrong = self._run(["exec-out", command])
        if code or not data:
            said = wrong.decode("utf-8", "replace").strip()
            raise ToolError(f"the device gave nothing for `{command[:100]}`{': ' + said[:300] if said else ''}")
        return data

    def _run(self, words: list[str]) -> tuple[int, bytes, bytes]:
        with self._lock:
            for again in (True, False):
                if not self._connected:
                    self._connect()
                code, data, wrong = self._adb(["-s", self._device, *words])
                said = wrong.decode("utf-8", "replace")
                if code and said.startswith(("error:", "adb:")):
                    if again and self._remote and any(sign in said for sign in _LOST):
                        self._connected = False
                        continue
                    raise ToolError(_explained(self._name, said))
                return code, data, wrong
        raise ToolError(_offline(self._name, "it cannot be reached"))

    def _connect(self) -> None:
        # Who was asked on the device whether to trust us may have agreed since; connecting anew would ask again.
        if self._adb(["-s", self._device, "get-state"])[1].strip() != b"device":
            self._glance()
            self._adb(["disconnect", self._device])
            _, data, wrong = self._adb(["connect", self._device])
            said = (data + wrong).decode("utf-8", "replace").strip()
            if "authenticate" in said:
                raise ToolError(_unauthorized(self._name))
            if "connected to" not in said:
                raise ToolError(_offline(self._name, said))
        self._connected = True

    def _glance(self) -> None:
        """Raise ToolError when nobody is there, for which `adb` takes ten seconds where a relay is on the way."""
        host, _, port = self._device.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), UNREACHABLE) as line:
                line.settimeout(GLANCE)
                gone = not line.recv(1)
        except socket.timeout:  # Not yet TimeoutError in Python 3.9.
            return
        except (OSError, OverflowError, UnicodeError) as error:
            raise ToolError(_offline(self._name, getattr(error, "strerror", "") or str(error))) from None
        if gone:
            raise ToolError(_offline(self._name, "the connection is closed at once"))

    def _adb(self, words: list[str]) -> tuple[int, bytes, bytes]:
        with tempfile.TemporaryFile() as wrong:
            try:
                process = subprocess.Popen(
                    ["adb", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=wrong
                )
            except FileNotFoundError:
                raise ToolError("the program adb is not in this box; use an image that has it") from None
            late = threading.Event()
            timer = threading.Timer(LIMIT, _give_up, (process, late))
            timer.start()
            with process:
                assert process.stdout is not None
                data = process.stdout.read(MAX_OUTPUT + 1)
                if len(data) > MAX_OUTPUT:
                    process.kill()
            timer.cancel()
            if late.is_set():
                raise ToolError(f"the device {self._name} did not answer within {LIMIT:g} s")
            if len(data) > MAX_OUTPUT:
                raise ToolError("the device gave more than anybody can read; try again")
            wrong.seek(0)
            return process.returncode, data, wrong.read(MAX_WRONG)


def _give_up(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


def _explained(name: str, said: str) -> str:
    if "unauthorized" in said or "authorizing" in said:
        return _unauthorized(name)
    if "not found" in said or "no devices" in said:
        return f"there is no device {name}: attach it, and set PADDOCK_ADB to its serial number or HOST:PORT"
    if "offline" in said or "closed" in said:
        return _offline(name, said.partition("error:")[2].strip())
    return f"the device {name} cannot be used: {said.strip()[:300]}"


def _unauthorized(name: str) -> str:
    return f"the device {name} is unauthorized: accept the question on its screen, then try again"


def _offline(name: str, said: str) -> str:
    why = f" ({said[:200]})" if said else ""
    return (
        f"the device {name} is offline{why}: see to it that it is on and ADB over network is on there, then try again"
    )

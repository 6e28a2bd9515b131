"""Runs commands on an Android device through the `adb` program."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import threading

from ..tool_result import ToolError

COMMAND_TIMEOUT = 20.0
"""Seconds a device gets for one command."""
MAX_OUTPUT = 64 * 1024 * 1024
MAX_ERROR_OUTPUT = 64 * 1024
PROBE_SECONDS = 0.2
"""Seconds to wait whether the connection is closed at once, as by a relay without a device."""
CONNECT_TIMEOUT = 10.0
_LOST = ("device offline", "not found", "no devices", "closed", "device still authorizing")


class AdbClient:
    """Runs adb commands on one device; reconnects to a network device after a lost connection.

    `name` is used in messages instead of the device's address.
    """

    def __init__(self, device: str, name: str = "") -> None:
        self._device = device
        self._name = name or device
        self._remote = re.fullmatch(r"[^\s]+:\d+", device) is not None
        self._lock = threading.Lock()
        self._connected = not self._remote

    def run_shell(self, command: str, check: bool = True) -> str:
        """Run a shell command and return its output. Raises ToolError if it fails and `check` is set."""
        code, data, error_output = self._run(["shell", command])
        text = data.decode("utf-8", "replace")
        if check and code:
            message = (error_output.decode("utf-8", "replace") or text).strip()
            raise ToolError(f"the device refused `{command[:100]}`: {message[:300] or f'exit code {code}'}")
        return text

    def read_output(self, command: str) -> bytes:
        """Run a command and return its raw output."""
        code, data, error_output = self._run(["exec-out", command])
        if code or not data:
            message = error_output.decode("utf-8", "replace").strip()
            raise ToolError(
                f"the device returned no output for `{command[:100]}`{': ' + message[:300] if message else ''}"
            )
        return data

    def _run(self, words: list[str]) -> tuple[int, bytes, bytes]:
        with self._lock:
            for again in (True, False):
                if not self._connected:
                    self._connect()
                code, data, error_output = self._run_adb(["-s", self._device, *words])
                message = error_output.decode("utf-8", "replace")
                if code and message.startswith(("error:", "adb:")):
                    if again and self._remote and any(sign in message for sign in _LOST):
                        self._connected = False
                        continue
                    raise ToolError(_explain_error(self._name, message))
                return code, data, error_output
        raise ToolError(_offline_message(self._name, "it cannot be reached"))

    def _connect(self) -> None:
        # The user may have accepted the connection on the device; connecting again would ask once more.
        if self._run_adb(["-s", self._device, "get-state"])[1].strip() != b"device":
            self._check_reachable()
            self._run_adb(["disconnect", self._device])
            _, data, error_output = self._run_adb(["connect", self._device])
            message = (data + error_output).decode("utf-8", "replace").strip()
            if "authenticate" in message:
                raise ToolError(_unauthorized_message(self._name))
            if "connected to" not in message:
                raise ToolError(_offline_message(self._name, message))
        self._connected = True

    def _check_reachable(self) -> None:
        """Raise ToolError if the device is unreachable; `adb` takes ten seconds for that behind a relay."""
        host, _, port = self._device.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT) as line:
                line.settimeout(PROBE_SECONDS)
                closed = not line.recv(1)
        except socket.timeout:  # Not yet TimeoutError in Python 3.9.
            return
        except (OSError, OverflowError, UnicodeError) as error:
            raise ToolError(_offline_message(self._name, getattr(error, "strerror", "") or str(error))) from None
        if closed:
            raise ToolError(_offline_message(self._name, "the connection is closed at once"))

    def _run_adb(self, words: list[str]) -> tuple[int, bytes, bytes]:
        with tempfile.TemporaryFile() as error_output:
            try:
                process = subprocess.Popen(
                    ["adb", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=error_output
                )
            except FileNotFoundError:
                raise ToolError("the adb program is not installed in this sandbox; use an image that has it") from None
            late = threading.Event()
            timer = threading.Timer(COMMAND_TIMEOUT, _kill_late, (process, late))
            timer.start()
            with process:
                assert process.stdout is not None
                data = process.stdout.read(MAX_OUTPUT + 1)
                if len(data) > MAX_OUTPUT:
                    process.kill()
            timer.cancel()
            if late.is_set():
                raise ToolError(f"the device {self._name} did not answer within {COMMAND_TIMEOUT:g} s")
            if len(data) > MAX_OUTPUT:
                raise ToolError("the device returned too much output; try again")
            error_output.seek(0)
            return process.returncode, data, error_output.read(MAX_ERROR_OUTPUT)


def _kill_late(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


def _explain_error(name: str, message: str) -> str:
    if "unauthorized" in message or "authorizing" in message:
        return _unauthorized_message(name)
    if "not found" in message or "no devices" in message:
        return f"there is no device {name}: attach it, and set PADDOCK_ADB to its serial number or HOST:PORT"
    if "offline" in message or "closed" in message:
        return _offline_message(name, message.partition("error:")[2].strip())
    return f"the device {name} cannot be used: {message.strip()[:300]}"


def _unauthorized_message(name: str) -> str:
    return f"the device {name} is unauthorized: accept the request on its screen, then try again"


def _offline_message(name: str, message: str) -> str:
    detail = f" ({message[:200]})" if message else ""
    advice = "make sure that it is switched on and that ADB over network is enabled, then try again"
    return f"the device {name} is offline{detail}: {advice}"

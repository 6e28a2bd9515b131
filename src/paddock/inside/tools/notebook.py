"""Python cells: a process that keeps its variables, and what came of each cell."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

from .callers import HungUp, Turn
from .results import Result, ToolError, readable, shorten
from .shell import Kept, end_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .callers import Caller
    from .context import Context

MAX_IMAGES = 8
MAX_IMAGE = 4 * 1024 * 1024
MAX_MESSAGE = 64 * 1024 * 1024
GRACE = 3.0
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from inside.tools.cells import serve; serve()"


class Notebook:
    """One Python process, started by the first cell; cells run one after another."""

    def __init__(self) -> None:
        self._turn = Turn()
        self._process: Any = None
        self._channel: socket.socket | None = None
        self._pending = b""

    def run(self, context: Context, code: str, timeout: float, restart: bool) -> Result:
        deadline = time.monotonic() + timeout
        if not self._turn.take(context.caller, timeout):
            raise ToolError("another cell is still running; wait for it or give it a shorter timeout")
        try:
            if restart:
                self._end()
            if self._process is None or self._process.poll() is not None:
                self._start(context.cwd)
            return self._execute(code, deadline, timeout, context.caller)
        finally:
            self._turn.give_back()

    def _start(self, cwd: str) -> None:
        from ..kernel import CHANNEL

        self._end()
        ours, theirs = socket.socketpair()
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        with theirs:
            self._process = subprocess.Popen(
                [_python(), "-c", _BOOT, package],
                cwd=cwd,
                env={**os.environ, CHANNEL: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._channel, self._pending = ours, b""

    def _end(self) -> None:
        if self._process is not None:
            end_group(self._process)
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _execute(self, code: str, deadline: float, timeout: float, caller: Caller) -> Result:
        assert self._channel is not None
        stdout, stdout_writer = os.pipe()
        stderr, stderr_writer = os.pipe()
        cell = _Cell({stdout: Kept(), stderr: Kept()}, caller)
        message = json.dumps({"code": code}).encode("ascii") + b"\n"
        try:
            try:
                socket.send_fds(self._channel, [message[:1024]], [stdout_writer, stderr_writer])
                self._channel.sendall(message[1024:])
            except OSError:
                pass  # The process just died; reading from it says so.
            finally:
                os.close(stdout_writer)
                os.close(stderr_writer)
            self._follow(cell, deadline, caller)
        finally:
            os.close(stdout)
            os.close(stderr)
        if not cell.done:
            self._end()
        if cell.abandoned:
            raise HungUp
        return cell.result(timeout)

    def _follow(self, cell: _Cell, deadline: float, caller: Caller) -> None:
        """Gather what the cell says and shows; when its time is over or nobody waits, interrupt it and then end it."""
        assert self._channel is not None
        channel = self._channel.fileno()
        poller = select.poll()
        for descriptor in (channel, *cell.outputs):
            poller.register(descriptor, select.POLLIN)
            os.set_blocking(descriptor, descriptor == channel)
        caller.join(poller)
        interrupted = False
        while not cell.done:
            if (cell.timed_out or cell.abandoned) and cell.begun and not interrupted:
                interrupted = True
                os.killpg(self._process.pid, signal.SIGINT)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                if cell.timed_out or cell.abandoned:
                    return
                cell.timed_out = True
                deadline = time.monotonic() + GRACE
                continue
            for descriptor, _ in poller.poll(caller.soon(min(remaining, 60.0)) * 1000 + 1):
                if descriptor == channel:
                    data = self._channel.recv(1 << 20)
                    if not data or len(self._pending) > MAX_MESSAGE:
                        return
                    *lines, self._pending = (self._pending + data).split(b"\n")
                    for line in lines:
                        cell.take(json.loads(line))
                elif descriptor == caller.fileno():
                    poller.unregister(descriptor)
                    cell.abandoned = True
                    if not cell.timed_out:
                        deadline = time.monotonic() + GRACE
                elif not cell.read(descriptor):
                    poller.unregister(descriptor)
        cell.drain()


class _Cell:
    """What one cell printed, showed and ended with."""

    def __init__(self, outputs: dict[int, Kept], caller: Caller) -> None:
        self.outputs = outputs
        self.begun = False
        self.done = False
        self.timed_out = False
        self.abandoned = False
        self._caller = caller
        self._values: list[str] = []
        self._images: list[tuple[bytes, str]] = []
        self._error: dict[str, Any] | None = None

    def read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        self.outputs[descriptor].add(data)
        self._caller.hear(descriptor, data)
        return bool(data)

    def drain(self) -> None:
        """Read what was printed before the end was told; a bounded number of times, as others may go on printing."""
        for descriptor in self.outputs:
            for _ in range(1024):
                if not select.select([descriptor], [], [], 0)[0] or not self.read(descriptor):
                    break

    def take(self, message: dict[str, Any]) -> None:
        if "result" in message:
            self._show(message["result"])
        elif "error" in message:
            self._error = message["error"]
        self.begun = self.begun or "count" in message
        self.done = self.done or "done" in message

    def _show(self, forms: dict[str, Any]) -> None:
        from binascii import a2b_base64

        for mime in ("image/png", "image/jpeg"):
            data = forms.get(mime)
            if isinstance(data, str) and len(data) <= MAX_IMAGE and len(self._images) < MAX_IMAGES:
                self._images.append((a2b_base64(data), mime))
                break
        self._values.append(str(forms.get("text/plain", "")))

    def result(self, timeout: float) -> Result:
        stdout, stderr = (output.text() for output in self.outputs.values())
        value = shorten("\n".join(self._values))
        structured: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "value": readable(value)}
        parts = [stdout, f"[stderr]\n{stderr}" if stderr else "", value]
        failed = self._error is not None or not self.done or self.timed_out
        if self.timed_out:
            parts.append(f"[interrupted after {timeout:g} seconds, as timeout says]")
        if self._error is not None:
            structured["error"] = {"name": self._error["ename"], "message": shorten(self._error["evalue"], 10_000)}
            parts.append(shorten("\n".join(self._error["traceback"]), 20_000))
        elif not self.done:
            structured["error"] = {"name": "KernelDied", "message": "the Python process ended"}
            parts.append("[the Python process ended; its variables are lost, the next cell starts anew]")
        text = "\n".join(part.rstrip("\n") for part in parts if part)
        return Result(text or "[no output]", images=self._images, structured=structured, error=failed)


def _python() -> str:
    import shutil

    return shutil.which("python3") or sys.executable

"""Runs Python cells in a process that keeps its variables."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

from ..caller_connection import CallerDisconnected, FairLock
from ..tool_result import ToolCallResult, ToolError, omit_middle_of_text, replace_surrogates
from .program_runner import HeadAndTailBuffer, terminate_process_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..caller_connection import CallerConnection
    from ..tool_context import ToolContext

MAX_IMAGES = 8
MAX_IMAGE = 4 * 1024 * 1024
MAX_MESSAGE = 64 * 1024 * 1024
INTERRUPT_GRACE = 3.0
_KERNEL_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv.pop()); from inside.tools.workspace import notebook_kernel; "
    "notebook_kernel.serve_notebook_kernel()"
)


class PythonNotebook:
    """One Python process, started by the first cell; cells run one at a time."""

    def __init__(self) -> None:
        self._cell_lock = FairLock()
        self._process: Any = None
        self._channel: socket.socket | None = None
        self._pending = b""

    def run_cell(self, context: ToolContext, code: str, timeout: float, restart: bool) -> ToolCallResult:
        deadline = time.monotonic() + timeout
        if not self._cell_lock.acquire(context.caller, timeout):
            raise ToolError("another cell is still running; wait for it or use shorter timeouts")
        try:
            if restart:
                self._end_process()
            if self._process is None or self._process.poll() is not None:
                self._start_process(context.cwd)
            return self._execute(code, deadline, timeout, context.caller)
        finally:
            self._cell_lock.release()

    def _start_process(self, cwd: str) -> None:
        from ...exec.python_kernel import CHANNEL_VARIABLE

        self._end_process()
        own_socket, child_socket = socket.socketpair()
        package = os.path.abspath(__file__).rpartition("/inside/")[0]
        with child_socket:
            self._process = subprocess.Popen(
                [_find_python(), "-c", _KERNEL_SCRIPT, package],
                cwd=cwd,
                env={**os.environ, CHANNEL_VARIABLE: str(child_socket.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(child_socket.fileno(),),
                start_new_session=True,
            )
        self._channel, self._pending = own_socket, b""

    def _end_process(self) -> None:
        if self._process is not None:
            terminate_process_group(self._process)
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _execute(self, code: str, deadline: float, timeout: float, caller: CallerConnection) -> ToolCallResult:
        assert self._channel is not None
        stdout, stdout_writer = os.pipe()
        stderr, stderr_writer = os.pipe()
        cell = _Cell({stdout: HeadAndTailBuffer(), stderr: HeadAndTailBuffer()}, caller)
        message = json.dumps({"code": code}).encode("ascii") + b"\n"
        try:
            try:
                socket.send_fds(self._channel, [message[:1024]], [stdout_writer, stderr_writer])
                self._channel.sendall(message[1024:])
            except OSError:
                pass  # The process just died; reading from it reports that.
            finally:
                os.close(stdout_writer)
                os.close(stderr_writer)
            self._follow_cell(cell, deadline, caller)
        finally:
            os.close(stdout)
            os.close(stderr)
        if not cell.done:
            self._end_process()
        if cell.disconnected:
            raise CallerDisconnected
        return cell.result(timeout)

    def _follow_cell(self, cell: _Cell, deadline: float, caller: CallerConnection) -> None:
        """Collect the cell's output; interrupt it on timeout or disconnection, and return if it does not stop."""
        assert self._channel is not None
        channel = self._channel.fileno()
        poller = select.poll()
        for descriptor in (channel, *cell.outputs):
            poller.register(descriptor, select.POLLIN)
            os.set_blocking(descriptor, descriptor == channel)
        caller.register_with(poller)
        interrupted = False
        while not cell.done:
            if (cell.timed_out or cell.disconnected) and cell.has_started and not interrupted:
                interrupted = True
                os.killpg(self._process.pid, signal.SIGINT)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                if cell.timed_out or cell.disconnected:
                    return
                cell.timed_out = True
                deadline = time.monotonic() + INTERRUPT_GRACE
                continue
            for descriptor, _ in poller.poll(caller.flush_output(min(remaining, 60.0)) * 1000 + 1):
                if descriptor == channel:
                    data = self._channel.recv(1 << 20)
                    if not data or len(self._pending) > MAX_MESSAGE:
                        return
                    *lines, self._pending = (self._pending + data).split(b"\n")
                    for line in lines:
                        cell.handle_message(json.loads(line))
                elif descriptor == caller.fileno():
                    poller.unregister(descriptor)
                    cell.disconnected = True
                    if not cell.timed_out:
                        deadline = time.monotonic() + INTERRUPT_GRACE
                elif not cell.read(descriptor):
                    poller.unregister(descriptor)
        cell.drain()


class _Cell:
    """Output, values, images and error of one cell."""

    def __init__(self, outputs: dict[int, HeadAndTailBuffer], caller: CallerConnection) -> None:
        self.outputs = outputs
        self.has_started = False
        self.done = False
        self.timed_out = False
        self.disconnected = False
        self._caller = caller
        self._values: list[str] = []
        self._images: list[tuple[bytes, str]] = []
        self._error: dict[str, Any] | None = None

    def read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        self.outputs[descriptor].append(data)
        self._caller.receive_output(descriptor, data)
        return bool(data)

    def drain(self) -> None:
        """Read output written before the end of the cell; bounded, because subprocesses may go on printing."""
        for descriptor in self.outputs:
            for _ in range(1024):
                if not select.select([descriptor], [], [], 0)[0] or not self.read(descriptor):
                    break

    def handle_message(self, message: dict[str, Any]) -> None:
        if "result" in message:
            self._add_value(message["result"])
        elif "error" in message:
            self._error = message["error"]
        self.has_started = self.has_started or "count" in message
        self.done = self.done or "done" in message

    def _add_value(self, representations: dict[str, Any]) -> None:
        from binascii import a2b_base64

        for mime in ("image/png", "image/jpeg"):
            data = representations.get(mime)
            if isinstance(data, str) and len(data) <= MAX_IMAGE and len(self._images) < MAX_IMAGES:
                self._images.append((a2b_base64(data), mime))
                break
        self._values.append(str(representations.get("text/plain", "")))

    def result(self, timeout: float) -> ToolCallResult:
        stdout, stderr = (output.text() for output in self.outputs.values())
        value = omit_middle_of_text("\n".join(self._values))
        structured: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "value": replace_surrogates(value)}
        parts = [stdout, f"[stderr]\n{stderr}" if stderr else "", value]
        failed = self._error is not None or not self.done or self.timed_out
        if self.timed_out:
            parts.append(f"[interrupted after {timeout:g} seconds (timeout)]")
        if self._error is not None:
            structured["error"] = {
                "name": self._error["ename"],
                "message": omit_middle_of_text(self._error["evalue"], 10_000),
            }
            parts.append(omit_middle_of_text("\n".join(self._error["traceback"]), 20_000))
        elif not self.done:
            structured["error"] = {"name": "KernelDied", "message": "the Python process ended"}
            parts.append("[the Python process ended; its variables are lost, the next cell starts a new process]")
        text = "\n".join(part.rstrip("\n") for part in parts if part)
        return ToolCallResult(text or "[no output]", images=self._images, structured=structured, error=failed)


def _find_python() -> str:
    import shutil

    return shutil.which("python3") or sys.executable

"""Python contexts: starts the kernel process and runs cells in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys

from ..errors import not_supported_error
from ..file_descriptors import OutputPipes
from .execution_events import execution_completed_event, execution_error_event, format_execution_event
from .interpreter import CodeExecution, Interpreter
from .python_kernel import CHANNEL_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class KernelExecution(CodeExecution):
    def __init__(self, kernel: PythonInterpreter, channel: int, exited: int) -> None:
        super().__init__(channel, exited)
        self._kernel = kernel
        self._channel = channel
        self._received = b""
        self.has_started = False
        self._done = False
        self._error: dict[str, Any] | None = None

    def feed(self, descriptor: int, data: bytes) -> bytes:
        if descriptor != self._channel or not data:
            self.over = True
            return b""
        *lines, self._received = (self._received + data).split(b"\n")
        return b"".join(self._translate(json.loads(line)) for line in lines)

    def ended_event(self) -> bytes:
        if self._error is not None:
            if self.reason:
                self._error = {**self._error, "evalue": self.reason}
            return execution_error_event(
                self.duration, self._error["ename"], self._error["evalue"], self._error["traceback"]
            )
        if not self._done:
            child = self._kernel.child
            exit_code = child.wait(5.0) if child is not None else None
            reason = self.reason or f"the kernel died with exit code {exit_code}"
            return execution_error_event(
                self.duration, "KernelDied", f"{reason}; its variables are lost, the next run starts a new kernel", []
            )
        return execution_completed_event(self.duration)

    def _translate(self, message: dict[str, Any]) -> bytes:
        if "count" in message:
            self.has_started = True
            return format_execution_event("execution_count", execution_count=message["count"])
        if "result" in message:
            representations = message["result"]
            return format_execution_event("result", results={**representations, "text": representations["text/plain"]})
        if "error" in message:
            self._error = message["error"]
        self._done = self.over = "done" in message
        return b""


class PythonInterpreter(Interpreter):
    """Interpreter that runs Python cells in a kernel process."""

    _socket: socket.socket | None = None

    def _start_process(self) -> None:
        variables = self._environment.variables({})
        python = shutil.which("python3", path=variables["PATH"]) or sys.executable
        if not python:
            raise not_supported_error("Python contexts need python3, which is not on the sandbox's PATH")
        self._socket, child_socket = socket.socketpair()
        # Block interrupts until the kernel has installed its handler; an early one would kill it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with child_socket:
                self.child = self._processes.spawn(
                    [python, os.path.abspath(sys.argv[0]), "--kernel"],
                    cwd=self._cwd,
                    env={**variables, CHANNEL_VARIABLE: str(child_socket.fileno())},
                    marker=self.id,
                    pass_fds=(child_socket.fileno(),),
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _discard_process(self) -> None:
        if self.child is not None and self._socket is not None:
            self.child.close()
            self._socket.close()
            self.child = None

    def _begin(self, code: str, cwd: str, pipes: OutputPipes) -> CodeExecution:
        assert self.child is not None and self._socket is not None
        message = json.dumps({"code": code}).encode("ascii") + b"\n"
        try:
            socket.send_fds(self._socket, [message[:1024]], [pipes.stdout_writer, pipes.stderr_writer])
            self._socket.sendall(message[1024:])
        except OSError:
            pass  # The kernel just died; its exit is reported by the execution.
        pipes.close_writers()
        return KernelExecution(self, self._socket.fileno(), self.child.exited_fd)

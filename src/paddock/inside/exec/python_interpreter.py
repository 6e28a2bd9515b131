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
from .interpreter import CodeExecution, Interpreter
from .kernel_execution import KernelExecution
from .python_kernel import CHANNEL_VARIABLE


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

"""Base of bash sessions and code contexts: a process that keeps its state between executions."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack

from ..errors import ApiError
from ..file_descriptors import OutputPipes, close_descriptors, discard_output
from ..http.http11 import ChunkedWriter
from .environment import ProcessEnvironment
from .execution_events import OutputEventEncoder, format_execution_event
from .output_relay import CompletionWatcher, OutputRelay
from .processes import KILL_GRACE_SECONDS, ChildProcess, ProcessRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


START_TIMEOUT = 15.0
"""Seconds an interpreter that is still starting gets to react to an interrupt before it is killed."""

CLOSE_TIMEOUT = 10.0
"""Seconds a terminated process gets to end; its descriptors stay open otherwise."""


class CodeExecution(CompletionWatcher):
    """One run of a piece of code; its events come from the interpreter's control channel."""

    def __init__(self, *descriptors: int) -> None:
        super().__init__(*descriptors)
        self.id = os.urandom(16).hex()
        self.started = time.monotonic()
        self.reason = ""
        self.has_started = True
        """True if the interpreter has started to run the code."""

    def ended_event(self) -> bytes:
        raise NotImplementedError

    @property
    def duration(self) -> float:
        return time.monotonic() - self.started


class Interpreter:
    """Runs one execution at a time; a dead process is restarted by the next execution."""

    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, cwd: str) -> None:
        self._processes = processes
        self._environment = environment
        self._cwd = cwd
        self._busy = threading.Lock()
        self._execution: CodeExecution | None = None
        self.id = os.urandom(16).hex()
        self.child: ChildProcess | None = None

    def start_execution(self, code: str, timeout_ms: int | None, cwd: str = "") -> Callable[[ChunkedWriter], None]:
        """Reserve the interpreter; the returned function runs `code` and streams its events."""
        if cwd:
            cwd = self._environment.working_directory(cwd, self._environment.variables({}))
        if not self._busy.acquire(blocking=False):
            raise ApiError(409, "SESSION_BUSY", f"{self.id!r} is still running; interrupt it or wait")
        try:
            if self.child is None or self.child.exit_code is not None:
                self._discard_process()
                self._start_process()
        except BaseException:
            self._busy.release()
            raise
        return lambda chunks: self._run(code, timeout_ms, cwd, chunks)

    def has_execution(self, identifier: str) -> bool:
        execution = self._execution
        return identifier == self.id or (execution is not None and identifier == execution.id)

    def interrupt(self) -> None:
        """Interrupt the running execution; kill the process if it does not react."""
        execution, child = self._execution, self.child
        if execution is not None and child is not None:
            self._send_interrupt(execution, child)
            self._processes.threads.run(lambda: self._repeat_interrupt(execution, child))

    def close(self) -> None:
        child = self.child
        if child is not None:
            self._processes.terminate(child)
            self._processes.threads.run(lambda: self._close_descriptors_of(child))

    def _close_descriptors_of(self, child: ChildProcess) -> None:
        if child.wait(CLOSE_TIMEOUT) is None:
            return
        with self._busy:
            if self.child is child:
                self._discard_process()

    def _run(self, code: str, timeout_ms: int | None, cwd: str, chunks: ChunkedWriter) -> None:
        pipes = OutputPipes()
        left_open: list[int] = []
        busy = ExitStack()
        busy.callback(self._release, pipes)
        try:
            execution = self._execution = self._begin(code, cwd, pipes)
            deadline = execution.started + timeout_ms / 1000 if timeout_ms else None
            relay = OutputRelay(chunks, execution, deadline)
            relay.add_output(pipes.stdout, OutputEventEncoder("stdout"))
            relay.add_output(pipes.stderr, OutputEventEncoder("stderr"))
            relay.on_client_gone = self.interrupt
            relay.on_deadline = lambda: self._handle_timeout(execution, timeout_ms)
            relay.queue_events(format_execution_event("init", text=execution.id))
            connected = relay.run()
            relay.queue_events(execution.ended_event())
            busy.close()  # A client that reads the end event may start the next execution at once.
            if not connected or not relay.send_queued():
                chunks.client.abort()
            left_open = relay.open_outputs
        finally:
            busy.close()
            close_descriptors(fd for fd in pipes.readers if fd not in left_open)
            if left_open:
                self._leave_outputs(left_open)

    def _release(self, pipes: OutputPipes) -> None:
        self._execution = None
        pipes.unlink_fifos()
        self._busy.release()

    def _handle_timeout(self, execution: CodeExecution, timeout_ms: int | None) -> None:
        execution.reason = f"timed out after {timeout_ms} ms"
        self.interrupt()

    def _repeat_interrupt(self, execution: CodeExecution, child: ChildProcess) -> None:
        """Repeat the interrupt, because a signal between two programs of a shell reaches neither; then kill."""
        attempt = 0
        while attempt * 0.05 < (KILL_GRACE_SECONDS if execution.has_started else START_TIMEOUT):
            attempt += 1
            if execution.over or child.wait(0.05) is not None:
                return
            if attempt % 10 == 0:
                self._send_interrupt(execution, child)
        if not execution.over:
            self._processes.terminate(child)

    def _send_interrupt(self, execution: CodeExecution, child: ChildProcess) -> None:
        child.signal(signal.SIGINT)

    def _leave_outputs(self, descriptors: list[int]) -> None:
        """Handle outputs that are still open after an execution; programs that it left running may write there."""
        self._processes.threads.run(lambda: discard_output(descriptors))

    def _start_process(self) -> None:
        raise NotImplementedError

    def _discard_process(self) -> None:
        raise NotImplementedError

    def _begin(self, code: str, cwd: str, pipes: OutputPipes) -> CodeExecution:
        """Send `code` to the process, with the write ends of `pipes` as its outputs."""
        raise NotImplementedError

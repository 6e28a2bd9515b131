"""What bash sessions and code contexts share: a process that keeps its state between executions."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack

from .environment import Environment
from .errors import ApiError
from .events import OutputEvents, event
from .http import Chunks
from .pipes import OutputPipes, close_all, discard
from .processes import GRACE, Child, Processes
from .relay import Ending, Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


STARTING = 15.0
"""Seconds that an interpreter may take to start before one that does not listen is ended."""


class Execution(Ending):
    """One piece of code being run; its events come from the interpreter's control channel."""

    def __init__(self, *descriptors: int) -> None:
        super().__init__(*descriptors)
        self.id = os.urandom(16).hex()
        self.started = time.monotonic()
        self.reason = ""
        self.begun = True
        """Whether the interpreter is known to have come so far as to run it."""

    def last_event(self) -> bytes:
        raise NotImplementedError

    @property
    def duration(self) -> float:
        return time.monotonic() - self.started


class Interpreter:
    """Runs one execution at a time; a process that died is started anew by the next one."""

    def __init__(self, processes: Processes, environment: Environment, cwd: str) -> None:
        self._processes = processes
        self._environment = environment
        self._cwd = cwd
        self._busy = threading.Lock()
        self._execution: Execution | None = None
        self.id = os.urandom(16).hex()
        self.child: Child | None = None

    def prepare(self, code: str, timeout_ms: int | None, cwd: str = "") -> Callable[[Chunks], None]:
        """Reserve the interpreter; the result runs `code` and streams its events."""
        if cwd:
            cwd = self._environment.directory(cwd, self._environment.variables({}))
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

    def runs(self, identifier: str) -> bool:
        execution = self._execution
        return identifier == self.id or (execution is not None and identifier == execution.id)

    def interrupt(self) -> None:
        """Stop what runs, with force when it does not listen."""
        execution, child = self._execution, self.child
        if execution is not None and child is not None:
            child.signal(signal.SIGINT)
            threading.Thread(target=self._insist, args=(execution, child), daemon=True).start()

    def close(self) -> None:
        if self.child is not None:
            self._processes.terminate(self.child)

    def _run(self, code: str, timeout_ms: int | None, cwd: str, chunks: Chunks) -> None:
        pipes = OutputPipes()
        left_open: list[int] = []
        busy = ExitStack()
        busy.callback(self._free, pipes)
        try:
            execution = self._execution = self._begin(code, cwd, pipes)
            deadline = execution.started + timeout_ms / 1000 if timeout_ms else None
            relay = Relay(chunks, execution, deadline)
            relay.add(pipes.stdout, OutputEvents("stdout"))
            relay.add(pipes.stderr, OutputEvents("stderr"))
            relay.on_gone = self.interrupt
            relay.on_deadline = lambda: self._time_out(execution, timeout_ms)
            relay.push(event("init", text=execution.id))
            connected = relay.run()
            relay.push(execution.last_event())
            busy.close()  # Whoever reads that it is over may run the next thing at once.
            if not connected or not relay.deliver():
                chunks.wire.abort()
            left_open = relay.open_outputs
        finally:
            busy.close()
            close_all(fd for fd in pipes.readers if fd not in left_open)
            if left_open:
                threading.Thread(target=discard, args=(left_open,), daemon=True).start()

    def _free(self, pipes: OutputPipes) -> None:
        self._execution = None
        pipes.forget_names()
        self._busy.release()

    def _time_out(self, execution: Execution, timeout_ms: int | None) -> None:
        execution.reason = f"timed out after {timeout_ms} ms"
        self.interrupt()

    def _insist(self, execution: Execution, child: Child) -> None:
        """Ask again: a signal that falls between two programs of a shell is lost on both."""
        attempt = 0
        while attempt * 0.05 < (GRACE if execution.begun else STARTING):
            attempt += 1
            if execution.over or child.wait(0.05) is not None:
                return
            if attempt % 10 == 0:
                child.signal(signal.SIGINT)
        if not execution.over:
            self._processes.terminate(child)

    def _start_process(self) -> None:
        raise NotImplementedError

    def _discard_process(self) -> None:
        raise NotImplementedError

    def _begin(self, code: str, cwd: str, pipes: OutputPipes) -> Execution:
        """Hand `code` to the process, and the write ends of `pipes` as its outputs."""
        raise NotImplementedError

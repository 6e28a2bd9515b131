"""One cell in a kernel: the process of a code context that reports results and errors as lines of JSON."""

from __future__ import annotations

import json

from .execution_events import execution_completed_event, execution_error_event, format_execution_event
from .interpreter import CodeExecution, Interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_REPLY_BYTES = 64 * 1024 * 1024


class KernelExecution(CodeExecution):
    """Translates the replies that a kernel writes to `channel` into events."""

    def __init__(self, kernel: Interpreter, channel: int, exited: int) -> None:
        super().__init__(channel, exited)
        self._kernel = kernel
        self._channel = channel
        self._received = bytearray()
        self.has_started = False
        self._done = False
        self._error: dict[str, Any] | None = None

    def feed(self, descriptor: int, data: bytes) -> bytes:
        if descriptor != self._channel or not data:
            self.over = True
            return b""
        self._received += data
        lines: list[bytes] = []
        if b"\n" in data:
            *complete, rest = self._received.split(b"\n")
            lines, self._received = [bytes(line) for line in complete], rest
        try:
            if len(self._received) > MAX_REPLY_BYTES:
                raise ValueError("a reply is too long")
            return b"".join(self._translate(json.loads(line)) for line in lines)
        except (ValueError, KeyError, TypeError) as error:
            self.reason = f"the kernel sent an invalid reply ({error})"
            self.over = True
            self._kernel.close()
            return b""

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
        if not isinstance(message, dict):
            raise TypeError("not an object")
        if "count" in message:
            self.has_started = True
            return format_execution_event("execution_count", execution_count=message["count"])
        if "result" in message:
            representations = message["result"]
            return format_execution_event("result", results={**representations, "text": representations["text/plain"]})
        if "error" in message:
            self._error = {name: message["error"][name] for name in ("ename", "evalue", "traceback")}
        self._done = self.over = "done" in message
        return b""

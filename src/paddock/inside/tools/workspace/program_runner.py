"""Runs a program to its end, with bounded output, a timeout, and cancellation when the client disconnects."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from ..tool_result import ToolCallResult, replace_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..caller_connection import CallerConnection

MAX_OUTPUT = 48 * 1024
"""Bytes kept of each of the two outputs: the beginning and the end."""
DRAIN_SECONDS = 0.05
"""Seconds in which the rest of the output is read from the pipes after a program has ended."""
MAX_WATCHED_PROCESSES = 64
"""Processes of a group that are waited for when it is terminated."""


def run_program(
    caller: CallerConnection, argv: list[str], directory: str, timeout: float, stdin: bytes = b"", env: Any = None
) -> ToolCallResult:
    """Run a program; kill its process group on timeout or when the client disconnects."""
    started = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=directory,
        env=env,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    outputs = {process.stdout.fileno(): HeadAndTailBuffer(), process.stderr.fileno(): HeadAndTailBuffer()}
    stdout, stderr = outputs.values()
    try:
        timed_out = _follow_program(process, outputs, stdin, started + timeout, caller)
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
    seconds = round(time.monotonic() - started, 3)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    output_text, error_text = stdout.text(), stderr.text()
    structured = {"exit_code": code, "stdout": output_text, "stderr": error_text, "seconds": seconds}
    structured.update(timed_out=timed_out, cut=stdout.is_cut or stderr.is_cut)
    parts = [output_text]
    if error_text:
        parts.append(f"[stderr]\n{error_text}")
    if timed_out:
        parts.append(f"[killed after {timeout:g} seconds (timeout)]")
    elif code:
        parts.append(f"[exit code {code}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return ToolCallResult(text or "[no output]", structured=structured, error=timed_out)


class HeadAndTailBuffer:
    """Keeps the beginning and the end of output of any length."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    @property
    def is_cut(self) -> bool:
        return self._size > len(self._head) + min(len(self._tail), self._limit)

    def append(self, data: bytes) -> None:
        self._size += len(data)
        free_bytes = self._limit - len(self._head)
        if free_bytes > 0:
            self._head += data[:free_bytes]
            data = data[free_bytes:]
        self._tail += data[-self._limit :]
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    def text(self) -> str:
        tail = self._tail[-self._limit :]
        missing = self._size - len(self._head) - len(tail)
        if not missing:
            return replace_surrogates((self._head + tail).decode("utf-8", "replace"))
        head, rest = self._head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return replace_surrogates(
            f"{head}\n[… {missing} bytes left out; redirect the output to a file to read all …]\n{rest}"
        )


def _follow_program(
    process: Any, outputs: dict[int, HeadAndTailBuffer], stdin: bytes, deadline: float, caller: CallerConnection
) -> bool:
    """Read both outputs until the program ends; return whether it timed out."""
    ended = os.pidfd_open(process.pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    caller.register_with(poller)
    for descriptor in outputs:
        os.set_blocking(descriptor, False)
        poller.register(descriptor, select.POLLIN)
    feeding = -1
    if process.stdin is not None:
        feeding = process.stdin.fileno()
        os.set_blocking(feeding, False)
        poller.register(feeding, select.POLLOUT)
    left, timed_out, over = memoryview(stdin), False, False
    try:
        while not over:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                timed_out = over = True
                break
            for descriptor, _ in poller.poll(caller.flush_output(min(remaining, 60.0)) * 1000 + 1):
                if descriptor == ended:
                    over = True
                elif descriptor == caller.fileno():
                    caller.raise_if_disconnected()
                elif descriptor == feeding:
                    left = _write_stdin(feeding, left)
                    if not left:
                        poller.unregister(feeding)
                        process.stdin.close()
                        feeding = -1
                elif not _read_once(descriptor, outputs[descriptor], caller):
                    poller.unregister(descriptor)
        if timed_out:
            terminate_process_group(process)
        _drain(outputs, caller)
        process.wait()
    finally:
        os.close(ended)
        if process.returncode is None:
            terminate_process_group(process)
    return timed_out


def _write_stdin(descriptor: int, data: memoryview) -> memoryview:
    try:
        return data[os.write(descriptor, data[:65536]) :]
    except BlockingIOError:
        return data
    except OSError:
        return data[:0]


def _read_once(descriptor: int, output: HeadAndTailBuffer, caller: CallerConnection) -> bool:
    try:
        data = os.read(descriptor, 65536)
    except BlockingIOError:
        return True
    except OSError:
        return False
    output.append(data)
    caller.receive_output(descriptor, data)
    return bool(data)


def _drain(outputs: dict[int, HeadAndTailBuffer], caller: CallerConnection) -> None:
    """Read the available rest, without waiting for leftover processes that hold the pipes open."""
    deadline = time.monotonic() + DRAIN_SECONDS
    still_open = set(outputs)
    while still_open and time.monotonic() < deadline:
        ready = select.select(list(still_open), [], [], 0)[0]
        if not ready:
            return
        for descriptor in ready:
            if not _read_once(descriptor, outputs[descriptor], caller):
                still_open.discard(descriptor)


def terminate_process_group(process: Any, grace: float = 1.0) -> None:
    """Send SIGTERM to a program's process group, and SIGKILL after `grace` seconds."""
    watched = _open_pidfds(process.pid)
    try:
        _signal_group(process.pid, signal.SIGTERM)
        _wait_for_exits(watched, time.monotonic() + grace)
    finally:
        for descriptor in watched:
            os.close(descriptor)
    # Reap the program last: until then, its pid cannot be reused for another group.
    _signal_group(process.pid, signal.SIGKILL)
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        return


def _open_pidfds(group: int) -> list[int]:
    """Return pidfds of the processes of a group, of the first ones if there are many."""
    from .process_list import process_group_members

    found: list[int] = []
    for pid in process_group_members(group)[:MAX_WATCHED_PROCESSES]:
        try:
            found.append(os.pidfd_open(pid))
        except OSError:
            continue
    return found


def _wait_for_exits(descriptors: list[int], deadline: float) -> None:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left and (remaining := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(remaining * 1000 + 1):
            poller.unregister(descriptor)
            left -= 1


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass

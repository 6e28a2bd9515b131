"""Tools that run code: shell commands, and Python cells that keep their variables."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from .registry import Tool
from .results import Result, ToolError, readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .callers import Caller
    from .context import Context

MAX_OUTPUT = 48 * 1024
"""Bytes of each of the two outputs that a result carries: the beginning and the end."""
MAX_SECONDS = 3600
LINGER = 0.05
"""Seconds in which output is read that is still in the pipes when a command has ended."""
MAX_WATCHED = 64
"""Processes of a group that are waited for when it is asked to end."""


def tools(context: Context) -> list[Tool]:
    from .notebook import Notebook

    notebook = Notebook()
    seen = bool(os.environ.get("DISPLAY"))
    return [
        Tool(
            "run_shell_command",
            "Run a command in the shell and return its output and exit code. Each call starts a new shell in the "
            "working directory. What should go on running is started with & and its output redirected.",
            {
                "command": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
                "timeout": {
                    "type": "number", "minimum": 0.1, "maximum": MAX_SECONDS, "default": 120,
                    "description": "Seconds after which it is ended.",
                },
                "cwd": {"type": "string", "description": "Where to run it; the working directory if absent."},
                "stdin": {"type": "string", "description": "What the command reads from its standard input."},
            },
            ["command"],
            run_shell_command,
            changes_screen=seen,
        ),
        Tool(
            "run_ipython_cell",
            "Run Python code; variables and imports stay for the next cell. The value of the last expression, "
            "output and figures are returned. IPython's magics work where IPython is installed.",
            {
                "code": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
                "timeout": {
                    "type": "number", "minimum": 0.1, "maximum": MAX_SECONDS, "default": 120,
                    "description": "Seconds after which it is interrupted.",
                },
                "restart": {
                    "type": "boolean", "default": False,
                    "description": "Forget all variables first.",
                },
            },
            ["code"],
            notebook.run,
            changes_screen=seen,
        ),
    ]  # fmt: skip


def run_shell_command(
    context: Context, command: str, timeout: float, cwd: str | None = None, stdin: str | None = None
) -> Result:
    directory = context.path(cwd) if cwd else context.cwd
    if not os.path.isdir(directory):
        raise ToolError(f"the working directory does not exist: {directory}")
    if "\0" in command:
        raise ToolError("a command must not contain NUL")
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    data = (stdin or "").encode("utf-8", "surrogateescape")
    return run(context.caller, [shell, "-c", command], directory, timeout, data)


def run(caller: Caller, argv: list[str], directory: str, timeout: float, stdin: bytes = b"", env: Any = None) -> Result:
    """Run a program to its end, or end it with all it started when its time is over or its caller hangs up."""
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
    outputs = {process.stdout.fileno(): Kept(), process.stderr.fileno(): Kept()}
    stdout, stderr = outputs.values()
    try:
        timed_out = _follow(process, outputs, stdin, started + timeout, caller)
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
    seconds = round(time.monotonic() - started, 3)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    said, complained = stdout.text(), stderr.text()
    structured = {"exit_code": code, "stdout": said, "stderr": complained, "seconds": seconds}
    structured.update(timed_out=timed_out, cut=stdout.cut or stderr.cut)
    parts = [said]
    if complained:
        parts.append(f"[stderr]\n{complained}")
    if timed_out:
        parts.append(f"[ended after {timeout:g} seconds, as timeout says]")
    elif code:
        parts.append(f"[exit code {code}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return Result(text or "[no output]", structured=structured, error=timed_out)


class Kept:
    """The beginning and the end of an output of any length."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    @property
    def cut(self) -> bool:
        return self._size > len(self._head) + min(len(self._tail), self._limit)

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._limit :]
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    def text(self) -> str:
        tail = self._tail[-self._limit :]
        missing = self._size - len(self._head) - len(tail)
        if not missing:
            return readable((self._head + tail).decode("utf-8", "replace"))
        head, rest = self._head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return readable(f"{head}\n[… {missing} bytes left out; redirect the output to a file to read all …]\n{rest}")


def _follow(process: Any, outputs: dict[int, Kept], stdin: bytes, deadline: float, caller: Caller) -> bool:
    """Read both outputs until the program ends; returns whether it had to be ended."""
    ended = os.pidfd_open(process.pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    caller.join(poller)
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
            for descriptor, _ in poller.poll(caller.soon(min(remaining, 60.0)) * 1000 + 1):
                if descriptor == ended:
                    over = True
                elif descriptor == caller.fileno():
                    caller.check()
                elif descriptor == feeding:
                    left = _feed(feeding, left)
                    if not left:
                        poller.unregister(feeding)
                        process.stdin.close()
                        feeding = -1
                elif not _read_once(descriptor, outputs[descriptor], caller):
                    poller.unregister(descriptor)
        if timed_out:
            end_group(process)
        _drain(outputs, caller)
        process.wait()
    finally:
        os.close(ended)
        if process.returncode is None:
            end_group(process)
    return timed_out


def _feed(descriptor: int, data: memoryview) -> memoryview:
    try:
        return data[os.write(descriptor, data[:65536]) :]
    except BlockingIOError:
        return data
    except OSError:
        return data[:0]


def _read_once(descriptor: int, output: Kept, caller: Caller) -> bool:
    try:
        data = os.read(descriptor, 65536)
    except BlockingIOError:
        return True
    except OSError:
        return False
    output.add(data)
    caller.hear(descriptor, data)
    return bool(data)


def _drain(outputs: dict[int, Kept], caller: Caller) -> None:
    """Read what is left; processes left behind may keep the pipes open, so the end is not waited for."""
    deadline = time.monotonic() + LINGER
    open_ones = set(outputs)
    while open_ones and time.monotonic() < deadline:
        ready = select.select(list(open_ones), [], [], 0)[0]
        if not ready:
            return
        for descriptor in ready:
            if not _read_once(descriptor, outputs[descriptor], caller):
                open_ones.discard(descriptor)


def end_group(process: Any, grace: float = 1.0) -> None:
    """End a program and its process group, with force where asking does not help."""
    watched = _watched(process.pid)
    try:
        _signal_group(process.pid, signal.SIGTERM)
        _await_ends(watched, time.monotonic() + grace)
    finally:
        for descriptor in watched:
            os.close(descriptor)
    # The program itself is collected last: until then its number is that of no other group.
    _signal_group(process.pid, signal.SIGKILL)
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        return


def _watched(group: int) -> list[int]:
    """Return descriptors that tell when the processes of a group end, of the first ones if there are many."""
    from .processes import members

    found: list[int] = []
    for pid in members(group)[:MAX_WATCHED]:
        try:
            found.append(os.pidfd_open(pid))
        except OSError:
            continue
    return found


def _await_ends(descriptors: list[int], deadline: float) -> None:
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

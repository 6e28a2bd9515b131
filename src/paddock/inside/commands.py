"""Commands: what runs or ran in the box, in the foreground or the background."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

from .environment import Environment
from .errors import ApiError, invalid
from .events import OutputEvents, ended, event
from .fields import optional
from .fields import variables as variables_of
from .http import Chunks
from .pipes import OutputPipes, close_all, discard, unnamed_file, write_all
from .processes import CANNOT_EXECUTE, NOT_FOUND, TIMED_OUT, Child, Processes
from .recorder import Recorder
from .relay import Ending, Relay
from .spool import FULL_LIMIT, LIMIT, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KEEP_FINISHED = 200
ENTRYPOINT = "entrypoint"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class CommandRequest:
    """A checked request to run something."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.command = optional(document, "command", str)
        self.argv = optional(document, "argv", list)
        if bool(self.command) == (self.argv is not None):
            raise invalid("send exactly one of a non-empty 'command' and 'argv'")
        if self.argv is not None and not (self.argv and self.argv[0] and all(isinstance(a, str) for a in self.argv)):
            raise invalid("'argv' must be a list of strings with an executable first")
        self.cwd = optional(document, "cwd", str) or ""
        self.background = bool(optional(document, "background", bool))
        self.id = optional(document, "id", str)
        if self.id is not None and not (self.background and _NAME.fullmatch(self.id) and self.id != ENTRYPOINT):
            raise invalid("'id' is for background commands: lower-case letters, digits and dashes, not 'entrypoint'")
        self.hold = bool(optional(document, "hold", bool))
        self.raw = bool(optional(document, "raw", bool))
        self.stdin = optional(document, "stdin", str)
        self.timeout_ms = optional(document, "timeout", int)
        if self.timeout_ms is not None and self.timeout_ms < 0:
            raise invalid("'timeout' must not be negative")
        self.uid = optional(document, "uid", int)
        self.gid = optional(document, "gid", int)
        if self.gid is not None and self.uid is None:
            raise invalid("'gid' needs 'uid'")
        self.envs = variables_of(document, "envs")
        if "\0" in "".join([self.command or "", *(self.argv or [])]):
            raise invalid("a command must not contain NUL")

    @property
    def text(self) -> str:
        return self.command or " ".join(self.argv or [])

    @property
    def words(self) -> list[str]:
        return self.argv or [find_shell(), "-c", self.command or ""]


class Command:
    """One execution and what is known about it."""

    def __init__(self, identifier: str, text: str) -> None:
        self.id = identifier
        self.text = text
        self.started = time.monotonic()
        self.started_at = time.time()
        self.finished_at: float | None = None
        self.duration = 0.0
        self.exit_code: int | None = None
        self.reason = ""
        self.child: Child | None = None
        self.spool: Spool | None = None
        self.named = False
        """Whether the client chose the id, and may ask for it again at any time."""

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.duration = time.monotonic() - self.started
        self.finished_at = time.time()

    @property
    def running(self) -> bool:
        return self.finished_at is None

    def last_event(self) -> bytes:
        return ended(self.duration, self.exit_code if self.exit_code is not None else 1, self.reason)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "id": self.id,
            "content": self.text,
            "running": self.running,
            "exit_code": self.exit_code,
            "started_at": rfc3339(self.started_at),
            "finished_at": None if self.finished_at is None else rfc3339(self.finished_at),
        }
        if self.reason:
            status["error"] = self.reason
        return status


class Commands:
    """Every running command, and the most recent of those that ended."""

    def __init__(self, processes: Processes, environment: Environment, directory: str) -> None:
        self._processes = processes
        self._environment = environment
        self._directory = directory
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._all: dict[str, Command] = {}

    def get(self, identifier: str) -> Command:
        with self._lock:
            command = self._all.get(identifier)
        if command is None:
            raise ApiError(404, "CONTEXT_NOT_FOUND", f"no command {identifier!r}")
        return command

    def find(self, identifier: str) -> Command | None:
        with self._lock:
            return self._all.get(identifier)

    def running_count(self) -> int:
        with self._lock:
            return sum(command.running for command in self._all.values())

    def signal(self, identifier: str, name: str) -> None:
        """Pass a signal on to a command's process group, and leave it at that."""
        command = self.get(identifier)
        number = getattr(signal, f"SIG{name}", None)
        if not isinstance(number, signal.Signals):
            raise invalid(f"there is no signal {name!r}; use a name such as INT or TERM")
        if command.running and command.child is not None:
            command.child.signal(number)

    def interrupt(self, identifier: str) -> None:
        command = self.get(identifier)
        if command.running and command.child is not None:
            self._processes.terminate(command.child)

    def prepare(self, request: CommandRequest) -> Callable[[Chunks], None]:
        """Start in the foreground; the result streams events until it ends or the client leaves."""
        pipes = OutputPipes()
        try:
            command = self._start(request, pipes)
        except BaseException:
            pipes.close_readers()
            raise
        return lambda chunks: self._stream(request, command, pipes, chunks)

    def start(self, request: CommandRequest, identifier: str | None = None) -> Command:
        """Run in the background, with the output on disk. An id that there is already is not started again."""
        with self._starting:
            named = identifier or request.id
            existing = self.find(named) if named else None
            return existing or self._start_recorded(request, named)

    def _start_recorded(self, request: CommandRequest, named: str | None) -> Command:
        identifier = named or os.urandom(16).hex()
        limit = FULL_LIMIT if self._processes.disk_limit.reason() else LIMIT
        spool = Spool(os.path.join(self._directory, identifier), limit, hold=request.hold)
        pipes = OutputPipes()
        try:
            command = self._start(request, pipes, identifier, spool, named=named is not None)
        except BaseException:
            pipes.close_readers()
            spool.remove()
            raise
        if command.child is None:
            pipes.close_readers()
            spool.close()
            return command
        child = command.child
        recorder = Recorder(spool, child, pipes.readers, _deadline(request, command))
        recorder.on_deadline = lambda: self._time_out(request, command, child)
        recorder.on_exit = lambda: self._close(command, child)
        threading.Thread(target=recorder.run, daemon=True).start()
        return command

    def _start(
        self,
        request: CommandRequest,
        pipes: OutputPipes,
        identifier: str | None = None,
        spool: Spool | None = None,
        named: bool = False,
    ) -> Command:
        stdin: int | None = None
        try:
            variables = self._environment.variables(request.envs)
            cwd = self._environment.directory(request.cwd, variables)
            command = Command(identifier or os.urandom(16).hex(), request.text)
            command.spool, command.named = spool, named
            if request.stdin is not None:
                stdin = self._stdin_file(request.stdin)
            self._spawn(request, command, cwd, variables, stdin, pipes)
        finally:
            pipes.close_writers()
            if stdin is not None:
                os.close(stdin)
        with self._lock:
            self._all[command.id] = command
            self._forget_oldest()
        return command

    def _spawn(
        self,
        request: CommandRequest,
        command: Command,
        cwd: str,
        variables: dict[str, str],
        stdin: int | None,
        pipes: OutputPipes,
    ) -> None:
        try:
            command.child = self._processes.spawn(
                request.words,
                cwd=cwd,
                env=variables,
                marker=command.id,
                stdin=stdin,
                stdout=pipes.stdout_writer,
                stderr=pipes.stderr_writer,
                uid=request.uid,
                gid=request.gid,
            )
        except (OSError, ValueError) as error:
            command.reason = f"{request.words[0]}: {getattr(error, 'strerror', None) or error}"
            command.finish(CANNOT_EXECUTE if isinstance(error, PermissionError) else NOT_FOUND)

    def _stdin_file(self, text: str) -> int:
        descriptor = unnamed_file(self._directory)
        write_all(descriptor, text.encode("utf-8", "surrogateescape"))
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def _stream(self, request: CommandRequest, command: Command, pipes: OutputPipes, chunks: Chunks) -> None:
        left_open: list[int] = []
        try:
            if command.child is None:
                chunks.send(event("init", text=command.id) + command.last_event())
            else:
                left_open = self._relay(request, command, command.child, pipes, chunks)
        finally:
            close_all(fd for fd in pipes.readers if fd not in left_open)
            if left_open:
                threading.Thread(target=discard, args=(left_open,), daemon=True).start()

    def _relay(
        self, request: CommandRequest, command: Command, child: Child, pipes: OutputPipes, chunks: Chunks
    ) -> list[int]:
        relay = Relay(chunks, Ending(child.exited_fd), _deadline(request, command))
        relay.add(pipes.stdout, OutputEvents("stdout", request.raw))
        relay.add(pipes.stderr, OutputEvents("stderr", request.raw))
        relay.on_gone = lambda: self._processes.terminate(child)
        relay.on_deadline = lambda: self._time_out(request, command, child)
        relay.push(event("init", text=command.id))
        connected = relay.run()
        child.close()
        self._close(command, child)
        relay.push(command.last_event())
        if not connected or not relay.deliver():
            chunks.wire.abort()
        return relay.open_outputs

    def _time_out(self, request: CommandRequest, command: Command, child: Child) -> None:
        command.reason = f"timed out after {request.timeout_ms} ms"
        self._processes.terminate(child)

    def _close(self, command: Command, child: Child) -> None:
        exit_code = child.wait()
        command.finish(TIMED_OUT if command.reason else exit_code if exit_code is not None else 1)

    def _forget_oldest(self) -> None:
        finished = [command for command in self._all.values() if not command.running and not command.named]
        for command in finished[: max(0, len(finished) - KEEP_FINISHED)]:
            del self._all[command.id]
            if command.spool is not None:
                command.spool.remove()


def _deadline(request: CommandRequest, command: Command) -> float | None:
    return command.started + request.timeout_ms / 1000 if request.timeout_ms else None


def find_shell() -> str:
    return next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")


def rfc3339(moment: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{whole}.{int(moment % 1 * 1_000_000):06d}Z"

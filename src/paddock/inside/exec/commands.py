"""Commands run in the sandbox, in the foreground or the background."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

from ..errors import ApiError, invalid_body_error
from ..file_descriptors import OutputPipes, close_descriptors, discard_output, open_unlinked_file, write_all
from ..http.http11 import ChunkedWriter
from ..http.json_fields import environment_variables_field as variables_of
from ..http.json_fields import format_rfc3339, optional_json_field
from .environment import ProcessEnvironment
from .execution_events import OutputEventEncoder, command_ended_event, format_execution_event
from .output_recorder import OutputRecorder
from .output_relay import CompletionWatcher, OutputRelay
from .output_spool import DISK_FULL_LIMIT, SPOOL_LIMIT, OutputSpool
from .processes import CANNOT_EXECUTE, NOT_FOUND, TIMED_OUT, ChildProcess, ProcessRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .user_identity import UserIdentity

MAX_FINISHED = 200
ENTRYPOINT_ID = "entrypoint"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class CommandRequest:
    """Validated request to run a command."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.command = optional_json_field(document, "command", str)
        self.argv = optional_json_field(document, "argv", list)
        if bool(self.command) == (self.argv is not None):
            raise invalid_body_error("send exactly one of a non-empty 'command' and 'argv'")
        if self.argv is not None and not (self.argv and self.argv[0] and all(isinstance(a, str) for a in self.argv)):
            raise invalid_body_error("'argv' must be a list of strings with an executable first")
        self.cwd = optional_json_field(document, "cwd", str) or ""
        self.background = bool(optional_json_field(document, "background", bool))
        self.id = optional_json_field(document, "id", str)
        if self.id is not None and not (self.background and _NAME.fullmatch(self.id) and self.id != ENTRYPOINT_ID):
            raise invalid_body_error(
                "'id' is for background commands: lower-case letters, digits and dashes, not 'entrypoint'"
            )
        self.hold = bool(optional_json_field(document, "hold", bool))
        self.raw = bool(optional_json_field(document, "raw", bool))
        self.stdin = optional_json_field(document, "stdin", str)
        self.timeout_ms = optional_json_field(document, "timeout", int)
        if self.timeout_ms is not None and self.timeout_ms < 0:
            raise invalid_body_error("'timeout' must not be negative")
        self.uid = optional_json_field(document, "uid", int)
        self.gid = optional_json_field(document, "gid", int)
        if self.gid is not None and self.uid is None:
            raise invalid_body_error("'gid' needs 'uid'")
        self.user = optional_json_field(document, "user", str)
        if self.user is not None and self.uid is not None:
            raise invalid_body_error("give either 'user' or 'uid'")
        if not all(number is None or 0 <= number < 2**32 - 1 for number in (self.uid, self.gid)):
            raise invalid_body_error("'uid' and 'gid' must be user and group ids")
        self.envs = variables_of(document, "envs")
        if "\0" in "".join([self.command or "", *(self.argv or [])]):
            raise invalid_body_error("a command must not contain NUL")

    @property
    def text(self) -> str:
        return self.command or " ".join(self.argv or [])

    @property
    def argv_to_run(self) -> list[str]:
        return self.argv or [find_shell(), "-c", self.command or ""]


class CommandExecution:
    """One run of a command: its process, output and exit code."""

    def __init__(self, identifier: str, text: str) -> None:
        self.id = identifier
        self.text = text
        self.started = time.monotonic()
        self.started_at = time.time()
        self.finished_at: float | None = None
        self.duration = 0.0
        self.exit_code: int | None = None
        self.reason = ""
        self.child: ChildProcess | None = None
        self.output_spool: OutputSpool | None = None
        self.has_client_id = False
        """True if the client chose the id; such a command is never dropped from the registry."""

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.duration = time.monotonic() - self.started
        self.finished_at = time.time()

    @property
    def running(self) -> bool:
        return self.finished_at is None

    def ended_event(self) -> bytes:
        return command_ended_event(self.duration, self.exit_code if self.exit_code is not None else 1, self.reason)

    def status_document(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "id": self.id,
            "content": self.text,
            "running": self.running,
            "exit_code": self.exit_code,
            "started_at": format_rfc3339(self.started_at),
            "finished_at": None if self.finished_at is None else format_rfc3339(self.finished_at),
        }
        if self.reason:
            status["error"] = self.reason
        return status


class CommandRegistry:
    """All running commands and the most recent finished ones."""

    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, directory: str) -> None:
        self._processes = processes
        self._environment = environment
        self._directory = directory
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._all: dict[str, CommandExecution] = {}

    def get(self, identifier: str) -> CommandExecution:
        with self._lock:
            command = self._all.get(identifier)
        if command is None:
            raise ApiError(404, "CONTEXT_NOT_FOUND", f"no command {identifier!r}")
        return command

    def find(self, identifier: str) -> CommandExecution | None:
        with self._lock:
            return self._all.get(identifier)

    def running_count(self) -> int:
        with self._lock:
            return sum(command.running for command in self._all.values())

    def signal(self, identifier: str, name: str) -> None:
        """Send a signal to a command's process group, without waiting for its effect."""
        command = self.get(identifier)
        number = getattr(signal, f"SIG{name}", None)
        if not isinstance(number, signal.Signals):
            raise invalid_body_error(f"unknown signal {name!r}; use a name such as INT or TERM")
        if command.running and command.child is not None:
            command.child.signal(number)

    def terminate(self, identifier: str) -> None:
        command = self.get(identifier)
        if command.running and command.child is not None:
            self._processes.terminate(command.child)

    def start_foreground(self, request: CommandRequest) -> Callable[[ChunkedWriter], None]:
        """Start a command in the foreground; the returned function streams its events to the client."""
        pipes = OutputPipes()
        try:
            command = self._start(request, pipes)
        except BaseException:
            pipes.close_readers()
            raise
        return lambda chunks: self._stream_events(request, command, pipes, chunks)

    def start_background(self, request: CommandRequest, identifier: str | None = None) -> CommandExecution:
        """Start a command in the background with its output on disk. An existing id returns the existing command."""
        with self._starting:
            named = identifier or request.id
            existing = self.find(named) if named else None
            return existing or self._start_with_spool(request, named)

    def _start_with_spool(self, request: CommandRequest, named: str | None) -> CommandExecution:
        identifier = named or os.urandom(16).hex()
        limit = DISK_FULL_LIMIT if self._processes.disk_limit.exceeded_reason() else SPOOL_LIMIT
        spool = OutputSpool(os.path.join(self._directory, identifier), limit, wait_for_follower=request.hold)
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
        recorder = OutputRecorder(spool, child, pipes.readers, _deadline(request, command))
        recorder.on_deadline = lambda: self._handle_timeout(request, command, child)
        recorder.on_exit = lambda: self._finish_command(command, child)
        self._processes.threads.run(recorder.run)
        return command

    def _start(
        self,
        request: CommandRequest,
        pipes: OutputPipes,
        identifier: str | None = None,
        spool: OutputSpool | None = None,
        named: bool = False,
    ) -> CommandExecution:
        stdin: int | None = None
        try:
            identity = self._identity(request)
            own_variables = identity.variables if identity else {}
            variables = self._environment.variables({**own_variables, **request.envs})
            cwd = self._environment.working_directory(request.cwd, variables)
            command = CommandExecution(identifier or os.urandom(16).hex(), request.text)
            command.output_spool, command.has_client_id = spool, named
            if request.stdin is not None:
                stdin = self._write_stdin_file(request.stdin)
            self._spawn(request, command, cwd, variables, stdin, pipes, identity)
        finally:
            pipes.close_writers()
            if stdin is not None:
                os.close(stdin)
        with self._lock:
            self._all[command.id] = command
            self._drop_oldest_finished()
        return command

    def _spawn(
        self,
        request: CommandRequest,
        command: CommandExecution,
        cwd: str,
        variables: dict[str, str],
        stdin: int | None,
        pipes: OutputPipes,
        identity: UserIdentity | None,
    ) -> None:
        try:
            command.child = self._processes.spawn(
                request.argv_to_run,
                cwd=cwd,
                env=variables,
                marker=command.id,
                stdin=stdin,
                stdout=pipes.stdout_writer,
                stderr=pipes.stderr_writer,
                identity=identity,
            )
        except (OSError, ValueError) as error:
            command.reason = f"{request.argv_to_run[0]}: {getattr(error, 'strerror', None) or error}"
            command.finish(CANNOT_EXECUTE if isinstance(error, (PermissionError, BlockingIOError)) else NOT_FOUND)

    def _identity(self, request: CommandRequest) -> UserIdentity | None:
        if request.uid is None and request.user is None:
            return None
        from .user_identity import find_user_identity

        return find_user_identity(request.uid, request.gid, request.user)

    def _write_stdin_file(self, text: str) -> int:
        descriptor = open_unlinked_file(self._directory)
        write_all(descriptor, text.encode("utf-8", "surrogateescape"))
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def _stream_events(
        self, request: CommandRequest, command: CommandExecution, pipes: OutputPipes, chunks: ChunkedWriter
    ) -> None:
        left_open: list[int] = []
        try:
            if command.child is None:
                chunks.send(format_execution_event("init", text=command.id) + command.ended_event())
            else:
                left_open = self._relay_output(request, command, command.child, pipes, chunks)
        finally:
            close_descriptors(fd for fd in pipes.readers if fd not in left_open)
            if left_open:
                self._processes.threads.run(lambda: discard_output(left_open))

    def _relay_output(
        self,
        request: CommandRequest,
        command: CommandExecution,
        child: ChildProcess,
        pipes: OutputPipes,
        chunks: ChunkedWriter,
    ) -> list[int]:
        relay = OutputRelay(chunks, CompletionWatcher(child.exited_fd), _deadline(request, command))
        relay.add_output(pipes.stdout, OutputEventEncoder("stdout", request.raw))
        relay.add_output(pipes.stderr, OutputEventEncoder("stderr", request.raw))
        relay.on_client_gone = lambda: self._processes.terminate(child)
        relay.on_deadline = lambda: self._handle_timeout(request, command, child)
        relay.queue_events(format_execution_event("init", text=command.id))
        connected = relay.run()
        child.close()
        self._finish_command(command, child)
        relay.queue_events(command.ended_event())
        if not connected or not relay.send_queued():
            chunks.client.abort()
        return relay.open_outputs

    def _handle_timeout(self, request: CommandRequest, command: CommandExecution, child: ChildProcess) -> None:
        command.reason = f"timed out after {request.timeout_ms} ms"
        self._processes.terminate(child)

    def _finish_command(self, command: CommandExecution, child: ChildProcess) -> None:
        exit_code = child.wait()
        command.finish(TIMED_OUT if command.reason else exit_code if exit_code is not None else 1)

    def _drop_oldest_finished(self) -> None:
        finished = [command for command in self._all.values() if not command.running and not command.has_client_id]
        for command in finished[: max(0, len(finished) - MAX_FINISHED)]:
            del self._all[command.id]
            if command.output_spool is not None:
                command.output_spool.remove()


def _deadline(request: CommandRequest, command: CommandExecution) -> float | None:
    return command.started + request.timeout_ms / 1000 if request.timeout_ms else None


def find_shell() -> str:
    return next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")

"""Bash process that keeps its directory, variables and functions between commands.

The shell reads commands from one descriptor and reports exit codes on another, so command output
cannot be mistaken for either. When it exits (`exit 3`, an interrupt), it saves its state in a file
that the next shell loads.
"""

from __future__ import annotations

import os
import shutil
import time

from ..errors import not_supported_error
from ..file_descriptors import OutputPipes, close_descriptors, write_all
from .commands import find_shell
from .environment import ProcessEnvironment
from .execution_events import command_ended_event
from .interpreter import CodeExecution, Interpreter
from .processes import TIMED_OUT, ProcessRegistry

MAX_REMOVALS = 100
_COMMAND_LOOP = """
__paddock_save() {{
  {{ declare -p; declare -f; alias -p; printf 'cd -- %q\\n' "$PWD"; }} >"$__paddock_saved" 2>/dev/null
}}
if [[ -s {saved} ]]; then source {saved} 2>/dev/null; fi
__paddock_saved={saved}
trap __paddock_save EXIT
shopt -s expand_aliases
set -- bash
while IFS= read -r -d '' -u {commands} __paddock_output &&
      IFS= read -r -d '' -u {commands} __paddock_directory &&
      IFS= read -r -d '' -u {commands} __paddock_command; do
  __paddock_back=$PWD
  [[ -z $__paddock_directory ]] || cd -- "$__paddock_directory"
  eval "$__paddock_command" >"$__paddock_output.out" 2>"$__paddock_output.err" {commands}<&- {results}>&-
  printf '%s\\0' "$?" >&{results}
  [[ -z $__paddock_directory ]] || cd -- "$__paddock_back"
done
"""


class BashExecution(CodeExecution):
    def __init__(self, shell: BashInterpreter, results: int, exited: int) -> None:
        super().__init__(results, exited)
        self._shell = shell
        self._results = results
        self._received = b""

    def feed(self, descriptor: int, data: bytes) -> bytes:
        if descriptor == self._results:
            self._received += data
        self.over = b"\0" in self._received or not data
        return b""

    def ended_event(self) -> bytes:
        number, complete, _ = self._received.partition(b"\0")
        child = self._shell.child
        exit_code = int(number) if complete else (child.wait() if child is not None else None)
        if self.reason:
            exit_code = TIMED_OUT
        return command_ended_event(self.duration, 1 if exit_code is None else exit_code, self.reason)


class BashInterpreter(Interpreter):
    """Interpreter that runs commands in a bash process."""

    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, cwd: str, state: str) -> None:
        super().__init__(processes, environment, cwd)
        self._directory = os.path.join(state, f"session-{self.id}")
        os.makedirs(self._directory, 0o700)
        self._commands = -1
        self._results = -1
        self._count = 0

    def close(self) -> None:
        super().close()
        # Processes it started may create files there until they have ended.
        for _ in range(MAX_REMOVALS):
            shutil.rmtree(self._directory, ignore_errors=True)
            if not os.path.exists(self._directory):
                return
            time.sleep(0.01)

    def _start_process(self) -> None:
        bash = find_shell()
        if not bash.endswith("bash"):
            raise not_supported_error("sessions need bash, which this sandbox does not have")
        commands_read, self._commands = os.pipe()
        self._results, results_write = os.pipe()
        script = _COMMAND_LOOP.format(
            saved=f"'{os.path.join(self._directory, 'saved')}'", commands=commands_read, results=results_write
        )
        try:
            self.child = self._processes.spawn(
                [bash, "--noprofile", "--norc", "-c", script],
                cwd=self._cwd,
                env=self._environment.variables({}),
                marker=self.id,
                pass_fds=(commands_read, results_write),
            )
        finally:
            close_descriptors((commands_read, results_write))

    def _discard_process(self) -> None:
        if self.child is not None:
            self.child.close()
            close_descriptors((self._commands, self._results))
            self.child = None

    def _begin(self, code: str, cwd: str, pipes: OutputPipes) -> CodeExecution:
        assert self.child is not None
        self._count += 1
        output = os.path.join(self._directory, str(self._count))
        pipes.replace_by_fifos(output + ".out", output + ".err")
        message = "\0".join((output, cwd, code, "")).encode("utf-8", "surrogateescape")
        execution = BashExecution(self, self._results, self.child.exited_fd)
        self._send_command(message)
        return execution

    def _send_command(self, message: bytes) -> None:
        try:
            write_all(self._commands, message)
        except BrokenPipeError:
            pass  # The shell just died; its exit is reported by the execution.

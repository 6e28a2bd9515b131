"""Code contexts run by kernels, which are programs of the image; docs/reference/inside.md has the protocol.

A kernel keeps its stdout and stderr for its whole life. What it writes between two cells, such as the output of a
timer, waits in the pipe and is shown with the next cell.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import threading

from ..errors import not_supported_error
from ..file_descriptors import OutputPipes, close_descriptors
from .environment import ProcessEnvironment
from .interpreter import CodeExecution, Interpreter
from .kernel_execution import KernelExecution
from .processes import ChildProcess, ProcessRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

KERNELS_VARIABLE = "PADDOCK_KERNELS"
DEFAULT_KERNELS = "/usr/local/lib/paddock/kernels"
COMMANDS_VARIABLE = "PADDOCK_KERNEL_COMMANDS"
REPLIES_VARIABLE = "PADDOCK_KERNEL_REPLIES"
IMAGE_WITH_KERNELS = "code-interpreter"
LANGUAGES_OF_IMAGE = ("go", "java", "javascript", "typescript")
BUILT_IN_LANGUAGES = ("bash", "python")
_LANGUAGE = re.compile(r"[a-z][a-z0-9]{0,31}")


def find_kernel_program(language: str, variables: Mapping[str, str]) -> str:
    """Return the path of a language's kernel. Raises `ApiError` if the image has none."""
    directory = variables.get(KERNELS_VARIABLE) or DEFAULT_KERNELS
    program = os.path.join(directory, language)
    if _LANGUAGE.fullmatch(language) and _is_program(program):
        return program
    try:
        installed = [name for name in os.listdir(directory) if _LANGUAGE.fullmatch(name)]
    except OSError:
        installed = []
    known = sorted({*BUILT_IN_LANGUAGES, *(name for name in installed if _is_program(os.path.join(directory, name)))})
    advice = (
        f"; create the sandbox from the image {IMAGE_WITH_KERNELS!r}, which has it"
        if language in LANGUAGES_OF_IMAGE
        else f"; use one of: {', '.join(known)}"
    )
    raise not_supported_error(f"this sandbox's image has no interpreter for the language {language!r}{advice}")


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


class KernelProgram(Interpreter):
    """Interpreter that runs cells in a kernel process of the image."""

    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, cwd: str, program: str) -> None:
        super().__init__(processes, environment, cwd)
        self._program = program
        self._sending = threading.Lock()
        self._outputs: OutputPipes | None = None
        self._commands = -1
        self._replies = -1
        self._cell = 0

    def _start_process(self) -> None:
        variables = self._environment.variables({})
        self._cell = 0
        commands_read, self._commands = os.pipe()
        os.set_blocking(self._commands, False)
        self._replies, replies_write = os.pipe()
        outputs = self._outputs = OutputPipes()
        try:
            self.child = self._processes.spawn(
                [self._program],
                cwd=self._cwd,
                env={**variables, COMMANDS_VARIABLE: str(commands_read), REPLIES_VARIABLE: str(replies_write)},
                marker=self.id,
                stdout=outputs.stdout_writer,
                stderr=outputs.stderr_writer,
                pass_fds=(commands_read, replies_write),
            )
        except BaseException as error:
            close_descriptors((self._commands, self._replies))
            outputs.close_readers()
            if isinstance(error, OSError):
                raise not_supported_error(f"cannot start the kernel {self._program}: {error.strerror}") from None
            raise
        finally:
            close_descriptors((commands_read, replies_write))
            outputs.close_writers()

    def _discard_process(self) -> None:
        if self.child is not None and self._outputs is not None:
            with self._sending:  # A thread that still sends sees that the process has ended.
                self.child.close()
                close_descriptors((self._commands, self._replies))
            self._outputs.close_readers()
            self.child = None

    def _begin(self, code: str, cwd: str, pipes: OutputPipes) -> CodeExecution:
        child, outputs = self.child, self._outputs
        assert child is not None and outputs is not None
        self._cell += 1
        message = json.dumps({"cell": self._cell, "code": code}).encode("ascii") + b"\n"
        pipes.replace_by_duplicates(outputs.stdout, outputs.stderr)
        # A kernel that is starting does not read yet, so long code would block the execution.
        self._sending.acquire()
        self._processes.threads.run(lambda: self._send_command(child, message))
        return KernelExecution(self, self._replies, child.exited_fd)

    def _send_command(self, child: ChildProcess, message: bytes) -> None:
        """Write a command, unless the kernel ends before it has read it."""
        left = memoryview(message)
        poller = select.poll()
        poller.register(self._commands, select.POLLOUT)
        poller.register(child.exited_fd, select.POLLIN)
        try:
            while left and child.exited_fd not in dict(poller.poll()):
                left = left[os.write(self._commands, left) :]
        except BrokenPipeError:
            pass
        finally:
            self._sending.release()

    def _send_interrupt(self, execution: CodeExecution, child: ChildProcess) -> None:
        """Tell the kernel, and signal the programs that the cell has started."""
        if not self._sending.acquire(blocking=False):
            return  # The kernel has not read the code yet; the interrupt is repeated.
        try:
            os.write(self._commands, json.dumps({"interrupt": self._cell}).encode("ascii") + b"\n")
        except (BrokenPipeError, BlockingIOError):
            pass
        finally:
            self._sending.release()
        if execution.has_started:
            child.signal(signal.SIGINT)

    def _leave_outputs(self, descriptors: list[int]) -> None:
        close_descriptors(descriptors)

"""Run programs of an image build, log their output, report progress and clean up."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeAlias

from paddock.errors import BuildError, Unavailable

COMMAND_SECONDS = 3600.0
_LAST_LINES = 12


@dataclass(frozen=True)
class BuildProgress:
    """Progress of a build."""

    step: str
    fraction: float | None
    """Share of the whole build, 0 to 1, or None if unknown."""
    line: str = ""
    """The last line of output."""
    step_number: int | None = None
    """Number of the step from 1, if known."""
    step_count: int | None = None
    """Number of steps of the whole build, if known."""


Watcher: TypeAlias = Callable[[BuildProgress], None]


class ImageBuildCancelled(BuildError):
    """The build was cancelled and cleaned up."""

    code = "IMAGE_BUILD_CANCELLED"


class BuildCommandFailed(Exception):
    """A build program failed."""

    def __init__(self, reason: str, last_lines: Sequence[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_lines = tuple(last_lines)


def require_build_program(name: str, package: str) -> str:
    """Return the path of a host program. Raises `Unavailable` naming the package to install."""
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"'{name}' is needed to build images: install it with 'apt-get install {package}'")
    return path


class BuildCommandRunner:
    """Log and progress of one build. Not thread-safe."""

    def __init__(self, log: BinaryIO, watcher: Watcher, cancel: threading.Event) -> None:
        self._log = log
        self._watcher = watcher
        self._cancel = cancel
        self._now = BuildProgress("start", 0.0)

    def expect_steps(self, count: int) -> None:
        """Number the steps from now on; successive steps of one name are one step."""
        self._now = replace(self._now, step_number=0, step_count=count)

    def step(self, name: str, fraction: float | None) -> None:
        """Start the next step of the build."""
        self.check()
        number = self._now.step_number
        if number is not None and name != self._now.step:
            number += 1
        self._now = replace(self._now, step=name, fraction=fraction, line="", step_number=number)
        self._log.write(f"== {name}\n".encode())
        self._watcher(self._now)

    def advance(self, fraction: float) -> None:
        """Report the progress of the current step."""
        self._now = replace(self._now, fraction=fraction)

    def check(self) -> None:
        """Raise `ImageBuildCancelled` if cancellation was requested."""
        if self._cancel.is_set():
            raise ImageBuildCancelled

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = COMMAND_SECONDS,
        listen: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Run a program without input. Raises `BuildCommandFailed`; kills its process group when cancelled."""
        self.check()
        last: deque[str] = deque(maxlen=_LAST_LINES)
        deadline = time.monotonic() + timeout
        process = subprocess.Popen(
            argv,
            env=dict(env) if env is not None else _minimal_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout as output:
            try:
                for line in self._lines(process, output.fileno(), deadline):
                    last.append(line)
                    listen(line)
                    self._now = replace(self._now, line=line)
                    self._watcher(self._now)
            finally:
                _end(process)
        self.check()
        if time.monotonic() >= deadline:
            raise BuildCommandFailed(f"did not end within {timeout:.0f} seconds", last)
        if process.returncode != 0:
            raise BuildCommandFailed(_describe_exit(process.returncode), last)

    def capture(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 60.0) -> str:
        """Run a program and return its output, which is logged only on failure."""
        self.check()
        with subprocess.Popen(
            argv,
            env=dict(env) if env is not None else _minimal_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                output, error_output = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                raise BuildCommandFailed(f"did not answer within {timeout:.0f} seconds", ()) from None
            finally:
                _end(process)
        if process.returncode != 0:
            self._log.write(error_output)
            lines = error_output.decode(errors="replace").strip().splitlines()
            raise BuildCommandFailed(_describe_exit(process.returncode), lines[-_LAST_LINES:])
        return output.decode(errors="replace")

    def _lines(self, process: subprocess.Popen[bytes], descriptor: int, deadline: float) -> Iterator[str]:
        """Yield a program's output until it ends, is cancelled or times out."""
        partial = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not self._cancel.is_set() and time.monotonic() < deadline:
                if not selector.select(timeout=0.1):
                    if process.poll() is not None:
                        return
                    continue
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    # Wait for the exit code, so that a success is not mistaken for our kill.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=10)
                    return
                self._log.write(chunk)
                # Progress bars rewrite their line with a carriage return.
                *lines, partial = (partial + chunk).replace(b"\r", b"\n").split(b"\n")
                yield from (line.decode(errors="replace") for line in lines if line.strip())


def _minimal_environment() -> dict[str, str]:
    """Return an environment for build programs without the server's secrets."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the rest of a program's process group and reap it."""
    if process.poll() is None:
        # `unshare --fork` ignores SIGTERM; everything below is in its pid namespace and goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _describe_exit(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

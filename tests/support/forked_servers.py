"""Starts `paddock` from a process that has read the program already, which is most of what a start costs.

What it starts is a process of its own all the same, with its own environment, files and end. Tests of how the command
itself starts do without this.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from sqlalchemy import Engine

LARGEST = 2**16
NUMBER = struct.Struct("i")


def make_ready(directory: Path) -> Callable[[Engine, Path], None]:
    """Make once in this process what every new data directory needs: the database, and the program for sandboxes.

    Returns what makes the database.
    """
    from paddock.sandbox.daemon import zipapp_builder
    from paddock.store import database
    from paddock.store.schema_migration import migrate_schema as really

    one_at_a_time, made = threading.Lock(), directory / "ready.db"

    def migrate(engine: Engine, path: Path) -> None:
        with one_at_a_time:
            if not made.exists():
                fresh = directory / "fresh.db"
                other = database._engine(fresh)
                really(other, fresh)
                other.dispose()
                fresh.rename(made)
            if path.stat().st_size == 0:
                shutil.copyfile(made, path)
        really(engine, path)

    database.migrate_schema = migrate  # type: ignore[attr-defined, assignment]
    zipapp_builder._compiled = functools.cache(zipapp_builder._compiled)
    return migrate


class ForkedProcess:
    """A process that the fork server has started, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[str], status: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("paddock serve", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _look(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = _read_number(self._status)
            os.close(self._status)
        return self.returncode


class ForkServer:
    """The process that servers are started from."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="paddock-fork-server-")
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, self._directory.name, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"},  # No threads, or it could not fork.
                pass_fds=[theirs.fileno()],
            )

    def start(self, words: Sequence[str], env: Mapping[str, str], stderr: int) -> ForkedProcess:
        """`paddock` with these words; what it writes to stdout can be read."""
        read, write = os.pipe()
        try:
            return self._ask(words, env, write, stderr, open(read))
        finally:
            os.close(write)

    def run(self, words: Sequence[str], env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[bytes]:
        """As `subprocess.run` does it, with nothing to read."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, open(os.devnull) as nothing:
            born = self._ask(words, env, out.fileno(), errors.fileno(), nothing)
            try:
                code = born.wait(timeout)
            except subprocess.TimeoutExpired:
                born.send_signal(signal.SIGKILL)
                raise
            written = [os.pread(each.fileno(), each.seek(0, os.SEEK_END), 0) for each in (out, errors)]
        return subprocess.CompletedProcess(["paddock", *words], code, *written)

    def _ask(
        self, words: Sequence[str], env: Mapping[str, str], out: int, errors: int, stdout: IO[str]
    ) -> ForkedProcess:
        status, tell = os.pipe()
        try:
            request = json.dumps({"words": words, "env": dict(env), "directory": os.getcwd()}).encode()
            socket.send_fds(self._door, [request], [out, errors, tell])
        finally:
            os.close(tell)
        return ForkedProcess(_read_number(status), stdout, status)

    def close(self) -> None:
        self._door.close()
        self._process.wait(20)
        self._directory.cleanup()


@functools.cache
def fork_server() -> ForkServer:
    """This process's own."""
    made = ForkServer()
    atexit.register(made.close)
    return made


def main(directory: Path, door: socket.socket) -> None:
    """Fork requested processes until the client disconnects."""
    import paddock.app
    import paddock.cli.connection.server_client
    import paddock.cli.main
    from paddock.sandbox.daemon import zipapp_builder
    from paddock.store import database

    paddock.cli.main.build_app()
    migrate = make_ready(directory)
    zipapp_builder.build_daemon_zipapp(directory)
    (first := directory / "first.db").touch()
    engine = database._engine(first)
    migrate(engine, first)
    engine.dispose()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Children are reaped by the kernel.
    for number in itertools.count(1):
        request, descriptors, _, _ = socket.recv_fds(door, LARGEST, 3)
        if not request:
            return
        if number == 2:  # Where only one is started, it does without, or has them read itself.
            for module in ("acp.engine", "agentscope", "langgraph"):
                importlib.import_module(f"paddock.agents.engines.{module}")
        gc.freeze()
        if os.fork() == 0:
            door.close()
            _attend(json.loads(request), *descriptors)
        for each in descriptors:
            os.close(each)


def _attend(request: Mapping[str, Any], stdout: int, stderr: int, status: int) -> NoReturn:
    """Start it, say which process it is, wait for its end and say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(request, stdout, stderr)
    os.close(stdout)
    os.close(stderr)
    os.write(status, NUMBER.pack(pid))
    os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def _become(request: Mapping[str, Any], stdout: int, stderr: int) -> NoReturn:
    from paddock.cli.main import run

    for given, number in ((stdout, 1), (stderr, 2)):
        os.dup2(given, number)
        os.close(given)
    # What Python itself has set for want of a language, it would have set for this one as well.
    language = {name: value for name, value in os.environ.items() if name == "LC_CTYPE"}
    os.environ.clear()
    os.environ.update(language | request["env"])
    if os.environ.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    os.chdir(request["directory"])
    sys.argv = ["paddock", *request["words"]]
    code = run()
    # As at the end of any program, except that modules loaded by the fork server are not torn down.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _read_number(descriptor: int) -> int:
    (number,) = NUMBER.unpack(os.read(descriptor, NUMBER.size))
    return int(number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))

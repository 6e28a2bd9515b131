"""Start `paddock` by forking a process that has imported the program, which is most of the cost of a start.

Each `paddock` is a separate process with its own environment and files. Tests of the start of the command do not use
this module.
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

MAX_REQUEST = 2**16
INTEGER = struct.Struct("i")


def cache_start_up_work(directory: Path) -> Callable[[Engine, Path], None]:
    """Create the database and the daemon once per process and copy them into new data directories.

    Return the function that creates the database.
    """
    from paddock.sandbox.daemon import zipapp_builder
    from paddock.store import database
    from paddock.store.schema_migration import migrate_schema as migrate_database

    lock, cached_database = threading.Lock(), directory / "ready.db"

    def migrate(engine: Engine, path: Path) -> None:
        with lock:
            if not cached_database.exists():
                new_database = directory / "fresh.db"
                new_engine = database._engine(new_database)
                migrate_database(new_engine, new_database)
                new_engine.dispose()
                new_database.rename(cached_database)
            if path.stat().st_size == 0:
                shutil.copyfile(cached_database, path)
        migrate_database(engine, path)

    database.migrate_schema = migrate  # type: ignore[attr-defined, assignment]
    zipapp_builder._compiled = functools.cache(zipapp_builder._compiled)
    return migrate


class ForkedProcess:
    """A process started by the fork server, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[str], status: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._wait_for_exit(0)

    def wait(self, timeout: float) -> int:
        code = self._wait_for_exit(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("paddock serve", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait_for_exit(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = _read_integer(self._status)
            os.close(self._status)
        return self.returncode


class ForkServer:
    """The process from which servers are forked."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="paddock-fork-server-")
        self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, self._directory.name, str(child_socket.fileno())],
                stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"},  # No threads, or it could not fork.
                pass_fds=[child_socket.fileno()],
            )

    def start(self, arguments: Sequence[str], env: Mapping[str, str], stderr: int) -> ForkedProcess:
        """`paddock` with these words; what it writes to stdout can be read."""
        read, write = os.pipe()
        try:
            return self._request_fork(arguments, env, write, stderr, open(read))
        finally:
            os.close(write)

    def run(
        self, arguments: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `paddock` to its end with captured output and an empty stdin, as `subprocess.run`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, open(os.devnull) as nothing:
            process = self._request_fork(arguments, env, out.fileno(), errors.fileno(), nothing)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                raise
            output = [os.pread(each.fileno(), each.seek(0, os.SEEK_END), 0) for each in (out, errors)]
        return subprocess.CompletedProcess(["paddock", *arguments], code, *output)

    def _request_fork(
        self, arguments: Sequence[str], env: Mapping[str, str], out: int, errors: int, stdout: IO[str]
    ) -> ForkedProcess:
        status_reader, status_writer = os.pipe()
        try:
            request = json.dumps({"words": arguments, "env": dict(env), "directory": os.getcwd()}).encode()
            socket.send_fds(self._socket, [request], [out, errors, status_writer])
        finally:
            os.close(status_writer)
        return ForkedProcess(_read_integer(status_reader), stdout, status_reader)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(20)
        self._directory.cleanup()


@functools.cache
def fork_server() -> ForkServer:
    """Return the fork server of this process; start it on the first call."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def main(directory: Path, listener: socket.socket) -> None:
    """Fork requested processes until the client disconnects."""
    import paddock.app.serving
    import paddock.cli.connection.server_client
    import paddock.cli.main
    from paddock.sandbox.daemon import zipapp_builder
    from paddock.store import database

    paddock.cli.main.build_app()
    migrate = cache_start_up_work(directory)
    zipapp_builder.build_daemon_zipapp(directory)
    (first := directory / "first.db").touch()
    engine = database._engine(first)
    migrate(engine, first)
    engine.dispose()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Children are reaped by the kernel.
    for number in itertools.count(1):
        request, descriptors, _, _ = socket.recv_fds(listener, MAX_REQUEST, 3)
        if not request:
            return
        if number == 2:  # A single server imports them itself if it needs them.
            for module in ("acp.engine", "agentscope", "langgraph"):
                importlib.import_module(f"paddock.agents.engines.{module}")
        gc.freeze()
        if os.fork() == 0:
            listener.close()
            _supervise_process(json.loads(request), *descriptors)
        for each in descriptors:
            os.close(each)


def _supervise_process(request: Mapping[str, Any], stdout: int, stderr: int, status: int) -> NoReturn:
    """Start the requested process, send its id, wait for its end and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run_paddock(request, stdout, stderr)
    os.close(stdout)
    os.close(stderr)
    os.write(status, INTEGER.pack(pid))
    os.write(status, INTEGER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def _run_paddock(request: Mapping[str, Any], stdout: int, stderr: int) -> NoReturn:
    from paddock.cli.main import run

    for descriptor, number in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Python sets LC_CTYPE if no locale is set; a process that is not forked would have it as well.
    locale_variables = {name: value for name, value in os.environ.items() if name == "LC_CTYPE"}
    os.environ.clear()
    os.environ.update(locale_variables | request["env"])
    if os.environ.get("PYTHONWARNINGS", "").startswith("error"):
        warnings.simplefilter("error")
    os.chdir(request["directory"])
    sys.argv = ["paddock", *request["words"]]
    code = run()
    # As at the end of any program, except that modules loaded by the fork server are not torn down.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _read_integer(descriptor: int) -> int:
    (number,) = INTEGER.unpack(os.read(descriptor, INTEGER.size))
    return int(number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))

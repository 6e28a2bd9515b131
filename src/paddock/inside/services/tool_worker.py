"""Starts and restarts the process that serves the sandbox's tools, and connects to it.

Tools run in a separate process because they load large libraries (X, images, a browser's protocol), hang and crash.
Only the daemon can reach its socket, because the name is unlinked before the worker runs. The worker knows no token.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time

from ..errors import ApiError
from ..exec.environment import ProcessEnvironment
from ..exec.processes import ChildProcess, ProcessRegistry
from ..file_descriptors import READ_SIZE
from ..http.buffered_socket import BufferedSocket, PeerDisconnected
from .bounded_log import BoundedLogFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KIND_VARIABLE = "PADDOCK_KIND"
MAX_IDLE_CONNECTIONS = 16
"""Connections kept open for the next calls."""
CONNECT_TIMEOUT = 10.0
UPDATE_TIMEOUT = 0.5
HEALTH_TIMEOUT = 5.0
"""Seconds in which a healthy worker answers, however busy its tools are."""
EXIT_TIMEOUT = 2.0
"""Seconds a worker that has closed its socket may take to exit."""
LOG_LINES = 20


class ToolWorkerConnection(BufferedSocket):
    """A connection to the worker process."""

    def __init__(self, sock: socket.socket, child: ChildProcess) -> None:
        super().__init__(sock)
        self.child = child

    @property
    def is_usable(self) -> bool:
        """True if the worker runs and has sent nothing, not even end of stream, since its last reply."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        poller.register(self.child.exited_fd, select.POLLIN)
        return not poller.poll(0)


class ToolWorker:
    """The tool worker process of a sandbox."""

    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, directory: str) -> None:
        self._processes = processes
        self._environment = environment
        self._directory = directory
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._socket_fd = -1
        self._idle_connections: list[ToolWorkerConnection] = []
        self._log: BoundedLogFile | None = None
        self._kind = ""
        self._checking = False
        self.starts = 0

    def start_ahead(self) -> None:
        """Start the worker ahead of the first call; failures are reported by the first call."""
        try:
            with self._lock:
                self._ensure_running()
        except (OSError, ApiError):
            pass  # The first tool call reports it.

    def connect(self) -> ToolWorkerConnection:
        """Return a connection to a running worker. Raises ApiError if it cannot be started."""
        with self._lock:
            try:
                try:
                    return self._open_or_reuse()
                except ConnectionRefusedError:
                    if self._child is None or self._child.wait(EXIT_TIMEOUT) is None:
                        raise
                    return self._open_or_reuse()
            except OSError as error:
                raise ApiError(503, "TOOLS_UNAVAILABLE", f"the sandbox's tools cannot be started: {error}") from None

    def keep_connection(self, connection: ToolWorkerConnection) -> None:
        """Keep a connection for another call, after its reply was read completely."""
        with self._lock:
            if connection.child is self._child and len(self._idle_connections) < MAX_IDLE_CONNECTIONS:
                self._idle_connections.append(connection)
                return
        connection.socket.close()

    def check_health(self, connection: ToolWorkerConnection) -> None:
        """Check in the background whether the worker still answers, after a client gave up on it."""
        with self._lock:
            if self._checking or connection.child is not self._child:
                return
            self._checking = True
        try:
            threading.Thread(target=self._restart_if_hung, args=(connection.child,), daemon=True).start()
        except RuntimeError:  # The process limit is reached; the next client that gives up triggers the check.
            self._checking = False

    def describe_failure(self, connection: ToolWorkerConnection) -> ApiError:
        """Return the error for a worker that ended a call without a reply."""
        exit_code = connection.child.wait(1.0)
        if exit_code is None:
            return ApiError(502, "TOOLS_BROKE_OFF", "the sandbox's tool worker broke off in the middle of this call")
        last = self._log.tail(1) if self._log is not None else []
        words = f"; last log line: {last[0][:500]}" if last else ""
        message = f"the sandbox's tool worker ended with exit code {exit_code} during this call; call again to restart"
        return ApiError(502, "TOOLS_DIED", message + words)

    def update_environment(self) -> None:
        """Send the current environment to the worker; one that does not accept it is replaced."""
        with self._lock:
            if self._child is None or self._send_environment():
                return
            self._stop_worker()
        threading.Thread(target=self.start_ahead, daemon=True).start()

    def status_document(self) -> dict[str, Any]:
        with self._lock:
            running = self._child is not None and self._child.exit_code is None
            return {
                "running": running,
                "pid": self._child.pid if self._child is not None and running else None,
                "starts": self.starts,
                "log": self._log.tail(LOG_LINES) if self._log is not None else [],
            }

    def _open_or_reuse(self) -> ToolWorkerConnection:
        self._ensure_running()
        while self._idle_connections:
            connection = self._idle_connections.pop()
            if connection.is_usable:
                return connection
            connection.socket.close()
        return self._open_connection()

    def _ensure_running(self) -> None:
        if self._child is not None and self._child.wait(0) is None:
            return
        self._stop_worker()
        variables = self._environment.variables({})
        directory = self._environment.working_directory("", variables)
        python = sys.executable or "/usr/bin/python3"
        listener = self._listen()
        reader, writer = os.pipe()
        try:
            self._child = self._processes.spawn(
                [python, "-I", os.path.abspath(sys.argv[0]), "--tools", str(listener.fileno())],
                cwd=directory,
                env=variables,
                marker=os.urandom(16).hex(),
                stdout=writer,
                stderr=writer,
                pass_fds=(listener.fileno(),),
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
            listener.close()
        self.starts += 1
        self._kind = variables.get(KIND_VARIABLE, "")
        if self._log is None:
            self._log = BoundedLogFile(os.path.join(self._directory, "tools.log"))
        threading.Thread(target=_log_output, args=(reader, self._log), daemon=True).start()

    def _listen(self) -> socket.socket:
        """Open a listening socket and unlink its name, so that only the daemon can connect, by descriptor."""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        path = os.path.join(self._directory, f".{os.urandom(8).hex()}.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            listener.listen(128)
            self._socket_fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.unlink(path)
        except BaseException:
            listener.close()
            raise
        return listener

    def _open_connection(self) -> ToolWorkerConnection:
        assert self._child is not None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(CONNECT_TIMEOUT)
            sock.connect(f"/proc/self/fd/{self._socket_fd}")
        except BaseException:
            sock.close()
            raise
        return ToolWorkerConnection(sock, self._child)

    def _send_environment(self) -> bool:
        """Send the environment to the worker; False if it does not accept it at once or has another kind."""
        variables = self._environment.variables({})
        if variables.get(KIND_VARIABLE, "") != self._kind:
            return False
        body = json.dumps({"env": variables, "cwd": self._environment.cwd}).encode("utf-8", "surrogateescape")
        try:
            connection = self._open_connection()
        except OSError:
            return False
        with connection.socket:
            try:
                connection.timeout = UPDATE_TIMEOUT
                connection.send(b"PUT /environment HTTP/1.1\r\nHost: tools\r\nConnection: close\r\n")
                connection.send(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                head = connection.read_until(b"\r\n", 1024, time.monotonic() + UPDATE_TIMEOUT)
            except PeerDisconnected:
                return False
        return head is not None and head.split(b" ")[1:2] == [b"200"]

    def _restart_if_hung(self, child: ChildProcess) -> None:
        with self._lock:
            try:
                connection = self._open_connection() if child is self._child else None
            except OSError:
                connection = None
        answers = connection is not None and _replies(connection)
        with self._lock:
            self._checking = False
            if not answers and child is self._child:
                self._stop_worker()

    def _stop_worker(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.exit_code is None:
            self._processes.terminate(child)
        child.close()
        os.close(self._socket_fd)
        for connection in self._idle_connections:
            connection.socket.close()
        self._idle_connections.clear()


def _replies(connection: ToolWorkerConnection) -> bool:
    """True if the worker replies at all, if only with 404."""
    with connection.socket:
        try:
            connection.send(b"GET /ping HTTP/1.1\r\nHost: tools\r\nConnection: close\r\n\r\n")
            return connection.wait_for_data(HEALTH_TIMEOUT)
        except PeerDisconnected:
            return False


def _log_output(descriptor: int, log: BoundedLogFile) -> None:
    """Log the output of a worker and of the processes it leaves behind."""
    try:
        while data := os.read(descriptor, READ_SIZE):
            log.append(data)
    finally:
        os.close(descriptor)

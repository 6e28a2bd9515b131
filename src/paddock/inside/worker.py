"""The process that serves the box's tools: started when it is needed, and anew after it died.

It is one of its own because tools load what the daemon must do without (X, pictures, a browser's protocol), hang and
crash. Nothing in the box but the daemon finds its socket, whose name is gone before the worker runs, and it knows no
token.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time

from .environment import Environment
from .errors import ApiError
from .journals import Journal
from .pipes import READ_SIZE
from .processes import Child, Processes
from .wire import Disconnected, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KIND = "PADDOCK_KIND"
MAX_IDLE = 16
"""Connections that are kept for the next calls."""
CONNECT_TIMEOUT = 10.0
TELL_TIMEOUT = 0.5
HUNG = 5.0
"""Seconds in which a worker that lives says something, however busy its tools are."""
DYING = 2.0
"""Seconds that a worker which has closed its socket may take to be gone."""
LOG_LINES = 20


class Line(Wire):
    """One connection to one worker."""

    def __init__(self, sock: socket.socket, child: Child) -> None:
        super().__init__(sock)
        self.child = child

    @property
    def usable(self) -> bool:
        """Whether the worker lives and has said nothing since its last answer, not even that it hung up."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        poller.register(self.child.exited_fd, select.POLLIN)
        return not poller.poll(0)


class Worker:
    """The one worker of a box."""

    def __init__(self, processes: Processes, environment: Environment, directory: str) -> None:
        self._processes = processes
        self._environment = environment
        self._directory = directory
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._door = -1
        self._idle: list[Line] = []
        self._journal: Journal | None = None
        self._kind = ""
        self._suspected = False
        self.starts = 0

    def warm(self) -> None:
        """Start it ahead of the first call, if that is possible."""
        try:
            with self._lock:
                self._see_to_it()
        except (OSError, ApiError):
            pass  # Whoever calls a tool will hear of it.

    def connect(self) -> Line:
        """Return a connection to a worker that runs. Raises ApiError when there can be none."""
        with self._lock:
            try:
                try:
                    return self._open()
                except ConnectionRefusedError:
                    if self._child is None or self._child.wait(DYING) is None:
                        raise
                    return self._open()
            except OSError as error:
                raise ApiError(503, "TOOLS_UNAVAILABLE", f"the box's tools cannot be started: {error}") from None

    def give_back(self, line: Line) -> None:
        """Keep a connection whose answer was read to the end for another call."""
        with self._lock:
            if line.child is self._child and len(self._idle) < MAX_IDLE:
                self._idle.append(line)
                return
        line.socket.close()

    def suspect(self, line: Line) -> None:
        """Look whether the worker still answers at all, now that a client has given up on it."""
        with self._lock:
            if self._suspected or line.child is not self._child:
                return
            self._suspected = True
        try:
            threading.Thread(target=self._examine, args=(line.child,), daemon=True).start()
        except RuntimeError:  # The box has no room for another thread; the next to give up will look.
            self._suspected = False

    def death(self, line: Line) -> ApiError:
        """Tell what became of a worker that left a call without an answer."""
        exit_code = line.child.wait(1.0)
        if exit_code is None:
            return ApiError(502, "TOOLS_BROKE_OFF", "the box's tools broke off in the middle of this call")
        last = self._journal.tail(1) if self._journal is not None else []
        words = f"; their last words: {last[0][:500]}" if last else ""
        message = f"the box's tools ended with exit code {exit_code} during this call; call again to start them anew"
        return ApiError(502, "TOOLS_DIED", message + words)

    def renew(self) -> None:
        """Have what runs from now on see the environment as it is now; what a worker cannot be told ends it."""
        with self._lock:
            if self._child is None or self._tell():
                return
            self._retire()
        threading.Thread(target=self.warm, daemon=True).start()

    def document(self) -> dict[str, Any]:
        with self._lock:
            running = self._child is not None and self._child.exit_code is None
            return {
                "running": running,
                "pid": self._child.pid if self._child is not None and running else None,
                "starts": self.starts,
                "log": self._journal.tail(LOG_LINES) if self._journal is not None else [],
            }

    def _open(self) -> Line:
        self._see_to_it()
        while self._idle:
            line = self._idle.pop()
            if line.usable:
                return line
            line.socket.close()
        return self._dial()

    def _see_to_it(self) -> None:
        if self._child is not None and self._child.wait(0) is None:
            return
        self._retire()
        variables = self._environment.variables({})
        directory = self._environment.directory("", variables)
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
        self._kind = variables.get(KIND, "")
        if self._journal is None:
            self._journal = Journal(os.path.join(self._directory, "tools.log"))
        threading.Thread(target=_record, args=(reader, self._journal), daemon=True).start()

    def _listen(self) -> socket.socket:
        """Open a socket that only we can reach: by a descriptor of its inode, as no name leads there any more."""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        path = os.path.join(self._directory, f".{os.urandom(8).hex()}.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            listener.listen(128)
            self._door = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.unlink(path)
        except BaseException:
            listener.close()
            raise
        return listener

    def _dial(self) -> Line:
        assert self._child is not None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(CONNECT_TIMEOUT)
            sock.connect(f"/proc/self/fd/{self._door}")
        except BaseException:
            sock.close()
            raise
        return Line(sock, self._child)

    def _tell(self) -> bool:
        """Hand the environment to the worker; False when it does not take it at once, or is of another kind."""
        variables = self._environment.variables({})
        if variables.get(KIND, "") != self._kind:
            return False
        body = json.dumps({"env": variables, "cwd": self._environment.cwd}).encode("utf-8", "surrogateescape")
        try:
            line = self._dial()
        except OSError:
            return False
        with line.socket:
            try:
                line.timeout = TELL_TIMEOUT
                line.send(b"PUT /environment HTTP/1.1\r\nHost: tools\r\nConnection: close\r\n")
                line.send(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                head = line.read_until(b"\r\n", 1024, time.monotonic() + TELL_TIMEOUT)
            except Disconnected:
                return False
        return head is not None and head.split(b" ")[1:2] == [b"200"]

    def _examine(self, child: Child) -> None:
        with self._lock:
            try:
                line = self._dial() if child is self._child else None
            except OSError:
                line = None
        answers = line is not None and _answers(line)
        with self._lock:
            self._suspected = False
            if not answers and child is self._child:
                self._retire()

    def _retire(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.exit_code is None:
            self._processes.terminate(child)
        child.close()
        os.close(self._door)
        for line in self._idle:
            line.socket.close()
        self._idle.clear()


def _answers(line: Line) -> bool:
    """Whether anything comes back, if only that there is no such thing."""
    with line.socket:
        try:
            line.send(b"GET /ping HTTP/1.1\r\nHost: tools\r\nConnection: close\r\n\r\n")
            return line.wait_for_data(HUNG)
        except Disconnected:
            return False


def _record(descriptor: int, journal: Journal) -> None:
    """Keep the last of what a worker, and whatever it leaves behind, writes."""
    try:
        while data := os.read(descriptor, READ_SIZE):
            journal.append(data)
    finally:
        os.close(descriptor)

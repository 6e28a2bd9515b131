"""The bash sessions of a box."""

from __future__ import annotations

import threading

from .environment import Environment
from .errors import ApiError
from .processes import Processes
from .shells import Shell

MAX_SESSIONS = 64


class Sessions:
    def __init__(self, processes: Processes, environment: Environment, state: str) -> None:
        self._processes = processes
        self._environment = environment
        self._state = state
        self._lock = threading.Lock()
        self._shells: dict[str, Shell] = {}

    def create(self, cwd: str) -> Shell:
        directory = self._environment.directory(cwd, self._environment.variables({}))
        with self._lock:
            if len(self._shells) >= MAX_SESSIONS:
                raise ApiError(400, "RUNTIME_ERROR", f"a box keeps at most {MAX_SESSIONS} sessions; delete some")
            shell = Shell(self._processes, self._environment, directory, self._state)
            self._shells[shell.id] = shell
        return shell

    def get(self, identifier: str) -> Shell:
        with self._lock:
            shell = self._shells.get(identifier)
        if shell is None:
            raise ApiError(404, "SESSION_NOT_FOUND", f"no session {identifier!r}")
        return shell

    def delete(self, identifier: str) -> None:
        shell = self.get(identifier)
        with self._lock:
            self._shells.pop(identifier, None)
        shell.close()

    def interrupt(self, identifier: str) -> bool:
        """Interrupt the session, or the execution, of this id; False when there is none."""
        with self._lock:
            shells = list(self._shells.values())
        for shell in shells:
            if shell.runs(identifier):
                shell.interrupt()
                return True
        return False

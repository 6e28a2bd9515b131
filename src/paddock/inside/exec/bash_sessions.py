"""Registry of the sandbox's bash sessions."""

from __future__ import annotations

import threading

from ..errors import ApiError
from .bash_interpreter import BashInterpreter
from .environment import ProcessEnvironment
from .processes import ProcessRegistry

MAX_SESSIONS = 64


class BashSessions:
    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, state: str) -> None:
        self._processes = processes
        self._environment = environment
        self._state = state
        self._lock = threading.Lock()
        self._shells: dict[str, BashInterpreter] = {}

    def create(self, cwd: str) -> BashInterpreter:
        directory = self._environment.working_directory(cwd, self._environment.variables({}))
        with self._lock:
            if len(self._shells) >= MAX_SESSIONS:
                raise ApiError(400, "RUNTIME_ERROR", f"a sandbox keeps at most {MAX_SESSIONS} sessions; delete some")
            shell = BashInterpreter(self._processes, self._environment, directory, self._state)
            self._shells[shell.id] = shell
        return shell

    def get(self, identifier: str) -> BashInterpreter:
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
        """Interrupt the session or execution with this id; False if there is none."""
        with self._lock:
            shells = list(self._shells.values())
        for shell in shells:
            if shell.has_execution(identifier):
                shell.interrupt()
                return True
        return False

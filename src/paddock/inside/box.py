"""Everything one daemon holds, wired once and handed to the handlers."""

from __future__ import annotations

import os
import threading

from .activity import Activity
from .disk_limit import DiskLimit
from .environment import Environment
from .errors import ApiError
from .processes import Processes
from .settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .commands import Command, Commands
    from .contexts import Contexts
    from .metrics import Meter
    from .services import Services
    from .sessions import Sessions
    from .terminals import Terminals
    from .worker import Worker


class Box:
    """The parts that only some boxes use are made when they are first asked for."""

    def __init__(self, settings: Settings, early: int | None = None) -> None:
        """`early` is the process that was started before the daemon, as its settings say."""
        os.makedirs(settings.state, 0o700, exist_ok=True)
        self.settings = settings
        self._early = early
        self.activity = Activity()
        self.disk_limit = DiskLimit(settings.disk_notice)
        self.processes = Processes(self.disk_limit)
        self.environment = Environment(settings)
        self._lock = threading.RLock()
        self._claimed = False
        self._commands: Commands | None = None
        self._sessions: Sessions | None = None
        self._contexts: Contexts | None = None
        self._terminals: Terminals | None = None
        self._meter: Meter | None = None
        self._services: Services | None = None
        self._worker: Worker | None = None

    def start_entrypoint(self, words: tuple[str, ...]) -> None:
        from .commands import ENTRYPOINT, CommandRequest

        self.commands.start(CommandRequest({"argv": list(words)}), ENTRYPOINT)

    @property
    def entrypoint(self) -> Command | None:
        from .commands import ENTRYPOINT

        return self.commands.find(ENTRYPOINT)

    def claim(self, env: dict[str, str], entrypoint: tuple[str, ...] | None, cwd: str | None) -> None:
        """Turn a box from a pool into somebody's box; possible once."""
        with self._lock:
            if self._claimed:
                raise ApiError(409, "ALREADY_CLAIMED", "this box has been claimed already")
            if cwd is not None and not os.path.isdir(cwd):
                raise ApiError(400, "INVALID_REQUEST_BODY", f"the working directory does not exist: {cwd}")
            self._claimed = True
            self.environment.box = env
            self.environment.cwd = cwd or self.environment.cwd
            worker = self._worker
        if worker is not None:
            worker.renew()
        if entrypoint is not None:
            self.start_entrypoint(entrypoint)

    def close(self) -> None:
        """Keep anything from being started again while the box ends."""
        with self._lock:
            if self._services is not None:
                self._services.close()

    @property
    def commands(self) -> Commands:
        with self._lock:
            if self._commands is None:
                from .commands import Commands

                self._commands = Commands(self.processes, self.environment, self.settings.state)
            return self._commands

    @property
    def services(self) -> Services:
        with self._lock:
            if self._services is None:
                from .services import Services

                self._services = Services(
                    self.settings.services,
                    self.processes,
                    self.environment,
                    self.settings.state,
                    when_under_way=lambda: threading.Thread(target=self.worker.warm, daemon=True).start(),
                )
                if self.settings.early is not None and self._early is not None:
                    self._services.adopt(self.settings.early, self._early)
            return self._services

    @property
    def worker(self) -> Worker:
        with self._lock:
            if self._worker is None:
                from .worker import Worker

                self._worker = Worker(self.processes, self.environment, self.settings.state)
            return self._worker

    @property
    def sessions(self) -> Sessions:
        with self._lock:
            if self._sessions is None:
                from .sessions import Sessions

                self._sessions = Sessions(self.processes, self.environment, self.settings.state)
            return self._sessions

    @property
    def contexts(self) -> Contexts:
        with self._lock:
            if self._contexts is None:
                from .contexts import Contexts

                self._contexts = Contexts(self.processes, self.environment, self.settings.state)
            return self._contexts

    @property
    def terminals(self) -> Terminals:
        with self._lock:
            if self._terminals is None:
                from .terminals import Terminals

                self._terminals = Terminals(self.processes, self.environment, self.settings.user.shell)
            return self._terminals

    @property
    def meter(self) -> Meter:
        with self._lock:
            if self._meter is None:
                from .metrics import Meter

                self._meter = Meter(self.settings.limits)
            return self._meter

"""State of the daemon: its components, created on first use and passed to the handlers."""

from __future__ import annotations

import os
import threading

from .errors import ApiError
from .exec.disk_limit import DiskLimitGuard
from .exec.environment import ProcessEnvironment
from .exec.processes import ProcessRegistry
from .http.worker_threads import WorkerThreads
from .idle_tracker import IdleTracker
from .settings import DaemonSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .exec.bash_sessions import BashSessions
    from .exec.code_contexts import CodeContexts
    from .exec.commands import CommandExecution, CommandRegistry
    from .exec.terminals import ShellTerminals
    from .resource_meter import ResourceMeter
    from .services.supervisor import ServiceSupervisor
    from .services.tool_worker import ToolWorker


class Daemon:
    """Owns the daemon's components; optional ones are created on first access."""

    def __init__(self, settings: DaemonSettings, early: int | None = None) -> None:
        """`early` is the pid of the service process that was started before the daemon, if any."""
        os.makedirs(settings.state, 0o700, exist_ok=True)
        self.settings = settings
        self._early = early
        self.threads = WorkerThreads()
        self.idle_tracker = IdleTracker()
        self.disk_limit = DiskLimitGuard(settings.disk_notice)
        self.processes = ProcessRegistry(self.disk_limit, self.threads)
        self.environment = ProcessEnvironment(settings)
        self._lock = threading.RLock()
        self._claimed = False
        self._commands: CommandRegistry | None = None
        self._bash_sessions: BashSessions | None = None
        self._code_contexts: CodeContexts | None = None
        self._terminals: ShellTerminals | None = None
        self._resource_meter: ResourceMeter | None = None
        self._services: ServiceSupervisor | None = None
        self._tool_worker: ToolWorker | None = None

    def start_entrypoint(self, words: tuple[str, ...]) -> None:
        from .exec.commands import ENTRYPOINT_ID, CommandRequest

        self.commands.start_background(CommandRequest({"argv": list(words)}), ENTRYPOINT_ID)

    @property
    def entrypoint(self) -> CommandExecution | None:
        from .exec.commands import ENTRYPOINT_ID

        return self.commands.find(ENTRYPOINT_ID)

    def claim_from_pool(self, env: dict[str, str], entrypoint: tuple[str, ...] | None, cwd: str | None) -> None:
        """Give a pooled sandbox its owner's variables, entrypoint and working directory; possible once."""
        with self._lock:
            if self._claimed:
                raise ApiError(409, "ALREADY_CLAIMED", "this sandbox has been claimed already")
            if cwd is not None and not os.path.isdir(cwd):
                raise ApiError(400, "INVALID_REQUEST_BODY", f"the working directory does not exist: {cwd}")
            self._claimed = True
            self.environment.sandbox_variables = env
            self.environment.cwd = cwd or self.environment.cwd
            worker = self._tool_worker
        if worker is not None:
            worker.update_environment()
        if entrypoint is not None:
            self.start_entrypoint(entrypoint)

    def close(self) -> None:
        """Stop restarting services, because the sandbox shuts down."""
        with self._lock:
            if self._services is not None:
                self._services.close()

    @property
    def commands(self) -> CommandRegistry:
        with self._lock:
            if self._commands is None:
                from .exec.commands import CommandRegistry

                self._commands = CommandRegistry(self.processes, self.environment, self.settings.state)
            return self._commands

    @property
    def services(self) -> ServiceSupervisor:
        with self._lock:
            if self._services is None:
                from .services.supervisor import ServiceSupervisor

                self._services = ServiceSupervisor(
                    self.settings.services,
                    self.processes,
                    self.environment,
                    self.settings.state,
                    on_all_started=lambda: threading.Thread(target=self.tool_worker.start_ahead, daemon=True).start(),
                )
                if self.settings.early is not None and self._early is not None:
                    self._services.adopt_early_service(self.settings.early, self._early)
            return self._services

    @property
    def tool_worker(self) -> ToolWorker:
        with self._lock:
            if self._tool_worker is None:
                from .services.tool_worker import ToolWorker

                self._tool_worker = ToolWorker(self.processes, self.environment, self.settings.state)
            return self._tool_worker

    @property
    def bash_sessions(self) -> BashSessions:
        with self._lock:
            if self._bash_sessions is None:
                from .exec.bash_sessions import BashSessions

                self._bash_sessions = BashSessions(self.processes, self.environment, self.settings.state)
            return self._bash_sessions

    @property
    def code_contexts(self) -> CodeContexts:
        with self._lock:
            if self._code_contexts is None:
                from .exec.code_contexts import CodeContexts

                self._code_contexts = CodeContexts(self.processes, self.environment, self.settings.state)
            return self._code_contexts

    @property
    def terminals(self) -> ShellTerminals:
        with self._lock:
            if self._terminals is None:
                from .exec.terminals import ShellTerminals

                self._terminals = ShellTerminals(self.processes, self.environment, self.settings.user.shell)
            return self._terminals

    @property
    def resource_meter(self) -> ResourceMeter:
        with self._lock:
            if self._resource_meter is None:
                from .resource_meter import ResourceMeter

                self._resource_meter = ResourceMeter(self.settings.limits)
            return self._resource_meter

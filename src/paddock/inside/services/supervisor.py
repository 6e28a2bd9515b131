"""Supervises services such as the display: starts them in order and restarts them when they die."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections import deque

from ..errors import ApiError, invalid_body_error
from ..exec.environment import ProcessEnvironment
from ..exec.processes import NOT_FOUND, ChildProcess, ProcessRegistry
from ..file_descriptors import READ_SIZE
from ..settings import EarlyServiceSettings, ServiceSettings
from .bounded_log import BoundedLogFile
from .display_startup import DISPLAY_SERVICE, DisplayStartup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

FIRST_DELAY, MAX_DELAY = 0.1, 5.0
STABLE_SECONDS = 10.0
"""Seconds of uptime after which the restart delay is reset."""
READY_POLL_MS, SLOW_POLL_MS = 2, 100
"""Milliseconds between two looks for a service's ready path; slower once it has taken `STABLE_SECONDS`."""
MAX_CHANGES = 256
LOG_LINES = 20

STOPPED, STOPPING, WAITING, STARTING, READY, FAILED = "stopped", "stopping", "waiting", "starting", "ready", "failed"


class SupervisedService:
    """One supervised program and its state."""

    def __init__(self, settings: ServiceSettings, log: BoundedLogFile) -> None:
        self.settings = settings
        self.name = settings.name
        self.log = log
        self.output, self.output_writer = os.pipe()
        self.is_wanted = True
        self.is_stopping = False
        """True if it was signalled to stop and has not ended yet."""
        self.state = WAITING
        self.child: ChildProcess | None = None
        self.starts = 0
        self.started = 0.0
        self.retry_at = 0.0
        self.retry_delay = FIRST_DELAY
        self.exit_code: int | None = None
        self.message = ""
        """Why the last process ended or could not start."""

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "ready": self.state == READY,
            "pid": self.child.pid if self.child is not None else None,
            "starts": self.starts,
            "exit_code": self.exit_code,
            "message": self.message,
        }


class ServiceSupervisor:
    """Supervises all services of a sandbox in one thread.

    A service starts once the services it comes after are ready; a late one also waits for the display's startup. A
    service that dies is restarted with exponential backoff, without touching the others. A stopped service stays
    stopped until it is started. `on_all_started` is called once, when no service waits for another or the display.
    """

    def __init__(
        self,
        settings: Sequence[ServiceSettings],
        processes: ProcessRegistry,
        environment: ProcessEnvironment,
        directory: str,
        on_all_started: Callable[[], None] = lambda: None,
    ) -> None:
        self._processes = processes
        self._environment = environment
        self._on_all_started = on_all_started
        self._all_started = False
        self._changed = threading.Condition()
        self._version = 1
        self._changes: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MAX_CHANGES)
        self._closed = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        os.set_blocking(self._wake_reader, False)
        logs = os.path.join(directory, "services")
        os.makedirs(logs, 0o700, exist_ok=True)
        self._all = {
            each.name: SupervisedService(each, BoundedLogFile(os.path.join(logs, f"{each.name}.log")))
            for each in settings
        }
        self._display_startup = DisplayStartup(environment, expected=DISPLAY_SERVICE in self._all)

    def adopt_early_service(self, early: EarlyServiceSettings, pid: int) -> None:
        """Take over a service that was started before the daemon. Call it before `start_supervising`."""
        service = self._all[early.service]
        for descriptor in (service.output, service.output_writer):
            os.close(descriptor)
        service.output = service.output_writer = early.output
        service.child = self._processes.adopt(pid, early.marker)
        service.starts, service.started, service.state = 1, time.monotonic(), STARTING

    def start_supervising(self) -> None:
        if self._all:
            threading.Thread(target=self._supervise, daemon=True).start()

    def is_wanted(self, name: str) -> bool:
        """True if a service of that name exists and should run."""
        return name in self._all and self._all[name].is_wanted

    def documents(self) -> list[dict[str, Any]]:
        with self._changed:
            found = [(service, service.document()) for service in self._all.values()]
        return [{**document, "log": service.log.tail(LOG_LINES)} for service, document in found]

    def start(self, names: Sequence[str] | None, timeout: float) -> None:
        """Start services and wait at most `timeout` seconds until they are ready."""
        selected = self._select_services(names)
        with self._changed:
            for service in selected:
                service.is_wanted = True
                if service.child is None:
                    service.retry_at, service.retry_delay = 0.0, FIRST_DELAY
        self._wake()
        self.wait_ready([service.name for service in selected], timeout)

    def stop(self, names: Sequence[str] | None, timeout: float) -> None:
        """Stop services and wait at most `timeout` seconds until they have ended."""
        selected = self._select_services(names)
        with self._changed:
            for service in selected:
                service.is_wanted = False
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: all(service.state == STOPPED for service in selected), timeout)

    def wait_ready(self, names: Iterable[str], timeout: float) -> bool:
        """Wait until services are ready; False on timeout or if one was stopped."""
        selected = [self._all[name] for name in names]
        with self._changed:
            self._changed.wait_for(
                lambda: all(service.state == READY or not service.is_wanted for service in selected), timeout
            )
            return all(service.state == READY for service in selected)

    def changes_since(self, seen: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the current version and the changes since version `seen`; all services if that is too long ago."""
        with self._changed:
            if seen == 0 or (self._changes and seen + 1 < self._changes[0][0]):
                return self._version, [service.document() for service in self._all.values()]
            return self._version, [document for version, document in self._changes if version > seen]

    def wait_beyond(self, seen: int, timeout: float) -> bool:
        """Wait for a change after version `seen`; False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version > seen, timeout)

    def close(self) -> None:
        """Stop supervising, because the sandbox shuts down."""
        self._closed = True
        self._wake()

    def _select_services(self, names: Sequence[str] | None) -> list[SupervisedService]:
        unknown = [name for name in names or () if name not in self._all]
        if unknown:
            known = ", ".join(self._all) or "none"
            raise invalid_body_error(f"unknown service {unknown[0]!r}; this sandbox has: {known}")
        return [service for service in self._all.values() if names is None or service.name in names]

    def _wake(self) -> None:
        try:
            os.write(self._wake_writer, b"!")
        except BlockingIOError:
            pass

    def _supervise(self) -> None:
        poller = select.poll()
        poller.register(self._wake_reader, select.POLLIN)
        outputs = {service.output: service for service in self._all.values()}
        for descriptor in outputs:
            poller.register(descriptor, select.POLLIN)
        while not self._closed:
            for service in self._all.values():
                self._advance(service)
            self._display_startup.check_display(
                ready=self.is_wanted(DISPLAY_SERVICE) and self._all[DISPLAY_SERVICE].state == READY
            )
            self._check_all_started()
            if (display_fd := self._display_startup.descriptor) is not None:
                poller.register(display_fd, select.POLLIN)
            endings = {service.child.exited_fd: service for service in self._all.values() if service.child is not None}
            for descriptor in endings:
                poller.register(descriptor, select.POLLIN)
            for descriptor, _ in poller.poll(self._poll_timeout_ms()):
                if descriptor == self._wake_reader:
                    os.read(self._wake_reader, READ_SIZE)
                elif descriptor in outputs:
                    outputs[descriptor].log.append(os.read(descriptor, READ_SIZE))
                elif descriptor != display_fd:
                    self._handle_exit(endings[descriptor])
            for descriptor in endings:
                poller.unregister(descriptor)
            if display_fd is not None:
                poller.unregister(display_fd)

    def _poll_timeout_ms(self) -> float | None:
        """Return the milliseconds until a check is due that no descriptor triggers."""
        now = time.monotonic()
        startup = self._display_startup.poll_timeout_ms()
        moments: list[float] = [] if startup is None else [startup]
        for service in self._all.values():
            if service.state == STARTING:
                moments.append(READY_POLL_MS if now - service.started < STABLE_SECONDS else SLOW_POLL_MS)
            elif service.state == FAILED:
                moments.append(max(0.0, service.retry_at - now) * 1000 + 1)
            elif not service.is_wanted and service.child is not None and not service.is_stopping:
                moments.append(SLOW_POLL_MS)
        return min(moments) if moments else None

    def _advance(self, service: SupervisedService) -> None:
        if not service.is_wanted:
            self._end(service)
        elif service.child is None:
            if time.monotonic() < service.retry_at:
                return
            held_back = service.settings.late and not self._display_startup.is_over
            if not held_back and all(self._all[name].state == READY for name in service.settings.after):
                self._start(service)
            else:
                self._set_state(service, WAITING)
        if service.state == STARTING and (service.settings.ready is None or os.path.lexists(service.settings.ready)):
            self._set_state(service, READY)

    def _start(self, service: SupervisedService) -> None:
        remove_ready_file(service.settings.ready)
        service.starts += 1
        service.started = time.monotonic()
        try:
            variables = self._environment.variables(service.settings.env)
            service.child = self._processes.spawn(
                service.settings.words,
                cwd=self._environment.working_directory("", variables),
                env=variables,
                marker=os.urandom(16).hex(),
                stdout=service.output_writer,
                stderr=service.output_writer,
            )
        except (OSError, ValueError, ApiError) as error:
            reason = f"{service.settings.words[0]}: {getattr(error, 'strerror', None) or error}"
            service.log.append(reason.encode("utf-8", "replace") + b"\n")
            self._fail(service, NOT_FOUND, reason)
        else:
            self._set_state(service, STARTING)

    def _end(self, service: SupervisedService) -> None:
        if service.child is None:
            self._set_state(service, STOPPED)
        elif not service.is_stopping:
            try:
                self._processes.terminate(service.child)
            except RuntimeError:  # The process limit is reached; try again later.
                return
            service.is_stopping = True
            self._set_state(service, STOPPING)

    def _handle_exit(self, service: SupervisedService) -> None:
        assert service.child is not None
        exit_code = service.child.wait(1.0)
        service.child.close()
        service.child = None
        if service.is_stopping:
            service.is_stopping = False
            service.exit_code = exit_code
            service.retry_at = 0.0
            self._set_state(service, STOPPED)
        else:
            self._fail(service, exit_code, f"ended with exit code {exit_code}")

    def _fail(self, service: SupervisedService, exit_code: int | None, message: str) -> None:
        now = time.monotonic()
        if now - service.started >= STABLE_SECONDS:
            service.retry_delay = FIRST_DELAY
        service.retry_at = now + service.retry_delay
        service.retry_delay = min(MAX_DELAY, service.retry_delay * 2)
        service.exit_code, service.message = exit_code, message
        self._set_state(service, FAILED)

    def _set_state(self, service: SupervisedService, state: str) -> None:
        if service.state == state:
            return
        with self._changed:
            service.state = state
            self._version += 1
            self._changes.append((self._version, service.document()))
            self._changed.notify_all()

    def _check_all_started(self) -> None:
        all_started = self._display_startup.is_over and all(
            service.state in (STARTING, READY) for service in self._all.values()
        )
        if all_started and not self._all_started:
            self._all_started = True
            self._on_all_started()


def remove_ready_file(path: str | None) -> None:
    """Remove the ready path that an earlier process of the service left behind."""
    try:
        if path is not None and stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFSOCK, stat.S_IFREG, stat.S_IFIFO):
            os.unlink(path)
    except OSError:
        pass

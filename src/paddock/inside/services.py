"""Programs that run in a box from its start on, such as its display: started in order, and again when they die."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections import deque

from .environment import Environment
from .errors import ApiError, invalid
from .greetings import DISPLAY, Opening
from .journals import Journal
from .pipes import READ_SIZE
from .processes import NOT_FOUND, Child, Processes
from .settings import Early, ServiceSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
STEADY = 10.0
"""Seconds of life after which a death is not held against the next one."""
LOOK_MS, LOOK_LONGER_MS = 2, 100
"""How often a path is looked for that says that a service is ready; slower once it has taken `STEADY` seconds."""
KEPT_CHANGES = 256
LOG_LINES = 20

STOPPED, STOPPING, WAITING, STARTING, READY, FAILED = "stopped", "stopping", "waiting", "starting", "ready", "failed"


class Service:
    """One program, and how it has fared."""

    def __init__(self, settings: ServiceSettings, journal: Journal) -> None:
        self.settings = settings
        self.name = settings.name
        self.journal = journal
        self.output, self.output_writer = os.pipe()
        self.wanted = True
        self.ending = False
        """Whether it was told to end and has not yet."""
        self.state = WAITING
        self.child: Child | None = None
        self.starts = 0
        self.started = 0.0
        self.due = 0.0
        self.delay = FIRST_DELAY
        self.exit_code: int | None = None
        self.message = ""
        """What became of its last life."""

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


class Services:
    """All services of a box, in the hands of one thread.

    A service starts once those it comes after are ready, and one that is late not before the display's opening is over.
    One that dies is started again after a while that grows while it keeps dying; the others are left alone. One that is
    stopped stays so until it is started. `when_under_way` is called once, when for the first time there is none left
    that waits for another or for the display.
    """

    def __init__(
        self,
        settings: Sequence[ServiceSettings],
        processes: Processes,
        environment: Environment,
        directory: str,
        when_under_way: Callable[[], None] = lambda: None,
    ) -> None:
        self._processes = processes
        self._environment = environment
        self._when_under_way = when_under_way
        self._been_under_way = False
        self._changed = threading.Condition()
        self._version = 1
        self._changes: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT_CHANGES)
        self._closed = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        logs = os.path.join(directory, "services")
        os.makedirs(logs, 0o700, exist_ok=True)
        self._all = {each.name: Service(each, Journal(os.path.join(logs, f"{each.name}.log"))) for each in settings}
        self._opening = Opening(environment, expected=DISPLAY in self._all)

    def adopt(self, early: Early, pid: int) -> None:
        """Take over a service that was started before the daemon. To be called before `begin`."""
        service = self._all[early.service]
        for descriptor in (service.output, service.output_writer):
            os.close(descriptor)
        service.output = service.output_writer = early.output
        service.child = self._processes.adopt(pid, early.marker)
        service.starts, service.started, service.state = 1, time.monotonic(), STARTING

    def begin(self) -> None:
        if self._all:
            threading.Thread(target=self._supervise, daemon=True).start()

    def has(self, name: str) -> bool:
        """Whether there is a service of that name which is meant to run."""
        return name in self._all and self._all[name].wanted

    def documents(self) -> list[dict[str, Any]]:
        with self._changed:
            found = [(service, service.document()) for service in self._all.values()]
        return [{**document, "log": service.journal.tail(LOG_LINES)} for service, document in found]

    def start(self, names: Sequence[str] | None, timeout: float) -> None:
        """See to it that services run, and wait until they are ready, though not longer than `timeout`."""
        chosen = self._choose(names)
        with self._changed:
            for service in chosen:
                service.wanted = True
                if service.child is None:
                    service.due, service.delay = 0.0, FIRST_DELAY
        self._wake()
        self.wait_ready([service.name for service in chosen], timeout)

    def stop(self, names: Sequence[str] | None, timeout: float) -> None:
        """End services, and wait until they have ended, though not longer than `timeout`."""
        chosen = self._choose(names)
        with self._changed:
            for service in chosen:
                service.wanted = False
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: all(service.state == STOPPED for service in chosen), timeout)

    def wait_ready(self, names: Iterable[str], timeout: float) -> bool:
        """Wait until services are ready; False when they are not in time, or have been stopped."""
        chosen = [self._all[name] for name in names]
        with self._changed:
            self._changed.wait_for(
                lambda: all(service.state == READY or not service.wanted for service in chosen), timeout
            )
            return all(service.state == READY for service in chosen)

    def changes(self, seen: int) -> tuple[int, list[dict[str, Any]]]:
        """Return what has changed since the version `seen`, and the present one; all, if that is too long ago."""
        with self._changed:
            if seen == 0 or (self._changes and seen + 1 < self._changes[0][0]):
                return self._version, [service.document() for service in self._all.values()]
            return self._version, [document for version, document in self._changes if version > seen]

    def wait_beyond(self, seen: int, timeout: float) -> bool:
        """Wait for a change after the version `seen`; False when there is none in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version > seen, timeout)

    def close(self) -> None:
        """Start nothing any more: the box ends."""
        self._closed = True
        self._wake()

    def _choose(self, names: Sequence[str] | None) -> list[Service]:
        unknown = [name for name in names or () if name not in self._all]
        if unknown:
            known = ", ".join(self._all) or "none"
            raise invalid(f"there is no service {unknown[0]!r} in this box; it has: {known}")
        return [service for service in self._all.values() if names is None or service.name in names]

    def _wake(self) -> None:
        try:
            os.write(self._waker, b"!")
        except BlockingIOError:
            pass

    def _supervise(self) -> None:
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        outputs = {service.output: service for service in self._all.values()}
        for descriptor in outputs:
            poller.register(descriptor, select.POLLIN)
        while not self._closed:
            for service in self._all.values():
                self._tend(service)
            self._opening.look(ready=self.has(DISPLAY) and self._all[DISPLAY].state == READY)
            self._look_whether_under_way()
            if (first_word := self._opening.descriptor) is not None:
                poller.register(first_word, select.POLLIN)
            endings = {service.child.exited_fd: service for service in self._all.values() if service.child is not None}
            for descriptor in endings:
                poller.register(descriptor, select.POLLIN)
            for descriptor, _ in poller.poll(self._patience()):
                if descriptor == self._woken:
                    os.read(self._woken, READ_SIZE)
                elif descriptor in outputs:
                    outputs[descriptor].journal.append(os.read(descriptor, READ_SIZE))
                elif descriptor != first_word:
                    self._bury(endings[descriptor])
            for descriptor in endings:
                poller.unregister(descriptor)
            if first_word is not None:
                poller.unregister(first_word)

    def _patience(self) -> float | None:
        """Milliseconds until something is due that no descriptor tells of."""
        now = time.monotonic()
        opening = self._opening.patience()
        moments: list[float] = [] if opening is None else [opening]
        for service in self._all.values():
            if service.state == STARTING:
                moments.append(LOOK_MS if now - service.started < STEADY else LOOK_LONGER_MS)
            elif service.state == FAILED:
                moments.append(max(0.0, service.due - now) * 1000 + 1)
            elif not service.wanted and service.child is not None and not service.ending:
                moments.append(LOOK_LONGER_MS)
        return min(moments) if moments else None

    def _tend(self, service: Service) -> None:
        if not service.wanted:
            self._end(service)
        elif service.child is None:
            if time.monotonic() < service.due:
                return
            held_back = service.settings.late and not self._opening.over
            if not held_back and all(self._all[name].state == READY for name in service.settings.after):
                self._start(service)
            else:
                self._tell(service, WAITING)
        if service.state == STARTING and (service.settings.ready is None or os.path.lexists(service.settings.ready)):
            self._tell(service, READY)

    def _start(self, service: Service) -> None:
        clear(service.settings.ready)
        service.starts += 1
        service.started = time.monotonic()
        try:
            variables = self._environment.variables(service.settings.env)
            service.child = self._processes.spawn(
                service.settings.words,
                cwd=self._environment.directory("", variables),
                env=variables,
                marker=os.urandom(16).hex(),
                stdout=service.output_writer,
                stderr=service.output_writer,
            )
        except (OSError, ValueError, ApiError) as error:
            why = f"{service.settings.words[0]}: {getattr(error, 'strerror', None) or error}"
            service.journal.append(why.encode("utf-8", "replace") + b"\n")
            self._fail(service, NOT_FOUND, why)
        else:
            self._tell(service, STARTING)

    def _end(self, service: Service) -> None:
        if service.child is None:
            self._tell(service, STOPPED)
        elif not service.ending:
            try:
                self._processes.terminate(service.child)
            except RuntimeError:  # The box has no room for another thread; some will end.
                return
            service.ending = True
            self._tell(service, STOPPING)

    def _bury(self, service: Service) -> None:
        assert service.child is not None
        exit_code = service.child.wait(1.0)
        service.child.close()
        service.child = None
        if service.ending:
            service.ending = False
            service.exit_code = exit_code
            service.due = 0.0
            self._tell(service, STOPPED)
        else:
            self._fail(service, exit_code, f"ended with exit code {exit_code}")

    def _fail(self, service: Service, exit_code: int | None, message: str) -> None:
        now = time.monotonic()
        if now - service.started >= STEADY:
            service.delay = FIRST_DELAY
        service.due = now + service.delay
        service.delay = min(LONGEST_DELAY, service.delay * 2)
        service.exit_code, service.message = exit_code, message
        self._tell(service, FAILED)

    def _tell(self, service: Service, state: str) -> None:
        if service.state == state:
            return
        with self._changed:
            service.state = state
            self._version += 1
            self._changes.append((self._version, service.document()))
            self._changed.notify_all()

    def _look_whether_under_way(self) -> None:
        begun = self._opening.over and all(service.state in (STARTING, READY) for service in self._all.values())
        if begun and not self._been_under_way:
            self._been_under_way = True
            self._when_under_way()


def clear(path: str | None) -> None:
    """Remove what an earlier life left behind to say that it is ready."""
    try:
        if path is not None and stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFSOCK, stat.S_IFREG, stat.S_IFIFO):
            os.unlink(path)
    except OSError:
        pass

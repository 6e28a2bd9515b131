"""The connection to the box's X server, made anew whenever the server went away."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import contextmanager

from .results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PATIENCE = 8.0
"""Seconds that a call waits for another one which the X server does not answer."""


class DesktopGone(ToolError):
    """The desktop is not running."""


class Display:
    """Hands out the connection to one caller at a time."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or os.environ.get("DISPLAY") or ""
        self._turn = threading.RLock()
        self._connection: Connection | None = None

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Hold the connection. Raises DesktopGone when there is no server, ToolError when a window is gone."""
        if not self._turn.acquire(timeout=PATIENCE):
            stuck = self._connection
            if stuck is not None:
                stuck.abort()
            raise ToolError("the desktop does not answer; another call is waiting for it, try again")
        try:
            from Xlib import error

            try:
                connection = self._connected()
                connection.read_events()
                yield connection
                connection.handle_queued()
            except (error.ConnectionClosedError, error.DisplayError, OSError) as problem:
                self._forget()
                if isinstance(problem, OSError) and not isinstance(problem, ConnectionError):
                    raise
                raise DesktopGone(self._gone()) from None
            except (error.BadWindow, error.BadDrawable, error.BadMatch):
                raise ToolError("the window has just vanished; list_windows shows those that are there") from None
        finally:
            self._turn.release()

    def wait(self, serial: int, timeout: float) -> bool:
        """Wait until the screen has changed since `serial`; False when it has not by then."""
        reader, writer = os.pipe()
        deadline = time.monotonic() + timeout
        try:
            os.set_blocking(writer, False)
            while True:
                with self.session() as connection:
                    connection.arm()
                    if connection.serial != serial:
                        return True
                    connection.wakeups.add(writer)
                    descriptor = connection.fileno()
                try:
                    remaining = deadline - time.monotonic()
                    if remaining <= 0:
                        return False
                    poller = select.poll()
                    poller.register(descriptor, select.POLLIN)
                    poller.register(reader, select.POLLIN)
                    if poller.poll(remaining * 1000 + 1) and select.select([reader], [], [], 0)[0]:
                        os.read(reader, 512)
                finally:
                    connection.wakeups.discard(writer)
        finally:
            os.close(reader)
            os.close(writer)

    def _connected(self) -> Connection:
        if self._connection is not None and self._connection.lost():
            self._forget()
        if self._connection is None:
            if not self.name:
                raise DesktopGone("this sandbox has no screen; create one of kind linux")
            self._connection = Connection(self.name)
        return self._connection

    def _forget(self) -> None:
        lost, self._connection = self._connection, None
        if lost is not None:
            lost.close()

    def _gone(self) -> str:
        return f"the desktop is not running (no X server answers on {self.name}); start it, or wait until it is back"


class Connection:
    """One connection, and what is known about the server it leads to."""

    def __init__(self, name: str) -> None:
        from Xlib import X, display
        from Xlib.ext import damage

        self.x = display.Display(name)
        self.x.set_error_handler(lambda *_: None)
        self.root = self.x.screen().root
        self.root.change_attributes(event_mask=X.StructureNotifyMask)
        geometry = self.root.get_geometry()
        self.width: int = geometry.width
        self.height: int = geometry.height
        self.identity = os.urandom(4).hex()
        self.serial = int(time.monotonic() * 1000)  # Never one that an earlier connection had.
        self.wakeups: set[int] = set()
        self.cache: dict[str, Any] = {}
        self._configure, self._mapping = X.ConfigureNotify, X.MappingNotify
        self._armed = True
        self._damaged = -1
        self._damage = 0
        if self.x.has_extension("DAMAGE"):
            self.x.damage_query_version()
            self._damaged = self.x.extension_event.DamageNotify
            self._damage = self.root.damage_create(damage.DamageReportNonEmpty)
            self.x.sync()

    def fileno(self) -> int:
        descriptor: int = self.x.fileno()
        return descriptor

    def atom(self, name: str) -> int:
        atoms = self.cache.setdefault("atoms", {})
        if name not in atoms:
            atoms[name] = self.x.intern_atom(name)
        found: int = atoms[name]
        return found

    def lost(self) -> bool:
        """Whether the server has closed the connection, seen without asking it anything."""
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN | select.POLLRDHUP)
        return any(flags & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, flags in poller.poll(0))

    def arm(self) -> None:
        """Ask to be told of the next change, when the last one has been told."""
        if not self._armed:
            self._armed = True
            self.x.damage_subtract(self._damage)
        self.x.sync()
        self.handle_queued()

    def read_events(self) -> None:
        """Take in what the server has said by now."""
        if self.x.pending_events():
            self.handle_queued()

    def handle_queued(self) -> None:
        queue = self.x.display.event_queue
        changed = False
        while queue:
            event = self.x.next_event()
            if event.type == self._damaged:
                self._armed = False
                changed = True
            elif event.type == self._configure and event.window == self.root:
                self.width, self.height = event.width, event.height
                self.cache.pop("memory", None)
                changed = True
            elif event.type == self._mapping:
                self.cache.pop("keys", None)
        if changed:
            self.serial += 1
            for descriptor in list(self.wakeups):
                try:
                    os.write(descriptor, b"!")
                except OSError:
                    pass

    def abort(self) -> None:
        """Make whoever waits for the server's answer fail."""
        try:
            self.x.display.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.cache.clear()
        for descriptor in list(self.wakeups):
            try:
                os.write(descriptor, b"!")
            except OSError:
                pass
        self.abort()
        try:
            self.x.display.socket.close()
        except OSError:
            pass

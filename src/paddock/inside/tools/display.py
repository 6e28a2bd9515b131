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

    from .callers import Caller

PATIENCE = 4.0
"""Seconds after which an X server that does not answer is given up."""
GREETING = 3.0
"""Seconds in which an X server is expected to greet a new client."""

START = "start it with POST /v1/sandboxes/{id}/desktop"
NO_ANSWER = "the desktop does not answer; it hangs, or is busy: try again or start it anew"

_HELLO = b"l\0\x0b\0" + bytes(8)  # Little-endian, protocol 11.0, no authorisation.


class DesktopGone(ToolError):
    """The desktop is not running."""


class NoScreen(DesktopGone):
    """There is no desktop that could run."""


class Display:
    """Hands out the connection to one caller at a time."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or os.environ.get("DISPLAY") or ""
        self._turn = threading.RLock()
        self._connection: Connection | None = None
        self._since: float | None = None
        self._used = threading.Event()
        self._watch: threading.Thread | None = None

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Hold the connection. Raises DesktopGone when there is no server, ToolError when a window is gone."""
        error = _errors(self.name)
        if not self._turn.acquire(timeout=2 * PATIENCE):
            raise ToolError("the desktop does not answer; try again")
        outermost = self._since is None
        try:
            if outermost:
                self._since = time.monotonic()
                self._used.set()
            try:
                connection = self._connected()
                connection.read_events()
                yield connection
                connection.handle_queued()
            except (error.ConnectionClosedError, error.DisplayError, ConnectionError):
                stuck = self._connection is not None and self._connection.aborted
                self._forget()
                raise DesktopGone(NO_ANSWER if stuck else _gone(self.name)) from None
            except (error.BadWindow, error.BadDrawable, error.BadMatch):
                raise ToolError("the window has just vanished; list_windows shows those that are there") from None
        finally:
            if outermost:
                self._since = None
            self._turn.release()

    def wait(self, serial: int, timeout: float, caller: Caller | None = None) -> bool:
        """Wait until the screen has changed since `serial`; False when it has not by then.

        Raises HungUp when that is of no use to the `caller` any more.
        """
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
                    if caller is not None:
                        caller.join(poller)
                    ready = poller.poll(remaining * 1000 + 1)
                    if caller is not None:
                        caller.check()
                    if ready and select.select([reader], [], [], 0)[0]:
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
            self._connection = Connection(open_display(self.name))
            if self._watch is None:
                self._watch = threading.Thread(target=self._guard, daemon=True)
                self._watch.start()
        return self._connection

    def _guard(self) -> None:
        """Break off what the server leaves without an answer; asleep while nobody uses the connection."""
        while True:
            self._used.wait()
            self._used.clear()
            time.sleep(PATIENCE / 4)
            since, connection = self._since, self._connection
            if since is None:
                continue
            self._used.set()
            if connection is not None and time.monotonic() - since > PATIENCE:
                connection.abort()

    def _forget(self) -> None:
        lost, self._connection = self._connection, None
        if lost is not None:
            lost.close()


def open_display(name: str) -> Any:
    """Connect to an X server. Raises DesktopGone when there is none that answers."""
    error = _errors(name)
    from Xlib import display

    if name.startswith(":") and not _greets(name):
        raise DesktopGone(NO_ANSWER)
    try:
        x = display.Display(name)
    except (error.DisplayError, error.ConnectionClosedError, ConnectionError):
        raise DesktopGone(_gone(name)) from None
    x.set_error_handler(lambda *_: None)
    return x


def _errors(name: str) -> Any:
    """Return what may go wrong with an X server. Raises NoScreen in a box that cannot have one."""
    if not name:
        raise NoScreen("this sandbox has no screen; make one of a kind that has, such as linux")
    try:
        from Xlib import error
    except ImportError:
        raise NoScreen("this sandbox has no screen: its image brings no python3-xlib") from None
    return error


def socket_path(name: str) -> str:
    """Return where the X server of a display of this machine listens."""
    return f"/tmp/.X11-unix/X{name[1:].partition('.')[0]}"


def _greets(name: str) -> bool:
    """Whether the server takes clients; python-xlib would wait for ever for one that hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(GREETING)
        try:
            probe.connect(socket_path(name))
            probe.sendall(_HELLO)
            return bool(probe.recv(1))
        except socket.timeout:
            return False
        except OSError:
            raise DesktopGone(_gone(name)) from None


def _gone(name: str) -> str:
    return f"the desktop is not running (no X server answers on {name}); {START}, or wait until it is back"


class Connection:
    """One connection, and what is known about the server it leads to."""

    aborted = False

    def __init__(self, x: Any) -> None:
        from Xlib import X
        from Xlib.ext import damage

        self.x = x
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
        if not self._damage:
            self.serial += 1  # A server that tells nothing may have changed at any time.
        elif not self._armed:
            self._armed = True
            # What has changed since the last one was told is forgotten here, and may be newer than any picture.
            self.serial += 1
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
        self.aborted = True
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

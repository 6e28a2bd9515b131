"""Connection to the sandbox's X server, reconnected whenever the server was restarted."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import contextmanager

from ..tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..caller_connection import CallerConnection

ANSWER_TIMEOUT = 4.0
"""Seconds after which the connection to an unresponsive X server is aborted."""
CONNECT_TIMEOUT = 3.0
"""Seconds an X server gets to accept a new client."""

START_HINT = "start it with POST /v1/sandboxes/{id}/desktop"
NO_ANSWER_MESSAGE = "the desktop does not answer because it hangs or is busy; try again or restart it"

_HELLO = b"l\0\x0b\0" + bytes(8)  # Little-endian, protocol 11.0, no authorisation.


class DesktopUnavailable(ToolError):
    """The desktop is not running."""


class NoDesktop(DesktopUnavailable):
    """This sandbox has no desktop at all."""


class XDisplay:
    """Gives one thread at a time access to the X connection."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or os.environ.get("DISPLAY") or ""
        self._access = threading.RLock()
        self._connection: XConnection | None = None
        self._held_since: float | None = None
        self._used = threading.Event()
        self._watchdog: threading.Thread | None = None

    @contextmanager
    def connection(self) -> Iterator[XConnection]:
        """Hold the connection. Raises DesktopUnavailable without a server, ToolError if a window is gone."""
        error = _xlib_errors(self.name)
        if not self._access.acquire(timeout=2 * ANSWER_TIMEOUT):
            raise ToolError("the desktop does not answer; try again")
        outermost = self._held_since is None
        try:
            if outermost:
                self._held_since = time.monotonic()
                self._used.set()
            try:
                connection = self._connect()
                connection.read_events()
                yield connection
                connection.handle_queued()
            except (error.ConnectionClosedError, error.DisplayError, ConnectionError):
                was_aborted = self._connection is not None and self._connection.aborted
                self._drop_connection()
                raise DesktopUnavailable(
                    NO_ANSWER_MESSAGE if was_aborted else _not_running_message(self.name)
                ) from None
            except (error.BadWindow, error.BadDrawable, error.BadMatch):
                raise ToolError("the window has just vanished; list_windows lists the open ones") from None
        finally:
            if outermost:
                self._held_since = None
            self._access.release()

    def wait_for_change(self, serial: int, timeout: float, caller: CallerConnection | None = None) -> bool:
        """Wait until the screen has changed since `serial`; False on timeout.

        Raises CallerDisconnected as soon as `caller` has disconnected.
        """
        reader, writer = os.pipe()
        deadline = time.monotonic() + timeout
        try:
            os.set_blocking(writer, False)
            while True:
                with self.connection() as connection:
                    connection.request_change_event()
                    if connection.change_serial != serial:
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
                        caller.register_with(poller)
                    ready = poller.poll(remaining * 1000 + 1)
                    if caller is not None:
                        caller.raise_if_disconnected()
                    if ready and select.select([reader], [], [], 0)[0]:
                        os.read(reader, 512)
                finally:
                    connection.wakeups.discard(writer)
        finally:
            os.close(reader)
            os.close(writer)

    def _connect(self) -> XConnection:
        if self._connection is not None and self._connection.is_lost():
            self._drop_connection()
        if self._connection is None:
            self._connection = XConnection(open_x_display(self.name))
            if self._watchdog is None:
                self._watchdog = threading.Thread(target=self._abort_if_stuck, daemon=True)
                self._watchdog.start()
        return self._connection

    def _abort_if_stuck(self) -> None:
        """Abort the connection if the server leaves a request unanswered; sleeps while it is unused."""
        while True:
            self._used.wait()
            self._used.clear()
            time.sleep(ANSWER_TIMEOUT / 4)
            since, connection = self._held_since, self._connection
            if since is None:
                continue
            self._used.set()
            if connection is not None and time.monotonic() - since > ANSWER_TIMEOUT:
                connection.abort()

    def _drop_connection(self) -> None:
        lost, self._connection = self._connection, None
        if lost is not None:
            lost.close()


def open_x_display(name: str) -> Any:
    """Connect to an X server. Raises DesktopUnavailable if none answers."""
    error = _xlib_errors(name)
    from Xlib import display

    if name.startswith(":") and not _accepts_clients(name):
        raise DesktopUnavailable(NO_ANSWER_MESSAGE)
    try:
        x = display.Display(name)
    except (error.DisplayError, error.ConnectionClosedError, ConnectionError):
        raise DesktopUnavailable(_not_running_message(name)) from None
    x.set_error_handler(lambda *_: None)
    return x


def _xlib_errors(name: str) -> Any:
    """Return Xlib's error module. Raises NoDesktop in a sandbox without a screen."""
    if not name:
        raise NoDesktop("this sandbox has no screen; create one of a kind with a screen, such as linux")
    try:
        from Xlib import error
    except ImportError:
        raise NoDesktop("this sandbox has no screen: its image lacks python3-xlib") from None
    return error


def x_socket_path(name: str) -> str:
    """Return the Unix socket of a local X display."""
    return f"/tmp/.X11-unix/X{name[1:].partition('.')[0]}"


def _accepts_clients(name: str) -> bool:
    """True if the server accepts clients; python-xlib would wait for ever for one that hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT)
        try:
            probe.connect(x_socket_path(name))
            probe.sendall(_HELLO)
            return bool(probe.recv(1))
        except socket.timeout:
            return False
        except OSError:
            raise DesktopUnavailable(_not_running_message(name)) from None


def _not_running_message(name: str) -> str:
    return f"the desktop is not running (no X server answers on {name}); {START_HINT}, or wait until it is back"


class XConnection:
    """One connection to an X server, with the state of its screen and cached values."""

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
        self.change_serial = int(time.monotonic() * 1000)  # Larger than any serial of an earlier connection.
        self.wakeups: set[int] = set()
        self.cache: dict[str, Any] = {}
        self._configure, self._mapping = X.ConfigureNotify, X.MappingNotify
        self._is_armed = True
        self._damage_event_type = -1
        self._damage_object = 0
        if self.x.has_extension("DAMAGE"):
            self.x.damage_query_version()
            self._damage_event_type = self.x.extension_event.DamageNotify
            self._damage_object = self.root.damage_create(damage.DamageReportNonEmpty)
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

    def is_lost(self) -> bool:
        """True if the server has closed the connection, checked without a request."""
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN | select.POLLRDHUP)
        return any(flags & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, flags in poller.poll(0))

    def request_change_event(self) -> None:
        """Request an event for the next change, after the last one was received."""
        if not self._damage_object:
            self.change_serial += 1  # Without the DAMAGE extension, assume that the screen has changed.
        elif not self._is_armed:
            self._is_armed = True
            # Changes since the last event are discarded here and may be newer than any screenshot.
            self.change_serial += 1
            self.x.damage_subtract(self._damage_object)
        self.x.sync()
        self.handle_queued()

    def read_events(self) -> None:
        """Process the events received so far."""
        if self.x.pending_events():
            self.handle_queued()

    def handle_queued(self) -> None:
        queue = self.x.display.event_queue
        changed = False
        while queue:
            event = self.x.next_event()
            if event.type == self._damage_event_type:
                self._is_armed = False
                changed = True
            elif event.type == self._configure and event.window == self.root:
                self.width, self.height = event.width, event.height
                self.cache.pop("memory", None)
                changed = True
            elif event.type == self._mapping:
                self.cache.pop("keys", None)
        if changed:
            self.change_serial += 1
            for descriptor in list(self.wakeups):
                try:
                    os.write(descriptor, b"!")
                except OSError:
                    pass

    def abort(self) -> None:
        """Shut the socket down, so that threads waiting for the server fail."""
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

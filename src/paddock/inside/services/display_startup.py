"""Detects when the display is ready: a starting RFB server is silent, a ready one sends its version."""

from __future__ import annotations

import socket
import time

from ..exec.environment import ProcessEnvironment

DISPLAY_SERVICE = "display"
"""Name of the service that runs the display."""
SOCKET_VARIABLE, DEFAULT_PATH = "PADDOCK_DISPLAY_SOCKET", "/run/paddock/vnc.sock"
QUIET_SECONDS = 0.1
"""Seconds after the first RFB message in which late services still wait, because viewers connect now."""
RFB_VERSION_TIMEOUT = 5.0
"""Seconds after which late services start even if the display stays silent."""
SOCKET_POLL_MS = 2
"""Milliseconds between two looks for the display's socket."""


def display_socket_path(environment: ProcessEnvironment) -> str:
    return environment.variables({}).get(SOCKET_VARIABLE) or DEFAULT_PATH


class DisplayStartup:
    """The start phase of the display, in which late services are held back. Its methods never block."""

    def __init__(self, environment: ProcessEnvironment, expected: bool) -> None:
        self._environment = environment
        self._connection: socket.socket | None = None
        self._version_received = not expected
        self._ends_at = time.monotonic() + RFB_VERSION_TIMEOUT if expected else 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    @property
    def descriptor(self) -> int | None:
        """Descriptor that becomes readable when the display sends its version; None while there is no connection."""
        return self._connection.fileno() if self._connection is not None else None

    def poll_timeout_ms(self) -> float | None:
        """Return the milliseconds until `check_display` must be called even if the descriptor stays silent."""
        if self.is_over:
            return None
        left = (self._ends_at - time.monotonic()) * 1000 + 1
        return left if self._version_received or self._connection is not None else min(left, SOCKET_POLL_MS)

    def check_display(self, ready: bool) -> None:
        """Check whether the display has sent its version; `ready` says that it accepts connections."""
        if not self._version_received and not self.is_over and ready:
            if self._receive_version():
                self._version_received = True
                self._ends_at = min(self._ends_at, time.monotonic() + QUIET_SECONDS)
        else:
            self._hang_up()

    def _receive_version(self) -> bool:
        try:
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._connection.setblocking(False)
                self._connection.connect(display_socket_path(self._environment))
            received = bool(self._connection.recv(1))
        except BlockingIOError:
            return False
        except OSError:
            received = False
        self._hang_up()  # A server that hung up without sending its version is tried again.
        return received

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

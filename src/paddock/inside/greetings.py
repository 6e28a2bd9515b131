"""Whether the display speaks: in RFB the server has the first word, and one that is still starting says nothing."""

from __future__ import annotations

import socket
import time

from .environment import Environment

DISPLAY = "display"
"""The service that is the display."""
VARIABLE, DEFAULT_PATH = "PADDOCK_DISPLAY_SOCKET", "/run/paddock/vnc.sock"
AFTERWARDS = 0.1
"""Seconds that the display has to itself after its first word, since whoever wants to look comes now."""
LATEST = 5.0
"""Seconds after which nobody waits for its first word any more."""
LOOK_MS = 2
"""How often it is looked for while its socket is not there."""


def display_socket(environment: Environment) -> str:
    return environment.variables({}).get(VARIABLE) or DEFAULT_PATH


class Opening:
    """The time in which a box that has a display is busy with nothing else. It never waits itself."""

    def __init__(self, environment: Environment, expected: bool) -> None:
        self._environment = environment
        self._link: socket.socket | None = None
        self._spoke = not expected
        self._ends = time.monotonic() + LATEST if expected else 0.0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._ends

    @property
    def descriptor(self) -> int | None:
        """What becomes readable when the display speaks, once there is something to listen to."""
        return self._link.fileno() if self._link is not None else None

    def patience(self) -> float | None:
        """Milliseconds until `look` should be called, whatever the descriptor says."""
        if self.over:
            return None
        left = (self._ends - time.monotonic()) * 1000 + 1
        return left if self._spoke or self._link is not None else min(left, LOOK_MS)

    def look(self, ready: bool) -> None:
        """Find out whether the display, which is `ready` once it takes connections, has spoken."""
        if not self._spoke and not self.over and ready:
            if self._hears():
                self._spoke = True
                self._ends = min(self._ends, time.monotonic() + AFTERWARDS)
        else:
            self._hang_up()

    def _hears(self) -> bool:
        try:
            if self._link is None:
                self._link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._link.setblocking(False)
                self._link.connect(display_socket(self._environment))
            heard = bool(self._link.recv(1))
        except BlockingIOError:
            return False
        except OSError:
            heard = False
        self._hang_up()  # Whoever is gone without a word is listened to anew.
        return heard

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

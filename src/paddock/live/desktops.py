"""Desktops as viewers have them: each with a connection of its own to the display."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from paddock.config.live import LiveConfig
from paddock.errors import PaddockError, QuotaExceeded, SandboxNotFound
from paddock.fleet.fleet import Fleet
from paddock.live.frames import Closing
from paddock.live.leases import Leases
from paddock.live.relay import COME_BACK, GOING_AWAY, NORMAL, Pace, Relay
from paddock.live.rfb import ClientMessages, Clipboard
from paddock.model.sandbox import SandboxState

NOT_ALLOWED = 1008
VIEWER = r"^[A-Za-z0-9._:@+-]{1,100}$"
"""Ids that clients give themselves."""


@dataclass(frozen=True)
class View:
    """A display that a viewer may be shown."""

    tenant: str
    sandbox_id: str
    display: socket.socket


class Desktops:
    """Everybody who watches, and the way out for them."""

    def __init__(self, fleet: Fleet, leases: Leases, config: LiveConfig, pace: Pace | None = None) -> None:
        self._fleet = fleet
        self._leases = leases
        self._clipboard = Clipboard(into=config.clipboard in ("both", "in"), out=config.clipboard in ("both", "out"))
        self._most = config.viewers
        self._pace = pace or Pace()
        self._viewers: Counter[str] = Counter()
        self._relays: set[Relay] = set()
        self._stopping = False

    def viewers(self, sandbox_id: str) -> int:
        """How many connections watch a sandbox."""
        return self._viewers[sandbox_id]

    @asynccontextmanager
    async def viewing(self, tenant: str, sandbox_id: str) -> AsyncIterator[View]:
        """A connection to a sandbox's display, closed at the end.

        Raises `SandboxNotFound`, `Conflict` when it does not run, `Unavailable` when it has no display, and
        `QuotaExceeded` when too many watch it.
        """
        inside = await self._fleet.inside(tenant, sandbox_id)
        if self._viewers[sandbox_id] >= self._most:
            raise QuotaExceeded(f"sandbox {sandbox_id} has its {self._most} viewers (live.viewers); close one first")
        self._viewers[sandbox_id] += 1
        try:
            with await inside.open_display() as display:
                yield View(tenant, sandbox_id, display)
        finally:
            self._viewers[sandbox_id] -= 1
            if not self._viewers[sandbox_id]:
                del self._viewers[sandbox_id]

    async def relay(self, client: socket.socket, view: View, viewer: str) -> None:
        """Serve one viewer until they leave or must. `viewer` is empty for one who may never touch anything.

        The client is an open WebSocket from which nothing has been read yet; it is closed at the end.
        """

        def touches() -> bool:
            return bool(viewer) and self._leases.allows(view.sandbox_id, viewer)

        def noticed(message: bytes) -> None:
            self._leases.deeds.passed(view.sandbox_id, viewer, message)

        relay = Relay(client, view.display, ClientMessages(touches, self._clipboard, noticed), self._pace)
        self._relays.add(relay)
        if self._stopping:
            relay.stop(_STOPPING)
        closing = _STOPPING
        try:
            with self._leases.attach(view.sandbox_id, viewer, relay.let_go):
                closing = await relay.run()
            if closing.code == COME_BACK and await self._ended(view):
                closing = Closing(NORMAL, "the sandbox has ended")
        except asyncio.CancelledError as cancelled:
            if cancelled.args:  # Somebody says why, which a server that stops does not.
                closing = Closing(NOT_ALLOWED, str(cancelled.args[0]))
            raise
        finally:
            # Also when cancelled: a client that is told nothing would wait for what never comes.
            await asyncio.shield(relay.close(closing))
            self._relays.discard(relay)

    def stop(self) -> None:
        """Ask all viewers to leave, because the server does."""
        self._stopping = True
        for relay in self._relays:
            relay.stop(_STOPPING)

    async def _ended(self, view: View) -> bool:
        try:
            sandbox = await self._fleet.get(view.tenant, view.sandbox_id)
        except SandboxNotFound:
            return True
        except PaddockError:
            return False  # It may well be there: let the client try.
        return sandbox.state is SandboxState.STOPPING or not sandbox.state.alive


_STOPPING = Closing(GOING_AWAY, "the server is stopping; connect again when it is back")

"""Desktop viewers: each gets its own connection to the sandbox's display."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from paddock.config.live_view import LiveViewConfig
from paddock.errors import PaddockError, QuotaExceeded, SandboxNotFound
from paddock.fleet.fleet import Fleet
from paddock.live.desktop.rfb_filter import ClipboardPolicy, RfbClientFilter
from paddock.live.desktop.rfb_relay import GOING_AWAY, NORMAL, SERVICE_RESTART, RfbRelay, RfbRelayTimeouts
from paddock.live.desktop.websocket_frames import WebSocketClose
from paddock.live.input_leases import InputLeases
from paddock.model.sandbox import SandboxState

POLICY_VIOLATION = 1008
VIEWER_ID_PATTERN = r"^[A-Za-z0-9._:@+-]{1,100}$"
"""Pattern of the viewer ids that clients choose for themselves."""


@dataclass(frozen=True)
class DisplayConnection:
    """An open connection to a sandbox's display."""

    tenant: str
    sandbox_id: str
    display: socket.socket


class DesktopViewers:
    """Serves desktop viewers and disconnects them at shutdown."""

    def __init__(
        self, fleet: Fleet, leases: InputLeases, config: LiveViewConfig, timeouts: RfbRelayTimeouts | None = None
    ) -> None:
        self._fleet = fleet
        self._leases = leases
        self._clipboard = ClipboardPolicy(
            to_sandbox=config.clipboard in ("both", "in"), from_sandbox=config.clipboard in ("both", "out")
        )
        self._max_viewers = config.viewers
        self._timeouts = timeouts or RfbRelayTimeouts()
        self._viewer_counts: Counter[str] = Counter()
        self._relays: set[RfbRelay] = set()
        self._stopping = False

    def viewer_count(self, sandbox_id: str) -> int:
        """Count the connections that watch a sandbox."""
        return self._viewer_counts[sandbox_id]

    @asynccontextmanager
    async def open_display(self, tenant: str, sandbox_id: str) -> AsyncIterator[DisplayConnection]:
        """Open a connection to a sandbox's display, closed on exit.

        Raises `SandboxNotFound`, `Conflict` when the sandbox does not run, `Unavailable` when it has no
        display, and `QuotaExceeded` when it has too many viewers.
        """
        inside = await self._fleet.running_client(tenant, sandbox_id)
        if self._viewer_counts[sandbox_id] >= self._max_viewers:
            raise QuotaExceeded(
                f"sandbox {sandbox_id} has its {self._max_viewers} viewers (live.viewers); close one first"
            )
        self._viewer_counts[sandbox_id] += 1
        try:
            with await inside.open_display() as display:
                yield DisplayConnection(tenant, sandbox_id, display)
        finally:
            self._viewer_counts[sandbox_id] -= 1
            if not self._viewer_counts[sandbox_id]:
                del self._viewer_counts[sandbox_id]

    async def serve_viewer(self, client: socket.socket, view: DisplayConnection, viewer: str) -> None:
        """Relay one viewer's connection until it ends. An empty `viewer` is view-only.

        The client is an open WebSocket from which nothing has been read yet; it is closed at the end.
        """

        def may_send_input() -> bool:
            return bool(viewer) and self._leases.may_send_input(view.sandbox_id, viewer)

        def record_input(message: bytes) -> None:
            self._leases.takeovers.record_rfb_message(view.sandbox_id, viewer, message)

        rfb_relay = RfbRelay(
            client, view.display, RfbClientFilter(may_send_input, self._clipboard, record_input), self._timeouts
        )
        self._relays.add(rfb_relay)
        if self._stopping:
            rfb_relay.stop(_STOPPING)
        closing = _STOPPING
        try:
            with self._leases.track_connection(view.sandbox_id, viewer, rfb_relay.release_pressed):
                closing = await rfb_relay.run()
            if closing.code == SERVICE_RESTART and await self._has_ended(view):
                closing = WebSocketClose(NORMAL, "the sandbox has ended")
        except asyncio.CancelledError as cancelled:
            if cancelled.args:  # A cancellation with a reason revokes access; a server that stops gives none.
                closing = WebSocketClose(POLICY_VIOLATION, str(cancelled.args[0]))
            raise
        finally:
            # Also when cancelled: without a close frame the client would keep waiting.
            await asyncio.shield(rfb_relay.close(closing))
            self._relays.discard(rfb_relay)

    def stop(self) -> None:
        """Disconnect all viewers because the server is stopping."""
        self._stopping = True
        for rfb_relay in self._relays:
            rfb_relay.stop(_STOPPING)

    async def _has_ended(self, view: DisplayConnection) -> bool:
        try:
            sandbox = await self._fleet.get(view.tenant, view.sandbox_id)
        except SandboxNotFound:
            return True
        except PaddockError:
            return False  # The sandbox may still exist: let the client reconnect.
        return sandbox.state is SandboxState.STOPPING or not sandbox.state.alive


_STOPPING = WebSocketClose(GOING_AWAY, "the server is stopping; connect again when it is back")

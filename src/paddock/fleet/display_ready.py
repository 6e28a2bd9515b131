"""Waits until a sandbox's display is up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from paddock.errors import SandboxError, SandboxStartError

if TYPE_CHECKING:
    from paddock.sandbox.daemon.client import DaemonClient

DISPLAY_SERVICE = "display"
"""Name of the service that marks an image with a screen."""
DISPLAY_TIMEOUT = 20.0
"""Seconds in which a display must come up."""
DESKTOP_TIMEOUT = 5.0
"""Further seconds to wait for panel and windows; a screen without them is accepted."""
POLL_INTERVAL = 0.05


async def wait_for_display(
    client: DaemonClient, timeout: float = DISPLAY_TIMEOUT, extra_timeout: float = DESKTOP_TIMEOUT
) -> None:
    """Wait for a sandbox's display and desktop services. Raises `SandboxStartError` without a display."""
    began = time.monotonic()
    shown_at: float | None = None
    while True:
        ready = await _ready_services(client, timeout)
        now = time.monotonic()
        if ready and all(ready.values()):
            return
        if ready.get(DISPLAY_SERVICE):
            shown_at = shown_at or now
            if now - shown_at > extra_timeout:
                return
        elif now - began > timeout:
            raise SandboxStartError(f"the display did not come up within {timeout:.0f} s")
        await asyncio.sleep(POLL_INTERVAL)


async def _ready_services(client: DaemonClient, patience: float) -> dict[str, bool]:
    """Return the readiness of each service; malformed entries count as not ready."""
    try:
        found = await client.services(timeout=patience)
    except SandboxError as error:
        raise SandboxStartError(f"the sandbox does not report its display: {error}") from error
    return {str(each.get("name")): each.get("state") == "ready" for each in found}

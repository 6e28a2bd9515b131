"""Whether a box's screen shows something yet."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from paddock.errors import BoxError, BoxStartError

if TYPE_CHECKING:
    from paddock.sandbox.client import Inside

DISPLAY = "display"
"""The service by which an image shows that its boxes have a screen."""
PATIENCE = 20.0
"""How long a display may take to come up."""
FURNISHING = 5.0
"""How much longer windows, panel and the like are waited for; a screen without them is a screen too."""
LOOK_EVERY = 0.05


async def wait_until_shown(client: Inside, patience: float = PATIENCE, furnishing: float = FURNISHING) -> None:
    """Return once a box's display is up, and what belongs on it, too. Raises `BoxStartError` if it does not come up."""
    began = time.monotonic()
    shown_at: float | None = None
    while True:
        ready = await _ready(client, patience)
        now = time.monotonic()
        if ready and all(ready.values()):
            return
        if ready.get(DISPLAY):
            shown_at = shown_at or now
            if now - shown_at > furnishing:
                return
        elif now - began > patience:
            raise BoxStartError(f"the display did not come up within {patience:.0f} s")
        await asyncio.sleep(LOOK_EVERY)


async def _ready(client: Inside, patience: float) -> dict[str, bool]:
    """Which services of a box are up; what makes no sense is not."""
    try:
        found = await client.services(timeout=patience)
    except BoxError as error:
        raise BoxStartError(f"the box does not tell of its display: {error}") from error
    return {str(each.get("name")): each.get("state") == "ready" for each in found}

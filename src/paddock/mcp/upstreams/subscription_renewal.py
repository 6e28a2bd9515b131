"""Keeps a subscription alive when the connection of its stream breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from paddock.errors import McpTimeout, Unavailable
from paddock.mcp.protocol import JsonRpcMessage

RENEWAL_DELAYS = (0.1, 0.5, 2.0, 5.0, 15.0)
"""Seconds between attempts; the last failure ends the subscription."""
STABLE_TIME = 10.0
"""Seconds after which a stream that breaks is not counted as one more failure."""
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


async def renewed_subscription(
    open_stream: Callable[[], AsyncGenerator[JsonRpcMessage, None]],
) -> AsyncGenerator[JsonRpcMessage, None]:
    """Yield notifications of one stream after the other, and only the first acknowledgement. Raises `PaddockError`."""
    failures = 0
    is_acknowledged = False
    while True:
        opened_at = time.monotonic()
        try:
            async with aclosing(open_stream()) as messages:
                async for message in messages:
                    if message.method != _ACKNOWLEDGED or not is_acknowledged:
                        yield message
                    is_acknowledged = is_acknowledged or message.method == _ACKNOWLEDGED
                    if message.is_response:
                        return
        except McpTimeout:
            raise
        except Unavailable:
            if time.monotonic() - opened_at > STABLE_TIME:
                failures = 0
            if not is_acknowledged or failures == len(RENEWAL_DELAYS):
                raise
        await asyncio.sleep(RENEWAL_DELAYS[min(failures, len(RENEWAL_DELAYS) - 1)])
        failures += 1

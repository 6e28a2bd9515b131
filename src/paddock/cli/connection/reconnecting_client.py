"""Requests and event streams that survive a restart of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import ConnectionLost, NoServerError, RequestRefused

RECONNECT_SECONDS = 60.0
_RETRY_SECONDS = 0.25
FindServer = Callable[[], Awaitable[ServerClient]]
"""Finds the server again or starts another one, and returns a client of it."""


async def follow_server_events(
    reach: ReconnectingClient, path: str, after: int = 0
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield past and new events without gaps or duplicates, reconnecting as needed."""
    last_seen = time.monotonic()
    while True:
        try:
            query, headers = {"after": str(after)}, {"Accept": "text/event-stream"}
            async with reach.client.request("GET", path, params=query, headers=headers) as answer:
                async for documents in reach.client.json_lines(answer):
                    last_seen = time.monotonic()
                    for event in documents:
                        after = max(after, int(event.get("number") or after))
                        yield event
            raise ConnectionLost("the server ended the stream")
        except (ConnectionLost, NoServerError, RequestRefused) as error:
            if isinstance(error, RequestRefused) and error.status != 503:
                raise
            if time.monotonic() - last_seen > RECONNECT_SECONDS:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
            await reach.reconnect()


class ReconnectingClient:
    """A client that finds the server again after a lost connection."""

    def __init__(self, client: ServerClient, recover: FindServer | None = None) -> None:
        self.client = client
        self._recover = recover
        self._lock = asyncio.Lock()

    async def reconnect(self) -> None:
        """Find the server again. Concurrent callers share one search."""
        if self._recover is None:
            return
        client = self.client
        async with self._lock:
            if self.client is client:
                self.client = await self._recover()

    async def request_json(self, method: str, path: str, **arguments: Any) -> Any:
        """Send a request, repeating it while the server is away. Use it only for idempotent requests."""
        last_seen = time.monotonic()
        while True:
            try:
                return await self.client.request_json(method, path, **arguments)
            except (ConnectionLost, NoServerError):
                if time.monotonic() - last_seen > RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
                await self.reconnect()

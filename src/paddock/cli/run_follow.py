"""Follows runs through their events, also over a server that is gone for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from paddock.cli.client import Client
from paddock.cli.failure import ConnectionLost, NoServer, Refused
from paddock.cli.run_progress import ENDED, SUCCEEDED, Progress
from paddock.cli.run_view import View

RECONNECT_SECONDS = 60.0
_WAIT = 0.25
Recover = Callable[[], Awaitable[Client]]
"""Finds the server again, or starts another."""


async def events_of(reach: Reach, run_id: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:
    """What happened and happens to a run, until it has ended; none missed and none twice."""
    async with aclosing(events_at(reach, f"/v1/runs/{quote(run_id, safe='')}/events", after)) as events:
        async for event in events:
            yield event
            if event.get("type") == "run.ended":
                return


async def events_at(reach: Reach, path: str, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
    """What happened and happens, as long as somebody listens; none missed and none twice."""
    last_seen = time.monotonic()
    while True:
        try:
            query, headers = {"after": str(after)}, {"Accept": "text/event-stream"}
            async with reach.client.request("GET", path, params=query, headers=headers) as answer:
                async for documents in reach.client.lines(answer):
                    last_seen = time.monotonic()
                    for event in documents:
                        after = max(after, int(event.get("number") or after))
                        yield event
            raise ConnectionLost("the server ended the stream")
        except (ConnectionLost, NoServer, Refused) as error:
            if isinstance(error, Refused) and error.status != 503:
                raise
            if time.monotonic() - last_seen > RECONNECT_SECONDS:
                raise
            await asyncio.sleep(_WAIT)
            await reach.again()


class Reach:
    """A server that may have to be found again."""

    def __init__(self, client: Client, recover: Recover | None = None) -> None:
        self.client = client
        self._recover = recover
        self._lock = asyncio.Lock()

    async def again(self) -> None:
        """Find the server again, if it is not where it was. Those who ask at the same time share the search."""
        if self._recover is None:
            return
        client = self.client
        async with self._lock:
            if self.client is client:
                self.client = await self._recover()

    async def ask(self, method: str, path: str, **arguments: Any) -> Any:
        """One request, made again while the server is gone. Only for what may be asked twice."""
        last_seen = time.monotonic()
        while True:
            try:
                return await self.client.ask(method, path, **arguments)
            except (ConnectionLost, NoServer):
                if time.monotonic() - last_seen > RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(_WAIT)
                await self.again()


async def last_words(client: Client, run: Mapping[str, Any]) -> tuple[str, ...]:
    """What the agent of a run that has ended without success said at the end, the latest first."""
    progress = Progress(str(run["name"]), str(run["id"]))
    if run.get("agent") and run.get("state") in ENDED and run.get("state") != SUCCEEDED:
        async for event in events_of(Reach(client), progress.id):
            progress.note(event)
    return progress.last_words


async def watch(reach: Reach, run: Progress, view: View) -> None:
    """Show a run until it has ended."""
    async for event in events_of(reach, run.id, run.number):
        view.tell(run, event, run.note(event))

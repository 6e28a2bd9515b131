"""The stream of a session for changes: a subscription that follows what the client asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import structlog

from paddock.errors import PaddockError
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import LISTEN
from paddock.mcp.serving.client_sessions import ClientSession
from paddock.mcp.serving.legacy_translation import legacy_notification, listen_filter, stateless_meta
from paddock.mcp.serving.session_streams import SessionStream, StreamTimes

FIRST_RETRY = 1.0
MAX_RETRY = 60.0
_OWN_NOTIFICATION = "notifications/subscriptions/acknowledged"
log = structlog.get_logger()


class SessionListener(SessionStream):
    """Runs a subscription while the client has a GET stream."""

    def __init__(
        self,
        session: ClientSession,
        resolve: Callable[[], McpEndpoint],
        context: CallContext,
        times: StreamTimes,
    ) -> None:
        super().__init__(0, times)
        self._session = session
        self._resolve = resolve
        self._context = replace(context, client_session=session.id)
        self._subscriptions: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Subscribe unless a subscription is under way."""
        if not self._subscriptions:
            self._subscribe()

    async def restart(self, timeout: float) -> None:
        """Subscribe to what the client wants now; the earlier subscription ends once the new one is confirmed."""
        if not self._subscriptions and not self.is_read:
            return
        earlier = list(self._subscriptions)
        confirmed = self._subscribe()
        try:
            async with asyncio.timeout(timeout):
                await confirmed.wait()
        except TimeoutError:
            pass
        await _cancel_all(earlier)

    async def close(self) -> None:
        self.cancel_expiry()
        self.buffer.close()
        await _cancel_all([*self._subscriptions, *self._ending])

    def on_abandoned(self) -> None:
        while self._subscriptions:
            task = self._subscriptions.pop()
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _subscribe(self) -> asyncio.Event:
        """Start a subscription; return the event of its confirmation, or of its failure."""
        confirmed = asyncio.Event()
        task = asyncio.create_task(self._run(confirmed))
        self._subscriptions.add(task)
        task.add_done_callback(self._subscriptions.discard)
        return confirmed

    async def _run(self, confirmed: asyncio.Event) -> None:
        wanted = listen_filter(self._session.server_capabilities, self._session.subscribed_uris)
        pause = FIRST_RETRY
        while wanted:
            try:
                if await self._listen(wanted, confirmed):
                    pause = FIRST_RETRY
            except PaddockError as error:
                log.debug("MCP subscription failed", error=error.message)
            except Exception:
                log.exception("unexpected error in MCP subscription")
            confirmed.set()
            await asyncio.sleep(pause)
            pause = min(MAX_RETRY, pause * 2)
        confirmed.set()

    async def _listen(self, wanted: dict[str, object], confirmed: asyncio.Event) -> bool:
        """Pass notifications on until the subscription ends; return whether the server had confirmed it."""
        session = self._session
        meta = stateless_meta(session.capabilities, session.client_info, session.log_level)
        params = {"_meta": meta, "notifications": wanted}
        request = make_request(f"listen-{session.next_number()}", LISTEN, params)
        had_confirmation = False
        async with aclosing(self._resolve().exchange(request, self._context)) as messages:
            async for message in messages:
                if message.method == _OWN_NOTIFICATION:
                    had_confirmation = True
                    confirmed.set()
                elif message.is_notification:
                    await self.buffer.put(legacy_notification(message))
        return had_confirmation


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""Previews: addresses for ports of sandboxes that work in a browser until they expire or are closed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from paddock.errors import InvalidInput, NotFound, PaddockError, QuotaExceeded
from paddock.events.event_log import EventLog
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.port_forwards import EXECD_PORT
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.previews import SandboxPreview
from paddock.model.sandbox import Sandbox, UplinkService
from paddock.store.event_store import NewEvent
from paddock.store.preview_store import PreviewStore

MAX_LIFETIME = timedelta(days=7)
MAX_PER_SANDBOX = 32
RESERVED_PORTS = frozenset({EXECD_PORT, 18080})
"""Ports of the daemon and of OpenSandbox's egress sidecar, which control the sandbox."""
_RETRY_SECONDS = 30.0
log = structlog.get_logger()


class PortPreviews:
    """Opens, finds and closes previews. As a lifecycle hook of the fleet, it closes the previews of ended sandboxes.

    All previews are in memory, since each request of a visitor looks one up.
    """

    uplink_services: tuple[UplinkService, ...] = ()

    def __init__(
        self, store: PreviewStore, events: EventLog, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._store = store
        self._events = events
        self._now = now
        self._previews: dict[str, SandboxPreview] = {}
        self._closed: dict[str, asyncio.Event] = {}
        """Set when the preview of this id is closed, or gets narrower terms."""
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._expiring: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: PreviewStore, events: EventLog) -> PortPreviews:
        """Load the stored previews and close them as they expire."""
        previews = cls(store, events)
        for preview in await store.list_all():
            previews._add(preview)
        previews._expiring = asyncio.create_task(previews._close_expired(), name="expire previews")
        return previews

    async def close(self) -> None:
        """Stop expiring previews; they stay stored."""
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)

    async def expose(
        self, sandbox: Sandbox, port: int, lifetime: timedelta, *, public: bool, created_by: str | None
    ) -> SandboxPreview:
        """Open a preview of a port, or give the open one new terms; its address stays the same.

        The caller holds the sandbox's lock, so that the sandbox does not end meanwhile. Raises `InvalidInput` for a
        port that cannot be exposed, `QuotaExceeded` for too many previews.
        """
        if port in RESERVED_PORTS:
            raise InvalidInput(f"port {port} controls the sandbox and cannot be exposed; choose another port")
        async with self._writing:
            current = self.find_port(sandbox.id, port)
            if current is None and len(self.list(sandbox.id)) >= MAX_PER_SANDBOX:
                raise QuotaExceeded(f"sandbox {sandbox.id} has its {MAX_PER_SANDBOX} previews; close one first")
            now = self._now()
            preview = SandboxPreview(
                id=secrets.token_hex(16) if current is None else current.id,
                sandbox=sandbox.id,
                tenant=str(sandbox.tenant),
                port=port,
                public=public,
                created_by=created_by,
                created_at=now if current is None else current.created_at,
                expires_at=now + min(lifetime, MAX_LIFETIME),
            )
            data = {"port": port, "public": public, "expires_at": preview.expires_at.isoformat()}
            event = NewEvent(sandbox_event_stream(sandbox.id), EventType.PREVIEW_OPENED, data, preview.tenant)
            await self._events.write_with_events(self._store.replace_work(preview), lambda _: [event])
            if current is not None and current.public and not public:
                self._remove(current)  # Ends the connections of visitors without the link.
            self._add(preview)
        self._changed.set()
        return preview

    def list(self, sandbox_id: str) -> Sequence[SandboxPreview]:
        """Return the open previews of a sandbox by port."""
        found = [each for each in self._previews.values() if each.sandbox == sandbox_id and self._is_open(each)]
        return sorted(found, key=lambda each: each.port)

    def find(self, preview_id: str) -> SandboxPreview:
        """Return an open preview. Raises `NotFound`."""
        preview = self._previews.get(preview_id)
        if preview is None or not self._is_open(preview):
            raise NotFound("this preview has expired or was closed; open another from the sandbox")
        return preview

    def find_port(self, sandbox_id: str, port: int) -> SandboxPreview | None:
        """Return the open preview of a port."""
        return next((each for each in self.list(sandbox_id) if each.port == port), None)

    async def unexpose(self, sandbox_id: str, port: int) -> None:
        """Close the preview of a port. Raises `NotFound`."""
        preview = self.find_port(sandbox_id, port)
        if preview is None:
            raise NotFound(f"port {port} of sandbox {sandbox_id} has no preview")
        await self._close([preview], "deleted")

    async def wait_until_closed(self, preview: SandboxPreview) -> None:
        """Wait until a preview is closed or no longer public."""
        closed = self._closed.get(preview.id)
        if closed is not None:
            await closed.wait()

    def check_request(self, request: SandboxRequest) -> None:
        pass

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        pass

    async def on_renewed(self, sandbox: Sandbox) -> None:
        pass

    async def on_ended(self, sandbox_id: str) -> None:
        await self._close([each for each in self._previews.values() if each.sandbox == sandbox_id], "sandbox_ended")

    async def tracked_sandboxes(self) -> Collection[str]:
        return {each.sandbox for each in self._previews.values()}

    def _is_open(self, preview: SandboxPreview) -> bool:
        return preview.expires_at > self._now()

    def _add(self, preview: SandboxPreview) -> None:
        self._previews[preview.id] = preview
        self._closed.setdefault(preview.id, asyncio.Event())

    def _remove(self, preview: SandboxPreview) -> None:
        self._previews.pop(preview.id, None)
        closed = self._closed.pop(preview.id, None)
        if closed is not None:
            closed.set()

    async def _close(self, previews: Sequence[SandboxPreview], reason: str) -> None:
        if not previews:
            return
        async with self._writing:
            closing = [each for each in previews if self._previews.get(each.id) == each]
            if not closing:
                return
            # Before they are deleted, so that no request is served while the database is slow or full.
            for preview in closing:
                self._remove(preview)
            try:
                await self._events.write_with_events(
                    self._store.delete_work([each.id for each in closing]),
                    lambda _: [_closed_event(each, reason) for each in closing],
                )
            except BaseException:
                for preview in closing:
                    self._add(preview)
                raise

    async def _close_expired(self) -> None:
        while True:
            self._changed.clear()
            next_expiry = min((each.expires_at for each in self._previews.values()), default=None)
            wait = None if next_expiry is None else max(0.0, (next_expiry - self._now()).total_seconds())
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                try:
                    await self._close([each for each in self._previews.values() if not self._is_open(each)], "expired")
                except PaddockError as error:
                    log.warning("could not close expired previews; will retry", error=error.message)
                    await asyncio.sleep(_RETRY_SECONDS)


def _closed_event(preview: SandboxPreview, reason: str) -> NewEvent:
    data = {"port": preview.port, "reason": reason}
    return NewEvent(sandbox_event_stream(preview.sandbox), EventType.PREVIEW_CLOSED, data, preview.tenant)

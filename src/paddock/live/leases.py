"""Who has the mouse and the keyboard of each sandbox: one person, or nobody, and then they are the agent's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from paddock.errors import Conflict, PaddockError, SandboxNotFound
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.deeds import Deeds
from paddock.model.events import EventType, sandbox_stream
from paddock.model.sandbox import SandboxState
from paddock.model.screens import Holder

RECONNECT_WITHIN = 5.0
"""Seconds a holder keeps the input after their last connection is gone."""
ATTACH_WITHIN = 30.0
"""Seconds a holder has to show up with a connection."""
log = structlog.get_logger()


@dataclass
class _Lease:
    tenant: str
    holder: Holder
    timer: asyncio.TimerHandle | None = None


@dataclass
class _Place:
    """What is known of one sandbox; it is forgotten with the last thing in it."""

    lease: _Lease | None = None
    attached: dict[str, list[Callable[[], None] | None]] = field(default_factory=dict)
    """Connections by viewer, each with what to call when its viewer has lost the input."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Keeps events in the order in which things happened."""
    waiting: int = 0


class Leases:
    """The leases of all sandboxes. One covers a sandbox's desktop and its terminals.

    They live in memory: a server that comes back starts with none, and its `sandbox.adopted` ends those before it.
    """

    def __init__(
        self,
        fleet: Fleet,
        events: EventLog,
        *,
        reconnect_within: float = RECONNECT_WITHIN,
        attach_within: float = ATTACH_WITHIN,
    ) -> None:
        self._fleet = fleet
        self._events = events
        self._reconnect_within = reconnect_within
        self._attach_within = attach_within
        self.deeds = Deeds()
        """What holders do."""
        self.changed: list[Callable[[str, str], None]] = []
        """Called with the tenant and the id of a sandbox whenever its input has gone to somebody else."""
        self._places: dict[str, _Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, tenant: str, sandbox_id: str, viewer: str, name: str, *, force: bool = False) -> Holder:
        """Give the input to a viewer. `force` takes it from whoever has it.

        It is theirs when this returns, and stays so while one of their connections is there. Taking what one has
        changes nothing. Raises `Conflict` naming the holder if it is another, and `SandboxNotFound`.
        """
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}; only a running one has input to take")
        place = self._place(sandbox_id)
        before = place.lease
        if before is not None and before.holder.viewer == viewer:
            return before.holder
        if before is not None and not force:
            held = f"{before.holder.name} has the input of sandbox {sandbox_id}"
            raise Conflict(f"{held}; wait until it is handed back, or take it with force")
        # From here to the first wait nothing else can happen, which is why there is never a second holder.
        lease = _Lease(tenant, Holder(viewer=viewer, name=name, since=datetime.now(UTC)))
        self._end(sandbox_id, place, "taken_over")
        place.lease = lease
        self.deeds.began(sandbox_id, lease.holder)
        place.freed.clear()
        self._say(tenant, sandbox_id)
        if viewer not in place.attached:
            self._expire_after(self._attach_within, sandbox_id, lease, "never_connected")
        data: dict[str, Any] = {"viewer": viewer, "name": name}
        if before is not None:
            data["from"] = before.holder.name
        try:
            await self._tell(place, tenant, sandbox_id, EventType.INPUT_TAKEN, data)
        except PaddockError:
            # What nobody can be told of has not happened.
            if place.lease is lease:
                self._end(sandbox_id, place, "not_recorded")
            raise
        finally:
            self._tidy(sandbox_id, place)
        return lease.holder

    async def release(self, tenant: str, sandbox_id: str, viewer: str, *, force: bool = False) -> None:
        """Hand the input back to the agent. Nothing happens when nobody has it.

        Raises `Conflict` if another viewer has it, unless `force` is set.
        """
        await self._fleet.get(tenant, sandbox_id)
        place = self._places.get(sandbox_id)
        if place is None or place.lease is None:
            return
        holder = place.lease.holder
        if holder.viewer != viewer and not force:
            raise Conflict(
                f"{holder.name} has the input of sandbox {sandbox_id}; only they, or force, can hand it back"
            )
        await self._release(sandbox_id, place, "released" if holder.viewer == viewer else "forced")

    def holder(self, sandbox_id: str) -> Holder | None:
        """Who has the input; nobody means that it is the agent's."""
        place = self._places.get(sandbox_id)
        return place.lease.holder if place is not None and place.lease is not None else None

    def attended(self, sandbox_id: str) -> bool:
        """Whether somebody has the input, or is there to watch."""
        place = self._places.get(sandbox_id)
        return place is not None and (place.lease is not None or bool(place.attached))

    def allows(self, sandbox_id: str, viewer: str) -> bool:
        """Whether what this viewer sends may reach the sandbox."""
        place = self._places.get(sandbox_id)
        return place is not None and place.lease is not None and place.lease.holder.viewer == viewer

    @contextmanager
    def attach(self, sandbox_id: str, viewer: str, lost: Callable[[], None] | None = None) -> Iterator[None]:
        """Held by each connection of a viewer. `lost` is called when the viewer had the input and has it no more."""
        place = self._place(sandbox_id)
        place.attached.setdefault(viewer, []).append(lost)
        lease = place.lease
        if lease is not None and lease.holder.viewer == viewer:
            self._stay(lease)
        try:
            yield
        finally:
            connections = place.attached[viewer]
            connections.remove(lost)
            if not connections:
                del place.attached[viewer]
                if place.lease is not None and place.lease.holder.viewer == viewer:
                    self._expire_after(self._reconnect_within, sandbox_id, place.lease, "connection_lost")
            self._tidy(sandbox_id, place)

    async def free(self, sandbox_id: str, timeout: float) -> Holder | None:
        """Wait until nobody has the input. Returns who has it if that does not come in time."""
        if self.holder(sandbox_id) is None:
            return None
        place = self._places[sandbox_id]
        place.waiting += 1
        try:
            async with asyncio.timeout(timeout):
                # It may go from one person to the next.
                while place.lease is not None:
                    await place.freed.wait()
        except TimeoutError:
            pass
        finally:
            place.waiting -= 1
            self._tidy(sandbox_id, place)
        return self.holder(sandbox_id)

    async def close(self) -> None:
        """Hand everything back, and say so."""
        for sandbox_id, place in list(self._places.items()):
            if place.lease is not None:
                await self._release(sandbox_id, place, "server_stopped")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _place(self, sandbox_id: str) -> _Place:
        return self._places.setdefault(sandbox_id, _Place())

    def _tidy(self, sandbox_id: str, place: _Place) -> None:
        empty = place.lease is None and not place.attached and not place.waiting and not place.telling.locked()
        if empty and self._places.get(sandbox_id) is place:
            del self._places[sandbox_id]

    def _end(self, sandbox_id: str, place: _Place, reason: str) -> None:
        """Take the lease away, at once."""
        lease, place.lease = place.lease, None
        if lease is not None:
            self.deeds.ended(sandbox_id, reason)
        place.freed.set()
        if lease is None:
            return
        self._say(lease.tenant, sandbox_id)
        self._stay(lease)
        for lost in list(place.attached.get(lease.holder.viewer, ())):
            if lost is not None:
                lost()

    def _say(self, tenant: str, sandbox_id: str) -> None:
        for each in self.changed:
            each(tenant, sandbox_id)

    async def _release(self, sandbox_id: str, place: _Place, reason: str) -> None:
        lease = place.lease
        assert lease is not None
        self._end(sandbox_id, place, reason)
        data = {"viewer": lease.holder.viewer, "name": lease.holder.name, "reason": reason}
        try:
            await self._tell(place, lease.tenant, sandbox_id, EventType.INPUT_RELEASED, data)
        except PaddockError as error:
            log.warning("that input was released could not be recorded", sandbox=sandbox_id, error=str(error))
        finally:
            self._tidy(sandbox_id, place)

    async def _tell(self, place: _Place, tenant: str, sandbox_id: str, kind: EventType, data: dict[str, Any]) -> None:
        async with place.telling:
            try:
                sandbox = await self._fleet.get(tenant, sandbox_id)
            except SandboxNotFound:
                return
            # Nothing follows the end of a sandbox in its stream.
            if sandbox.state.alive and sandbox.state is not SandboxState.STOPPING:
                await self._events.append(sandbox_stream(sandbox_id), kind, data, tenant=tenant)

    def _stay(self, lease: _Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None

    def _expire_after(self, seconds: float, sandbox_id: str, lease: _Lease, reason: str) -> None:
        self._stay(lease)

        def expire() -> None:
            place = self._places.get(sandbox_id)
            if place is not None and place.lease is lease:
                self._spawn(self._release(sandbox_id, place, reason))

        lease.timer = asyncio.get_running_loop().call_later(seconds, expire)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

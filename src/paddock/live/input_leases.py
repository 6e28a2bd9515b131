"""Leases on mouse and keyboard: one person holds a sandbox's input, or else the agent has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from paddock.errors import Conflict, PaddockError, SandboxNotFound
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.takeover_activity import TakeoverTracker
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.sandbox import SandboxState
from paddock.model.screens import InputControlHolder

RECONNECT_TIMEOUT = 5.0
"""Seconds a holder keeps the input after their last connection is gone."""
ATTACH_TIMEOUT = 30.0
"""Seconds in which a new holder must connect."""
log = structlog.get_logger()


@dataclass
class _Lease:
    tenant: str
    holder: InputControlHolder
    timer: asyncio.TimerHandle | None = None


@dataclass
class _SandboxInput:
    """Lease, connections and waiters of one sandbox; dropped when empty."""

    lease: _Lease | None = None
    attached: dict[str, list[Callable[[], None] | None]] = field(default_factory=dict)
    """Connections by viewer, each with its callback for losing the input."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    publish_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Keeps events in the order of the changes."""
    waiting: int = 0


class InputLeases:
    """The input leases of all sandboxes. A lease covers the sandbox's desktop and terminals.

    Leases live in memory: a restarted server has none, and its `sandbox.adopted` event ends earlier ones.
    """

    def __init__(
        self,
        fleet: Fleet,
        events: EventLog,
        *,
        reconnect_timeout: float = RECONNECT_TIMEOUT,
        attach_timeout: float = ATTACH_TIMEOUT,
    ) -> None:
        self._fleet = fleet
        self._events = events
        self._reconnect_within = reconnect_timeout
        self._attach_within = attach_timeout
        self.takeovers = TakeoverTracker()
        """Activity of holders."""
        self.change_listeners: list[Callable[[str, str], None]] = []
        """Called with tenant and sandbox id whenever the holder changes."""
        self._states: dict[str, _SandboxInput] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def take_input(
        self, tenant: str, sandbox_id: str, viewer: str, name: str, *, force: bool = False
    ) -> InputControlHolder:
        """Give the input to a viewer. `force` takes it from the current holder.

        The lease lasts while the viewer has a connection. Taking input that the viewer already holds changes nothing.
        Raises `Conflict` naming another holder, and `SandboxNotFound`.
        """
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}; only a running one has input to take")
        input_state = self._state_of(sandbox_id)
        before = input_state.lease
        if before is not None and before.holder.viewer == viewer:
            return before.holder
        if before is not None and not force:
            held = f"{before.holder.name} has the input of sandbox {sandbox_id}"
            raise Conflict(f"{held}; wait until it is handed back, or use force")
        # No await until the lease is set, so there is never a second holder.
        lease = _Lease(tenant, InputControlHolder(viewer=viewer, name=name, since=datetime.now(UTC)))
        self._end_lease(sandbox_id, input_state, "taken_over")
        input_state.lease = lease
        self.takeovers.begin_takeover(sandbox_id, lease.holder)
        input_state.freed.clear()
        self._notify_change(tenant, sandbox_id)
        if viewer not in input_state.attached:
            self._expire_after(self._attach_within, sandbox_id, lease, "never_connected")
        data: dict[str, Any] = {"viewer": viewer, "name": name}
        if before is not None:
            data["from"] = before.holder.name
        try:
            await self._publish(input_state, tenant, sandbox_id, EventType.INPUT_TAKEN, data)
        except PaddockError:
            # A takeover that cannot be recorded is undone.
            if input_state.lease is lease:
                self._end_lease(sandbox_id, input_state, "not_recorded")
            raise
        finally:
            self._discard_if_empty(sandbox_id, input_state)
        return lease.holder

    async def release_input(self, tenant: str, sandbox_id: str, viewer: str, *, force: bool = False) -> None:
        """Hand the input back to the agent. Does nothing when there is no holder.

        Raises `Conflict` if another viewer has it, unless `force` is set.
        """
        await self._fleet.get(tenant, sandbox_id)
        input_state = self._states.get(sandbox_id)
        if input_state is None or input_state.lease is None:
            return
        holder = input_state.lease.holder
        if holder.viewer != viewer and not force:
            raise Conflict(
                f"{holder.name} has the input of sandbox {sandbox_id}; only they, or force, can hand it back"
            )
        await self._release_lease(sandbox_id, input_state, "released" if holder.viewer == viewer else "forced")

    def input_holder(self, sandbox_id: str) -> InputControlHolder | None:
        """Return the holder of the input; None means that the agent has it."""
        input_state = self._states.get(sandbox_id)
        return input_state.lease.holder if input_state is not None and input_state.lease is not None else None

    def has_holder_or_viewers(self, sandbox_id: str) -> bool:
        """Tell whether a person holds the input or watches the sandbox."""
        input_state = self._states.get(sandbox_id)
        return input_state is not None and (input_state.lease is not None or bool(input_state.attached))

    def may_send_input(self, sandbox_id: str, viewer: str) -> bool:
        """Tell whether this viewer's input may reach the sandbox."""
        input_state = self._states.get(sandbox_id)
        return input_state is not None and input_state.lease is not None and input_state.lease.holder.viewer == viewer

    @contextmanager
    def track_connection(
        self, sandbox_id: str, viewer: str, on_lost: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Register a viewer's connection for the context. `on_lost` is called when the viewer loses the input."""
        input_state = self._state_of(sandbox_id)
        input_state.attached.setdefault(viewer, []).append(on_lost)
        lease = input_state.lease
        if lease is not None and lease.holder.viewer == viewer:
            self._cancel_expiry(lease)
        try:
            yield
        finally:
            connections = input_state.attached[viewer]
            connections.remove(on_lost)
            if not connections:
                del input_state.attached[viewer]
                if input_state.lease is not None and input_state.lease.holder.viewer == viewer:
                    self._expire_after(self._reconnect_within, sandbox_id, input_state.lease, "connection_lost")
            self._discard_if_empty(sandbox_id, input_state)

    async def wait_until_free(self, sandbox_id: str, timeout: float) -> InputControlHolder | None:
        """Wait until no person holds the input. Returns the holder if the wait times out."""
        if self.input_holder(sandbox_id) is None:
            return None
        input_state = self._states[sandbox_id]
        input_state.waiting += 1
        try:
            async with asyncio.timeout(timeout):
                # The lease may pass from one person to the next.
                while input_state.lease is not None:
                    await input_state.freed.wait()
        except TimeoutError:
            pass
        finally:
            input_state.waiting -= 1
            self._discard_if_empty(sandbox_id, input_state)
        return self.input_holder(sandbox_id)

    async def close(self) -> None:
        """Release all leases and publish the releases."""
        for sandbox_id, input_state in list(self._states.items()):
            if input_state.lease is not None:
                await self._release_lease(sandbox_id, input_state, "server_stopped")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _state_of(self, sandbox_id: str) -> _SandboxInput:
        return self._states.setdefault(sandbox_id, _SandboxInput())

    def _discard_if_empty(self, sandbox_id: str, input_state: _SandboxInput) -> None:
        empty = (
            input_state.lease is None
            and not input_state.attached
            and not input_state.waiting
            and not input_state.publish_lock.locked()
        )
        if empty and self._states.get(sandbox_id) is input_state:
            del self._states[sandbox_id]

    def _end_lease(self, sandbox_id: str, input_state: _SandboxInput, reason: str) -> None:
        """End the lease at once."""
        lease, input_state.lease = input_state.lease, None
        if lease is not None:
            self.takeovers.end_takeover(sandbox_id, reason)
        input_state.freed.set()
        if lease is None:
            return
        self._notify_change(lease.tenant, sandbox_id)
        self._cancel_expiry(lease)
        for lost in list(input_state.attached.get(lease.holder.viewer, ())):
            if lost is not None:
                lost()

    def _notify_change(self, tenant: str, sandbox_id: str) -> None:
        for each in self.change_listeners:
            each(tenant, sandbox_id)

    async def _release_lease(self, sandbox_id: str, input_state: _SandboxInput, reason: str) -> None:
        lease = input_state.lease
        assert lease is not None
        self._end_lease(sandbox_id, input_state, reason)
        data = {"viewer": lease.holder.viewer, "name": lease.holder.name, "reason": reason}
        try:
            await self._publish(input_state, lease.tenant, sandbox_id, EventType.INPUT_RELEASED, data)
        except PaddockError as error:
            log.warning("cannot record released input", sandbox=sandbox_id, error=str(error))
        finally:
            self._discard_if_empty(sandbox_id, input_state)

    async def _publish(
        self, input_state: _SandboxInput, tenant: str, sandbox_id: str, kind: EventType, data: dict[str, Any]
    ) -> None:
        async with input_state.publish_lock:
            try:
                sandbox = await self._fleet.get(tenant, sandbox_id)
            except SandboxNotFound:
                return
            # No event may follow the end of a sandbox in its stream.
            if sandbox.state.alive and sandbox.state is not SandboxState.STOPPING:
                await self._events.append(sandbox_event_stream(sandbox_id), kind, data, tenant=tenant)

    def _cancel_expiry(self, lease: _Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None

    def _expire_after(self, seconds: float, sandbox_id: str, lease: _Lease, reason: str) -> None:
        self._cancel_expiry(lease)

        def expire() -> None:
            input_state = self._states.get(sandbox_id)
            if input_state is not None and input_state.lease is lease:
                self._spawn(self._release_lease(sandbox_id, input_state, reason))

        lease.timer = asyncio.get_running_loop().call_later(seconds, expire)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

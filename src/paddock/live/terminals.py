"""Terminals that several people see at once, and one types in.

The daemon in the box keeps the shell and its newest output. A hub here is its one client, as long as anybody watches;
every viewer reads from the hub at a pace of their own.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractContextManager
from typing import Any, Protocol
from weakref import WeakValueDictionary

from paddock.errors import Conflict, Forbidden, InvalidInput, NotFound, PaddockError, QuotaExceeded
from paddock.fleet.fleet import Fleet
from paddock.live.deeds import Deeds
from paddock.live.hub import Hub
from paddock.live.seat import Seat, Size
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import Holder
from paddock.sandbox.client import Inside

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
SECRETLY_NAMED = re.compile(r"[0-9a-f]{32}")
"""What the daemon calls terminals that nobody has named; they are opened once and have a command of their own."""
MOST_VIEWERS = 64
DELETED = "deleted"


class InputLease(Protocol):
    """Who may type."""

    def allows(self, sandbox_id: str, viewer: str) -> bool: ...

    def holder(self, sandbox_id: str) -> Holder | None: ...

    def attach(self, sandbox_id: str, viewer: str) -> AbstractContextManager[Any]: ...


class Terminals:
    """Every terminal that somebody watches.

    Raises `SandboxNotFound`, `Conflict` for a sandbox that does not run, `BoxError` for one that does not answer.
    """

    def __init__(self, fleet: Fleet, leases: InputLease, deeds: Deeds | None = None) -> None:
        self._fleet = fleet
        self._leases = leases
        self._deeds = deeds or Deeds()
        self._hubs: dict[tuple[str, str], Hub] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def open(
        self,
        tenant: str,
        sandbox_id: str,
        name: str = "main",
        *,
        viewer: str,
        since: int = 0,
        size: Size | None = None,
        may_type: bool = True,
    ) -> Seat:
        """A place to watch a terminal from; there is a shell behind every name. Close it when done.

        Who was here before gives the offset behind the last byte they saw as `since`.
        """
        if not NAME.fullmatch(name):
            raise InvalidInput("name: a terminal is called by lower-case letters, digits and dashes, 63 at most")
        sandbox = await self._running(tenant, sandbox_id)
        key = sandbox.id, name
        # Two at once would make two hubs, and the second would push the first away.
        async with self._locks.setdefault(key, asyncio.Lock()):
            hub = self._hubs.get(key)
            if hub is None or hub.over:
                hub = await self._attach(sandbox, name, since, may_type)
            if len(hub.seats) >= MOST_VIEWERS:
                raise QuotaExceeded(f"terminal {name} has its {MOST_VIEWERS} viewers; close one first")
            return hub.join(viewer, since=since, size=size, may_type=may_type)

    async def list(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """The terminals of a sandbox: `name`, whether each is `running`, how many `viewers` it has."""
        sandbox = await self._running(tenant, sandbox_id)
        found = []
        for each in await self._fleet.client(sandbox).terminals():
            name = each.get("session_id")
            if isinstance(name, str) and NAME.fullmatch(name):
                hub = self._hubs.get((sandbox.id, name))
                viewers = len(hub.seats) if hub is not None and not hub.over else 0
                found.append({"name": name, "running": each.get("running") is True, "viewers": viewers})
        return found

    async def end(self, tenant: str, sandbox_id: str, name: str) -> None:
        """End a terminal and what runs in it. Raises `NotFound`."""
        if not NAME.fullmatch(name):
            raise NotFound(f"there is no terminal {name!r}")
        sandbox = await self._running(tenant, sandbox_id)
        hub = self._hubs.get((sandbox.id, name))
        if hub is not None:
            hub.end_reason = DELETED
        await self._fleet.client(sandbox).close_terminal(name)
        if hub is not None:
            await hub.exited(None)
        else:
            await self._tell(sandbox, EventType.TERMINAL_CLOSED, name=name, exit_code=None, reason=DELETED)

    async def close(self) -> None:
        """Let viewers go; terminals go on."""
        await asyncio.gather(*(hub.close() for hub in list(self._hubs.values())), return_exceptions=True)

    async def _attach(self, sandbox: Sandbox, name: str, since: int, may_type: bool) -> Hub:
        inside = self._fleet.client(sandbox)
        fresh = await self._prepare(inside, name, since, may_type)

        async def running() -> bool:
            try:
                return (await self._fleet.sandboxes.get(sandbox.id)).state in (
                    SandboxState.RUNNING,
                    SandboxState.PAUSED,
                )
            except PaddockError:
                return False

        async def ended(exit_code: int | None, reason: str) -> None:
            await self._tell(sandbox, EventType.TERMINAL_CLOSED, name=name, exit_code=exit_code, reason=reason)

        def typed(viewer: str, data: bytes) -> None:
            self._deeds.typed(sandbox.id, viewer, name, data)

        hub = Hub(sandbox.id, name, inside, self._leases, running=running, ended=ended, left=self._left, typed=typed)
        await hub.open()
        if not hub.over:  # A shell may end as soon as it has begun.
            self._hubs[sandbox.id, name] = hub
            if fresh:
                await self._tell(sandbox, EventType.TERMINAL_READY, name=name)
        return hub

    async def _prepare(self, inside: Inside, name: str, since: int, may_type: bool) -> bool:
        """See to it that there is a terminal of that name; whether its shell has yet to start."""
        listed = await inside.terminals()
        status = next((each for each in listed if each.get("session_id") == name), None)
        if status is None and SECRETLY_NAMED.fullmatch(name):
            raise NotFound(f"there is no terminal {name}")
        over = status is not None and status.get("launch_attempted") is True and status.get("running") is not True
        # Who comes back is shown how it ended; who comes anew wants a shell.
        again = over and not since and not SECRETLY_NAMED.fullmatch(name)
        if not may_type and (status is None or again or status.get("launch_attempted") is not True):
            raise Forbidden("nothing runs in this terminal, and to start something takes the scope sandboxes:write")
        if again:
            try:
                await inside.close_terminal(name)
            except NotFound:
                pass
        if status is None or again:
            await inside.open_terminal(name)
            return True
        return status.get("launch_attempted") is not True

    async def _running(self, tenant: str, sandbox_id: str) -> Sandbox:
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return sandbox

    async def _tell(self, sandbox: Sandbox, kind: EventType, **data: Any) -> None:
        try:
            current = await self._fleet.sandboxes.get(sandbox.id)
            if current.state in (SandboxState.RUNNING, SandboxState.PAUSED):  # Nothing may follow a sandbox's end.
                await self._fleet.tell(sandbox, kind, **data)
        except PaddockError:
            pass  # The sandbox is no more, or the disk is full; neither is a reason to take a terminal away.

    def _left(self, hub: Hub) -> None:
        if self._hubs.get((hub.sandbox_id, hub.name)) is hub:
            del self._hubs[hub.sandbox_id, hub.name]

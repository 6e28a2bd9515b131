"""Others who look after sandboxes: they give each something on its way, and take it back when it ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from paddock.fleet.requests import CreateSandbox
from paddock.model.sandbox import Hole, Sandbox
from paddock.sandbox.base import Backend, Feature, Record


class Attendant(Protocol):
    """What the fleet tells of every sandbox. All but `check` and `prepare` may be told more than once."""

    @property
    def holes(self) -> tuple[Hole, ...]:
        """What every box can reach, also one that is started before anybody has asked for it."""
        ...

    def check(self, request: CreateSandbox) -> None:
        """Raise `InvalidInput` for wishes that make no sense, before anything is made."""
        ...

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Variables for a sandbox that is about to start, below those its owner has set. Nobody keeps them."""
        ...

    async def started(self, sandbox: Sandbox, holes: Path) -> None:
        """Its box runs, and `holes` is the directory of its sockets; also when a new server has adopted it."""
        ...

    async def renewed(self, sandbox: Sandbox) -> None:
        """It has been given another end."""
        ...

    async def ended(self, sandbox_id: str) -> None:
        """It has ended, is about to be ended, or never came to be."""
        ...

    async def attended(self) -> Collection[str]:
        """Ids of all sandboxes that something is kept for."""
        ...


class Attendance:
    """The attendant of a fleet, if there is one and boxes of this backend can reach anything."""

    def __init__(self, attendant: Attendant | None, backend: Backend) -> None:
        self._attendant = attendant if Feature.HOLES in backend.features else None
        self._backend = backend

    @property
    def holes(self) -> tuple[Hole, ...]:
        return self._attendant.holes if self._attendant else ()

    def check(self, request: CreateSandbox) -> None:
        if self._attendant:
            self._attendant.check(request)

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        return await self._attendant.prepare(sandbox) if self._attendant else {}

    async def started(self, sandbox: Sandbox, record: Record) -> None:
        if self._attendant:
            await self._attendant.started(sandbox, self._backend.holes(record))

    async def renewed(self, sandbox: Sandbox) -> None:
        if self._attendant:
            await self._attendant.renewed(sandbox)

    async def ended(self, sandbox_id: str) -> None:
        if self._attendant:
            await self._attendant.ended(sandbox_id)

    async def attended(self) -> Collection[str]:
        return await self._attendant.attended() if self._attendant else ()

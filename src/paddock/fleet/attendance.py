"""Others who look after sandboxes: they give each something on its way, and take it back when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from paddock.fleet.requests import CreateSandbox
from paddock.model.sandbox import Hole, Sandbox
from paddock.sandbox.base import Backend, Feature, Record

log = structlog.get_logger()


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
    """The attendants of a fleet, if boxes of this backend can reach anything.

    Each is told in turn, and what goes wrong with one keeps none of the others from being told.
    """

    def __init__(self, attendants: Sequence[Attendant], backend: Backend) -> None:
        self._attendants = tuple(attendants) if Feature.HOLES in backend.features else ()
        self._backend = backend

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(hole for attendant in self._attendants for hole in attendant.holes)

    def check(self, request: CreateSandbox) -> None:
        for attendant in self._attendants:
            attendant.check(request)

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        # When one cannot, the sandbox does not come to be, and all are told that it has ended.
        found: dict[str, str] = {}
        for attendant in self._attendants:
            found |= await attendant.prepare(sandbox)
        return found

    async def started(self, sandbox: Sandbox, record: Record) -> None:
        if self._attendants:
            holes = self._backend.holes(record)
            await self._tell(sandbox.id, lambda attendant: attendant.started(sandbox, holes))

    async def renewed(self, sandbox: Sandbox) -> None:
        await self._tell(sandbox.id, lambda attendant: attendant.renewed(sandbox))

    async def ended(self, sandbox_id: str) -> None:
        await self._tell(sandbox_id, lambda attendant: attendant.ended(sandbox_id))

    async def attended(self) -> Collection[str]:
        found: set[str] = set()
        await self._tell(None, lambda attendant: _add(attendant, found))
        return found

    async def _tell(self, sandbox_id: str | None, tell: Callable[[Attendant], Awaitable[None]]) -> None:
        """Raises what went wrong first, when all have been told."""
        problems: list[Exception] = []
        for attendant in self._attendants:
            try:
                await tell(attendant)
            except Exception as error:
                problems.append(error)
        for other in problems[1:]:
            log.error("an attendant failed too", sandbox=sandbox_id, error=repr(other))
        if problems:
            raise problems[0]


async def _add(attendant: Attendant, found: set[str]) -> None:
    found.update(await attendant.attended())

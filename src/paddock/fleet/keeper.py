"""What goes on behind: adopting, expiring, measuring, and removing what has no owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

import structlog

from paddock.errors import Conflict, PaddockError, SandboxNotFound
from paddock.fleet.admission import ALIVE
from paddock.fleet.disk_watch import DiskWatch
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType
from paddock.model.sandbox import BoxHealth, Sandbox, SandboxState, SnapshotState

EXPIRE_EVERY = 1.0
EVERYTHING = 1_000_000
ASK_AT_ONCE = 16
ASK_TIMEOUT = 5.0
log = structlog.get_logger()


class Keeper:
    """Keeps a fleet's records and the machine in step."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: list[asyncio.Task[None]] = []
        self._kills: dict[str, int] = {}
        self._disk = DiskWatch(fleet, self._end)
        self._unowned: set[str] = set()

    async def open(self) -> None:
        """Take over what an earlier server left, then watch."""
        await self._adopt()
        await self._part_from_ended()
        await self._settle_snapshots()
        await self._remove_unowned(certain=True)
        await self._fleet.pools.open()
        settings = self._fleet.config
        for work, every in (
            (self._expire, EXPIRE_EVERY),
            (self._disk.look, settings.local.disk_check_every),
            (self._reconcile, settings.sandboxes.reconcile_every),
        ):
            self._tasks.append(asyncio.create_task(_repeat(work, every), name=work.__name__))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _all(self, *states: SandboxState) -> list[Sandbox]:
        found, _ = await self._fleet.sandboxes.list(states=states or None, page_size=EVERYTHING)
        return list(found)

    async def _adopt(self) -> None:
        await _each(await self._all(*ALIVE), self._take_over)

    async def _take_over(self, sandbox: Sandbox) -> None:
        if sandbox.state is SandboxState.STOPPING:
            await self._fleet.end(sandbox, sandbox.reason or "deleted", keep=False)
            return
        health = BoxHealth.GONE
        if sandbox.record:
            health = (await self._fleet.backend.status(sandbox.record)).health
        if sandbox.state is SandboxState.PENDING:
            await self._fail(sandbox, "interrupted", "the server stopped while the sandbox was starting")
        elif health is BoxHealth.GONE:
            await self._fail(sandbox, "lost", "the box ended while no server was running")
        else:
            state = SandboxState.PAUSED if health is BoxHealth.PAUSED else SandboxState.RUNNING
            adopted = await self._fleet.sandboxes.transition(sandbox.id, ALIVE, state)
            self._fleet.watch(adopted)
            await self._fleet.attendance.started(adopted, adopted.record)
            await self._fleet.tell(adopted, EventType.SANDBOX_ADOPTED)

    async def _fail(self, sandbox: Sandbox, reason: str, message: str) -> None:
        failed = await self._fleet.sandboxes.transition(sandbox.id, ALIVE, SandboxState.FAILED, reason, message)
        await self._fleet.part(sandbox.id)
        await self._fleet.tell(failed, EventType.SANDBOX_FAILED, reason=reason, message=message)

    async def _part_from_ended(self) -> None:
        """Take back from sandboxes that are no more what a crash, or trouble with the disk, has left them."""
        # Asked first: whoever gets something while we look is known to be alive by then.
        attended = set(await self._fleet.attendance.attended())
        if attended:
            for sandbox_id in attended - {sandbox.id for sandbox in await self._all(*ALIVE)}:
                await self._fleet.part(sandbox_id)

    async def _settle_snapshots(self) -> None:
        kept = set(await self._fleet.backend.snapshots())
        listed, _ = await self._fleet.snapshots.list(page_size=EVERYTHING)
        for snapshot in listed:
            if snapshot.state is SnapshotState.CREATING:
                await self._fleet.snapshots.transition(
                    snapshot.id, [snapshot.state], SnapshotState.FAILED, "interrupted", "the server stopped meanwhile"
                )
            elif snapshot.state is SnapshotState.DELETING:
                await self._fleet.backend.delete_snapshot(snapshot.id)
                await self._fleet.snapshots.delete(snapshot.id)
        ready = {snapshot.id for snapshot in listed if snapshot.state is SnapshotState.READY}
        for snapshot_id in kept - ready:
            await self._fleet.backend.delete_snapshot(snapshot_id)

    async def _expire(self) -> None:
        expired = await self._fleet.sandboxes.expired(datetime.now(UTC))
        await _each(expired, lambda sandbox: self._end(sandbox, "expired", "its time was up"))

    async def _end(self, sandbox: Sandbox, reason: str, message: str) -> None:
        try:
            await self._fleet.end(sandbox, reason, keep=True, message=message)
        except (Conflict, SandboxNotFound):
            pass  # Somebody else ended it, or it is still starting and will be met again.

    async def _reconcile(self) -> None:
        await self._count_memory_kills()
        await self._end_idle()
        await self._forget_ended()
        await self._part_from_ended()
        await self._remove_unowned(certain=False)

    async def _count_memory_kills(self) -> None:
        async def count(sandbox: Sandbox) -> None:
            kills = (await self._fleet.backend.status(sandbox.record)).out_of_memory_kills
            if kills > self._kills.get(sandbox.id, 0):
                await self._fleet.tell(sandbox, EventType.OUT_OF_MEMORY, kills=kills)
            self._kills[sandbox.id] = kills

        running = await self._all(SandboxState.RUNNING)
        await _each(running, count)
        known = {sandbox.id for sandbox in running}
        self._kills = {box_id: kills for box_id, kills in self._kills.items() if box_id in known}

    async def _end_idle(self) -> None:
        limit = self._fleet.config.sandboxes.idle_timeout
        if limit is None:
            return
        asking = asyncio.Semaphore(ASK_AT_ONCE)

        async def idle(sandbox: Sandbox) -> bool:
            async with asking:
                try:
                    seconds = (await self._fleet.client(sandbox).state(ASK_TIMEOUT)).get("idle_seconds", 0)
                except PaddockError:
                    return False
            return isinstance(seconds, int | float) and seconds > limit

        # All at once: boxes that keep us waiting must not keep others from being asked.
        running = await self._all(SandboxState.RUNNING)
        answers = await asyncio.gather(*map(idle, running))
        unused = [sandbox for sandbox, answer in zip(running, answers, strict=True) if answer]
        await _each(unused, lambda sandbox: self._end(sandbox, "idle", f"nobody used it for {limit:.0f} s"))

    async def _forget_ended(self) -> None:
        before = datetime.now(UTC) - timedelta(seconds=self._fleet.config.sandboxes.keep_ended)
        ended = await self._all(SandboxState.FAILED, SandboxState.TERMINATED)
        old = [sandbox for sandbox in ended if sandbox.changed_at < before]
        await _each(old, lambda sandbox: self._fleet.end(sandbox, "forgotten", keep=False))

    async def _remove_unowned(self, certain: bool) -> None:
        """Remove what no record speaks of; while the server runs, only what was unowned the last time too."""
        owned = {sandbox.id for sandbox in await self._all()}
        owned |= set(self._fleet.starting) | self._fleet.pools.box_ids() | self._fleet.pools.being_started
        unowned = set(await self._fleet.backend.leftovers()) - owned
        for box_id in unowned if certain else unowned & self._unowned:
            log.warning("removing a box without an owner", box=box_id)
            await self._fleet.backend.remove(box_id)
        self._unowned = unowned


async def _each(sandboxes: Iterable[Sandbox], work: Callable[[Sandbox], Awaitable[None]]) -> None:
    """Do something for each sandbox; what goes wrong with one, perhaps on purpose, is no reason to leave out others."""
    for sandbox in sandboxes:
        try:
            await work(sandbox)
        except Exception as error:
            log.error("housekeeping of a sandbox failed and will be tried again", sandbox=sandbox.id, error=repr(error))


async def _repeat(work: Callable[[], Awaitable[None]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            await work()
        except Exception as error:
            log.error("housekeeping failed and will be tried again", work=work.__name__, error=repr(error))

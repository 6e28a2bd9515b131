"""Reconciles stored and real sandboxes: adopts, expires, measures, and removes unowned ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

import structlog

from paddock.errors import Conflict, PaddockError, SandboxNotFound
from paddock.fleet.admission import ALIVE_STATES
from paddock.fleet.disk_watch import DiskWatch
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxHealth, SandboxState, SnapshotState

EXPIRE_INTERVAL = 1.0
ALL_ROWS = 1_000_000
MAX_CONCURRENT_QUERIES = 16
QUERY_TIMEOUT = 5.0
log = structlog.get_logger()


class Reconciler:
    """Keeps a fleet's records and the host's sandboxes consistent."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: list[asyncio.Task[None]] = []
        self._kills: dict[str, int] = {}
        self._disk = DiskWatch(fleet, self._end_sandbox)
        self._unowned: set[str] = set()

    async def open(self) -> None:
        """Adopt the sandboxes of an earlier server, then start the periodic tasks."""
        await self._adopt_all()
        await self._disconnect_ended()
        await self._reconcile_snapshots()
        await self._remove_unowned(certain=True)
        await self._fleet.pools.open()
        settings = self._fleet.config
        for work, every in (
            (self._expire, EXPIRE_INTERVAL),
            (self._disk.check_disk_use, settings.local.disk_check_every),
            (self._reconcile, settings.sandboxes.reconcile_every),
        ):
            self._tasks.append(asyncio.create_task(_repeat_forever(work, every), name=work.__name__))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _list_sandboxes(self, *states: SandboxState) -> list[Sandbox]:
        found, _ = await self._fleet.sandboxes.list(states=states or None, page_size=ALL_ROWS)
        return list(found)

    async def _adopt_all(self) -> None:
        await _for_each(await self._list_sandboxes(*ALIVE_STATES), self._adopt_sandbox)

    async def _adopt_sandbox(self, sandbox: Sandbox) -> None:
        if sandbox.state is SandboxState.STOPPING:
            await self._fleet.end_sandbox(sandbox, sandbox.reason or "deleted", keep=False)
            return
        health = SandboxHealth.GONE
        if sandbox.record:
            health = (await self._fleet.backend.status(sandbox.record)).health
        if sandbox.state is SandboxState.PENDING:
            await self._fail(sandbox, "interrupted", "the server stopped while the sandbox was starting")
        elif health is SandboxHealth.GONE:
            await self._fail(sandbox, "lost", "the sandbox ended while no server was running")
        else:
            state = SandboxState.PAUSED if health is SandboxHealth.PAUSED else SandboxState.RUNNING
            adopted = await self._fleet.sandboxes.transition(sandbox.id, ALIVE_STATES, state)
            self._fleet.watch_sandbox(adopted)
            await self._fleet.hooks.on_started(adopted, adopted.record)
            await self._fleet.publish_event(adopted, EventType.SANDBOX_ADOPTED)

    async def _fail(self, sandbox: Sandbox, reason: str, message: str) -> None:
        failed = await self._fleet.sandboxes.transition(sandbox.id, ALIVE_STATES, SandboxState.FAILED, reason, message)
        await self._fleet.disconnect(sandbox.id)
        await self._fleet.publish_event(failed, EventType.SANDBOX_FAILED, reason=reason, message=message)

    async def _disconnect_ended(self) -> None:
        """Clean up hook resources of ended sandboxes that a crash or a full disk left behind."""
        # Queried first: sandboxes that start meanwhile are in the list of living ones.
        tracked = set(await self._fleet.hooks.tracked_sandboxes())
        if tracked:
            for sandbox_id in tracked - {sandbox.id for sandbox in await self._list_sandboxes(*ALIVE_STATES)}:
                await self._fleet.disconnect(sandbox_id)

    async def _reconcile_snapshots(self) -> None:
        kept = set(await self._fleet.backend.snapshots())
        listed, _ = await self._fleet.snapshots.list(page_size=ALL_ROWS)
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
        await _for_each(expired, lambda sandbox: self._end_sandbox(sandbox, "expired", "its lifetime was over"))

    async def _end_sandbox(self, sandbox: Sandbox, reason: str, message: str) -> None:
        try:
            await self._fleet.end_sandbox(sandbox, reason, keep=True, message=message)
        except (Conflict, SandboxNotFound):
            pass  # Ended concurrently, or still starting and retried in the next round.

    async def _reconcile(self) -> None:
        await self._count_memory_kills()
        await self._end_idle()
        await self._forget_ended()
        await self._disconnect_ended()
        await self._remove_unowned(certain=False)

    async def _count_memory_kills(self) -> None:
        async def count(sandbox: Sandbox) -> None:
            kills = (await self._fleet.backend.status(sandbox.record)).out_of_memory_kills
            if kills > self._kills.get(sandbox.id, 0):
                await self._fleet.publish_event(sandbox, EventType.OUT_OF_MEMORY, kills=kills)
            self._kills[sandbox.id] = kills

        running = await self._list_sandboxes(SandboxState.RUNNING)
        await _for_each(running, count)
        known = {sandbox.id for sandbox in running}
        self._kills = {sandbox_id: kills for sandbox_id, kills in self._kills.items() if sandbox_id in known}

    async def _end_idle(self) -> None:
        limit = self._fleet.config.sandboxes.idle_timeout
        if limit is None:
            return
        query_slots = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

        async def idle(sandbox: Sandbox) -> bool:
            async with query_slots:
                try:
                    seconds = (await self._fleet.client(sandbox).state(QUERY_TIMEOUT)).get("idle_seconds", 0)
                except PaddockError:
                    return False
            return isinstance(seconds, int | float) and seconds > limit

        # Concurrently: slow sandboxes must not delay the others.
        running = await self._list_sandboxes(SandboxState.RUNNING)
        answers = await asyncio.gather(*map(idle, running))
        unused = [sandbox for sandbox, answer in zip(running, answers, strict=True) if answer]
        await _for_each(unused, lambda sandbox: self._end_sandbox(sandbox, "idle", f"unused for {limit:.0f} s"))

    async def _forget_ended(self) -> None:
        before = datetime.now(UTC) - timedelta(seconds=self._fleet.config.sandboxes.keep_ended)
        ended = await self._list_sandboxes(SandboxState.FAILED, SandboxState.TERMINATED)
        old = [sandbox for sandbox in ended if sandbox.changed_at < before]
        await _for_each(old, lambda sandbox: self._fleet.end_sandbox(sandbox, "forgotten", keep=False))

    async def _remove_unowned(self, certain: bool) -> None:
        """Remove sandboxes without a record; unless `certain`, only if unowned in the last round too."""
        owned = {sandbox.id for sandbox in await self._list_sandboxes()}
        owned |= set(self._fleet.starting) | self._fleet.pools.sandbox_ids() | self._fleet.pools.starting_ids
        unowned = set(await self._fleet.backend.leftovers()) - owned
        for sandbox_id in unowned if certain else unowned & self._unowned:
            log.warning("removing sandbox without owner", handle=sandbox_id)
            await self._fleet.backend.remove(sandbox_id)
        self._unowned = unowned


async def _for_each(sandboxes: Iterable[Sandbox], work: Callable[[Sandbox], Awaitable[None]]) -> None:
    """Call `work` for each sandbox; log errors, so that one hostile sandbox cannot block the others."""
    for sandbox in sandboxes:
        try:
            await work(sandbox)
        except Exception as error:
            log.error("cannot reconcile sandbox; will retry", sandbox=sandbox.id, error=repr(error))


async def _repeat_forever(work: Callable[[], Awaitable[None]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            await work()
        except Exception as error:
            log.error("reconciler task failed; will retry", work=work.__name__, error=repr(error))

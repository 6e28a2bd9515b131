"""What callers use: runs of many tenants, from their submission to what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import structlog

from paddock.errors import Conflict, InvalidInput, PaddockError, RunNotFound
from paddock.fleet.requests import new_id
from paddock.model.events import EventType
from paddock.model.owners import Visibility, check_may_share, owner_of_new, request_key_of
from paddock.model.runs import EndedBy, ReasonCode, Result, Run, RunState, Stage
from paddock.model.sandbox import RUN
from paddock.model.task import Task
from paddock.runs.ends import Cancel
from paddock.runs.folder import remove_left
from paddock.runs.means import Means
from paddock.runs.queue import Room
from paddock.store.database import Store
from paddock.store.events import Happening
from paddock.store.runs import RunStore

EVERYTHING = 1_000_000
LOOK_AGAIN = 1.0
"""Seconds before the queue is looked at again when the database could not be read."""
TIDY_EVERY = 600.0
UNUSED_FOR = 86400.0
"""Seconds that inputs are kept for a run that nobody has submitted yet."""
FORGET_AT_ONCE = 100
log = structlog.get_logger()


class Runs:
    """Keeps the queue and sees to the runs of one server. Every method takes the tenant that asks.

    `alone` says that no other server can be at work on the same database, so that what was left under way is taken over
    at once and not when its lease has run out.
    """

    def __init__(self, means: Means, store: Store, *, alone: bool = False) -> None:
        self.means = means
        self.owner = new_id("server")
        self._store = RunStore(store)
        self._settings = means.config.runs
        self._alone = alone
        self._running: dict[str, Cancel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._sound: str | None = None
        """The script that was looked at last and found right; all runs of a matrix have the same."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return bool(self._running)

    async def open(self) -> None:
        """Go on with what an earlier server left, then take from the queue."""
        await self._take_over(alone=self._alone)
        loops = {"queue": self._dispatch, "lease": self._renew, "keep": self._tidy}
        for name, loop in loops.items():
            self._background.append(asyncio.create_task(loop(), name=f"runs: {name}"))

    async def close(self) -> None:
        """Let go of everything. Runs stay as they are, their sandboxes go on, and the next server takes them over."""
        tasks = [*self._background, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._store.let_go(self.owner)
        except PaddockError as error:
            log.warning("runs could not be let go of; they are taken over when their lease ends", error=str(error))

    async def submit(
        self,
        tenant: str,
        task: Task,
        *,
        inputs: str | None = None,
        request_key: str | None = None,
        group: str | None = None,
        name: str | None = None,
        visibility: Visibility | None = None,
    ) -> Run:
        """Queue a run. Once this returns it is on disk; asking again with the same `request_key` returns the first.

        Raises `InvalidInput` for what can be seen to be wrong without a sandbox.
        """
        await asyncio.to_thread(self.check, tenant, task)
        if inputs is not None:
            await asyncio.to_thread(self.means.bundles.path, tenant, inputs)
        now = datetime.now(UTC)
        run = Run(
            id=new_id("run"),
            tenant=str(tenant),
            **dict(owner_of_new(tenant, visibility or self.means.config.sharing.default)),
            name=name or task.name,
            group=group,
            task=task,
            inputs=inputs,
            state=RunState.QUEUED,
            stage=Stage.ADMIT,
            priority=task.priority,
            request_key=request_key_of(tenant, request_key),
            created_at=now,
            changed_at=now,
        )
        queued = Happening(f"run/{run.id}", EventType.RUN_QUEUED, {"name": run.name, "group": group}, tenant)
        inserting = self._store.inserting(run)
        kept, _ = await self.means.events.together(inserting, lambda found: [queued] if found[1] else [])
        self._changed.set()
        return kept

    async def get(self, tenant: str, run_id: str) -> Run:
        """Raises `RunNotFound`."""
        return await self._store.get(run_id, tenant)

    async def list(
        self,
        tenant: str,
        *,
        states: Collection[RunState] | None = None,
        name: str | None = None,
        group: str | None = None,
        page: int = 1,
        page_size: int = 20,
    ) -> tuple[Sequence[Run], int]:
        """One page, newest first, and how many there are in all."""
        return await self._store.list(tenant, states=states, name=name, group=group, page=page, page_size=page_size)

    async def cancel(self, tenant: str, run_id: str, reason: str = "somebody asked for it", hard: bool = False) -> Run:
        """Have a run stop: one that waits at once, one under way after its agent has been asked to end.

        `hard` does not ask. A run that has ended stays as it is. Returns the run as it is now; it ends a little later.
        """
        await self._store.get(run_id, tenant)
        why = f"it was cancelled: {reason}"
        code, params = ReasonCode.CANCELLED, {"detail": reason}
        result = Result(state=RunState.CANCELLED, ended_by=EndedBy.CANCEL, reason=why, code=code, params=params)
        cancelling = self._store.cancelling(run_id, reason, hard, result)

        def tell(found: tuple[Run, bool]) -> Sequence[Happening]:
            run, news = found
            told = [(EventType.RUN_CANCELLING, {"reason": reason, "hard": hard})]
            if run.state.ended:
                told.append((EventType.RUN_ENDED, {"state": run.state, "ended_by": EndedBy.CANCEL, "reason": why}))
            return [Happening(f"run/{run_id}", kind, data, tenant) for kind, data in told] if news else []

        run, news = await self.means.events.together(cancelling, tell)
        if news and run.result is not None:
            await self._leave_result(run, run.result)
            try:
                await self._store.get(run_id)
            except RunNotFound:  # Whoever has removed it meanwhile did not find what was written just now.
                await asyncio.to_thread(self.means.folder(run_id).remove)
        under_way = self._running.get(run_id)
        if under_way is not None and not run.state.ended:
            under_way.ask(reason, hard=hard)
        return run

    async def share(self, tenant: str, run_id: str, visibility: Visibility) -> Run:
        """Change who sees a run, its sandbox and its events. Raises `Forbidden` unless it is the caller's to share."""
        run = await self._store.get(run_id, tenant)
        check_may_share(tenant, run)
        stream = f"run/{run_id}"
        changed = Happening(stream, EventType.RUN_SHARED, {"visibility": visibility}, tenant)
        shared = await self.means.events.readdress(
            self._store.changing(run_id, None, visibility=visibility),
            lambda _: [changed],
            [stream],
            run.model_copy(update={"visibility": visibility}).audience,
        )
        await self.means.fleet.share_all(run.tenant, {RUN: run_id}, shared)
        return shared

    async def retry(self, tenant: str, run_id: str) -> Run:
        """Queue a new run of the same task with the same inputs."""
        run = await self._store.get(run_id, tenant)
        return await self.submit(tenant, run.task, inputs=run.inputs, group=run.group, name=run.name)

    async def remove(self, tenant: str, run_id: str) -> None:
        """Forget a run that has ended, with its folder. Raises `Conflict` for one that has not."""
        run = await self._store.get(run_id, tenant)
        still_used = await self._store.delete(run_id)
        await asyncio.to_thread(self.means.folder(run_id).remove)
        if run.inputs is not None and not still_used:
            await asyncio.to_thread(self.means.bundles.forget, run.tenant, run.inputs)
        try:
            await self.means.artifacts.remove(run_id)
        except Exception as error:  # Each file system has errors of its own.
            log.warning("what was copied of a run could not be removed", run=run_id, error=str(error))

    def check(self, tenant: str, task: Task) -> None:
        """Raise `InvalidInput` for what can be seen to be wrong with one run's task. Blocks while files are read."""
        from paddock.llm.scripted import check_script
        from paddock.runs.readiness import check

        if task.matrix is not None:
            raise InvalidInput("matrix: a run is of one agent and one model; submit one for each pair")
        check(self.means, tenant, task)
        script = task.llm.script
        if script is not None and script != self._sound:
            check_script(script)
            self._sound = script

    async def _leave_result(self, run: Run, result: Result) -> None:
        def write() -> None:
            folder = self.means.folder(run.id)
            folder.create()
            folder.write_task(self.means.readable(run.task))
            folder.write_result(result)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            log.error("the folder of a run could not be completed", run=run.id, error=str(error))

    async def _dispatch(self) -> None:
        """Start runs whenever there is room and something waits."""
        while True:
            self._changed.clear()
            try:
                await self._start_some()
                wait = await self._until_next()
            except Exception as error:  # Whatever it is, the queue goes on.
                log.error("the queue of runs could not be read and will be again", error=repr(error))
                wait = LOOK_AGAIN
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _start_some(self) -> None:
        if not self._alone:
            await self._take_over(alone=False)
        free = self._settings.parallel - len(self._tasks)
        if free > 0:
            room = Room(free, self._settings.tenant_parallel)
            now = datetime.now(UTC)
            for run in await self._store.claim(self.owner, now, self._lease(now), room.choose):
                self._start(run)

    async def _until_next(self) -> float:
        """Seconds until something may be there to do that nobody tells us of."""
        now = datetime.now(UTC)
        due = await self._store.next_due(now)
        patience = self._settings.lease / 2
        return patience if due is None else min(patience, max(0.01, (due - now).total_seconds()))

    async def _take_over(self, *, alone: bool) -> None:
        now = datetime.now(UTC)
        limit = EVERYTHING if alone else max(0, self._settings.parallel - len(self._tasks))
        for run in await self._store.take_over(self.owner, now, self._lease(now), limit=limit, alone=alone):
            log.info("going on with a run", run=run.id, stage=run.stage)
            self._start(run)

    def _lease(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._settings.lease)

    def _start(self, run: Run) -> None:
        cancel = self._running[run.id] = Cancel()
        self._tasks[run.id] = asyncio.create_task(self._see_to(run, cancel), name=f"run {run.id}")

    async def _see_to(self, run: Run, cancel: Cancel) -> None:
        from paddock.runs.runner import Runner

        try:
            run = await Runner(self.means, self._store, run, self.owner, cancel).go()
        except Conflict as error:
            log.warning("a run is seen to by another server now", run=run.id, error=str(error))
        except Exception:
            # Nothing is lost: the run is as it was written down, and whoever takes it over goes on with it.
            log.exception("a run could not be gone on with", run=run.id)
        finally:
            self._running.pop(run.id, None)
            self._tasks.pop(run.id, None)
            self._changed.set()
        if run.state is RunState.QUEUED and (cancel.asked or run.cancelling is not None):
            await self.cancel(run.tenant, run.id, run.cancelling or cancel.reason)

    async def _renew(self) -> None:
        """Keep what is ours, notice what somebody else has taken, and what others want to be cancelled."""
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            if not self._running:
                continue
            try:
                await self._renew_all()
            except Exception as error:
                log.error("the lease of runs could not be renewed and will be again", error=repr(error))

    async def _renew_all(self) -> None:
        before = set(self._running)
        ours = await self._store.renew(self.owner, self._lease(datetime.now(UTC)))
        for run_id, cancelling, hard in ours:
            if cancelling is not None and run_id in self._running:
                self._running[run_id].ask(cancelling, hard=hard)
        for run_id in before - {run_id for run_id, _, _ in ours}:
            # What has ended or is back in the queue is about to leave by itself.
            if run_id in self._tasks and (await self._store.get(run_id)).owner not in (None, self.owner):
                self._tasks[run_id].cancel()

    async def _tidy(self) -> None:
        """Forget old runs, what was left of them, and inputs that were uploaded for nothing."""
        keep = self._settings.keep
        try:
            await asyncio.to_thread(remove_left, self.means.folders)
        except OSError as error:
            log.error("what was left of old runs could not be removed", error=repr(error))
        while True:
            await asyncio.sleep(TIDY_EVERY if keep is None else min(TIDY_EVERY, keep))
            try:
                if keep is not None:
                    await self._forget(datetime.now(UTC) - timedelta(seconds=keep))
                await asyncio.to_thread(self.means.bundles.sweep, await self._store.inputs(), UNUSED_FOR)
            except Exception as error:
                log.error("old runs could not be removed and will be tried again", error=repr(error))

    async def _forget(self, before: datetime) -> None:
        while old := await self._store.ended_before(before, FORGET_AT_ONCE):
            for run in old:
                await self.remove(run.tenant, run.id)

"""Service for submitting, listing, cancelling and executing runs of all tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import structlog

from paddock.errors import Conflict, InvalidInput, PaddockError, RunNotFound
from paddock.fleet.fleet_requests import new_id
from paddock.model.events import EventType
from paddock.model.owners import Visibility, check_may_share, owner_scoped_request_key, ownership_of_new_object
from paddock.model.runs import EndedBy, Run, RunReasonCode, RunResult, RunStage, RunState
from paddock.model.sandbox import RUN_KEY
from paddock.model.task import Task
from paddock.runs.execution.end_conditions import RunCancellation
from paddock.runs.execution.queue_selection import RunCapacity
from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
from paddock.runs.results.run_folder import remove_leftover_run_folders
from paddock.store.database import Store
from paddock.store.event_store import NewEvent
from paddock.store.run_store import RunStore

NO_LIMIT = 1_000_000
QUEUE_RETRY_SECONDS = 1.0
"""Seconds before the queue is read again after a database error."""
CLEANUP_INTERVAL = 600.0
UNUSED_INPUTS_AGE = 86400.0
"""Seconds that uploaded inputs are kept without a run."""
REMOVAL_BATCH = 100
log = structlog.get_logger()


class RunService:
    """Queue and executor of one server's runs. Methods take the caller's tenant.

    `alone`: no other server uses the database, so unfinished runs are adopted
    at once instead of when their lease expires.
    """

    def __init__(self, dependencies: RunServiceDependencies, store: Store, *, alone: bool = False) -> None:
        self.dependencies = dependencies
        self.owner = new_id("server")
        self._store = RunStore(store)
        self._settings = dependencies.config.runs
        self._alone = alone
        self._running: dict[str, RunCancellation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        """Set when the queue or the number of active runs changes."""

    @property
    def has_active_runs(self) -> bool:
        """Return true if a run is active."""
        return bool(self._running)

    async def open(self) -> None:
        """Adopt unfinished runs and start the queue."""
        await self._adopt_runs(alone=self._alone)
        loops = {
            "queue": self._dispatch_queue,
            "lease": self._renew_leases_periodically,
            "keep": self._remove_old_runs_periodically,
        }
        for name, loop in loops.items():
            self._background.append(asyncio.create_task(loop(), name=f"runs: {name}"))

    async def close(self) -> None:
        """Release all runs. Their sandboxes keep running until the next server adopts the runs."""
        tasks = [*self._background, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._store.release_leases(self.owner)
        except PaddockError as error:
            log.warning("could not release runs; they are adopted when their lease expires", error=str(error))

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
        """Queue a run durably. Repeating a `request_key` returns the first run.

        Raises `InvalidInput` for problems that can be found without a sandbox.
        """
        await asyncio.to_thread(self.check_task, tenant, task)
        if inputs is not None:
            await asyncio.to_thread(self.dependencies.bundles.bundle_path, tenant, inputs)
        now = datetime.now(UTC)
        run = Run(
            id=new_id("run"),
            tenant=str(tenant),
            **dict(ownership_of_new_object(tenant, visibility or self.dependencies.config.sharing.default)),
            name=name or task.name,
            group=group,
            task=task,
            inputs=inputs,
            state=RunState.QUEUED,
            stage=RunStage.ADMIT,
            priority=task.priority,
            request_key=owner_scoped_request_key(tenant, request_key),
            created_at=now,
            changed_at=now,
        )
        queued = NewEvent(f"run/{run.id}", EventType.RUN_QUEUED, {"name": run.name, "group": group}, tenant)
        inserting = self._store.insert_work(run)
        stored, _ = await self.dependencies.events.write_with_events(
            inserting, lambda found: [queued] if found[1] else []
        )
        self._changed.set()
        return stored

    async def get(self, tenant: str, run_id: str) -> Run:
        """Return a run. Raises `RunNotFound`."""
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
        """Return one page, newest first, and the total number."""
        return await self._store.list(tenant, states=states, name=name, group=group, page=page, page_size=page_size)

    async def cancel(self, tenant: str, run_id: str, reason: str = "somebody asked for it", hard: bool = False) -> Run:
        """Cancel a run: a queued one at once, an active one after its agent was asked to stop.

        `hard` stops without asking. An ended run is unchanged. Returns the current run, which ends shortly after.
        """
        await self._store.get(run_id, tenant)
        message = f"it was cancelled: {reason}"
        code, params = RunReasonCode.CANCELLED, {"detail": reason}
        result = RunResult(state=RunState.CANCELLED, ended_by=EndedBy.CANCEL, reason=message, code=code, params=params)
        cancelling = self._store.cancel_work(run_id, reason, hard, result)

        def cancel_events(found: tuple[Run, bool]) -> Sequence[NewEvent]:
            run, is_new = found
            events = [(EventType.RUN_CANCELLING, {"reason": reason, "hard": hard})]
            if run.state.ended:
                events.append(
                    (EventType.RUN_ENDED, {"state": run.state, "ended_by": EndedBy.CANCEL, "reason": message})
                )
            return [NewEvent(f"run/{run_id}", kind, data, tenant) for kind, data in events] if is_new else []

        run, is_new = await self.dependencies.events.write_with_events(cancelling, cancel_events)
        if is_new and run.result is not None:
            await self._write_result_file(run, run.result)
            try:
                await self._store.get(run_id)
            except RunNotFound:  # The run was removed in the meantime; remove the new file as well.
                await asyncio.to_thread(self.dependencies.run_folder(run_id).remove)
        cancellation = self._running.get(run_id)
        if cancellation is not None and not run.state.ended:
            cancellation.request(reason, hard=hard)
        return run

    async def share(self, tenant: str, run_id: str, visibility: Visibility) -> Run:
        """Change the visibility of a run, its sandbox and its events. Raises `Forbidden` without permission."""
        run = await self._store.get(run_id, tenant)
        check_may_share(tenant, run)
        stream = f"run/{run_id}"
        changed = NewEvent(stream, EventType.RUN_SHARED, {"visibility": visibility}, tenant)
        shared = await self.dependencies.events.change_audience(
            self._store.update_work(run_id, None, visibility=visibility),
            lambda _: [changed],
            [stream],
            run.model_copy(update={"visibility": visibility}).audience,
        )
        await self.dependencies.fleet.share_owned(run.tenant, {RUN_KEY: run_id}, shared)
        return shared

    async def retry(self, tenant: str, run_id: str) -> Run:
        """Queue a new run of the same task with the same inputs."""
        run = await self._store.get(run_id, tenant)
        return await self.submit(tenant, run.task, inputs=run.inputs, group=run.group, name=run.name)

    async def remove(self, tenant: str, run_id: str) -> None:
        """Delete an ended run and its folder. Raises `Conflict` for an active run."""
        run = await self._store.get(run_id, tenant)
        still_used = await self._store.delete(run_id)
        await asyncio.to_thread(self.dependencies.run_folder(run_id).remove)
        if run.inputs is not None and not still_used:
            await asyncio.to_thread(self.dependencies.bundles.remove, run.tenant, run.inputs)
        try:
            await self.dependencies.deliverable_uploader.remove(run_id)
        except Exception as error:  # Each file system has its own errors.
            log.warning("could not remove uploaded deliverables of run", run=run_id, error=str(error))

    def check_task(self, tenant: str, task: Task) -> None:
        """Raise `InvalidInput` for problems that can be found without a sandbox. Blocks on file access."""
        from paddock.runs.tasks.readiness_check import check_task_readiness
        from paddock.runs.tasks.script_check import find_script_problems

        if task.matrix is not None:
            raise InvalidInput("matrix: a run has one agent and one model; submit one run per pair")
        check_task_readiness(self.dependencies, tenant, task)
        problems = () if task.llm.script is None else find_script_problems(task.llm.script)
        if problems:
            raise InvalidInput("; ".join(f"llm.script: {problem}" for problem in problems))

    async def _write_result_file(self, run: Run, result: RunResult) -> None:
        def write() -> None:
            folder = self.dependencies.run_folder(run.id)
            folder.create()
            folder.write_task(self.dependencies.masked_task(run.task))
            folder.write_result(result)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            log.error("could not complete run folder", run=run.id, error=str(error))

    async def _dispatch_queue(self) -> None:
        """Start queued runs as capacity allows."""
        while True:
            self._changed.clear()
            try:
                await self._start_queued_runs()
                wait = await self._seconds_until_next_check()
            except Exception as error:  # The queue must go on after any error.
                log.error("could not read run queue; will retry", error=repr(error))
                wait = QUEUE_RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _start_queued_runs(self) -> None:
        if not self._alone:
            await self._adopt_runs(alone=False)
        free = self._settings.parallel - len(self._tasks)
        if free > 0:
            capacity = RunCapacity(free, self._settings.tenant_parallel)
            now = datetime.now(UTC)
            for run in await self._store.claim(self.owner, now, self._lease_expiry(now), capacity.select_runs):
                self._start_run(run)

    async def _seconds_until_next_check(self) -> float:
        """Return seconds until the queue must be read without a notification."""
        now = datetime.now(UTC)
        due = await self._store.next_due(now)
        patience = self._settings.lease / 2
        return patience if due is None else min(patience, max(0.01, (due - now).total_seconds()))

    async def _adopt_runs(self, *, alone: bool) -> None:
        now = datetime.now(UTC)
        limit = NO_LIMIT if alone else max(0, self._settings.parallel - len(self._tasks))
        for run in await self._store.take_over(self.owner, now, self._lease_expiry(now), limit=limit, alone=alone):
            log.info("resuming run", run=run.id, stage=run.stage)
            self._start_run(run)

    def _lease_expiry(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._settings.lease)

    def _start_run(self, run: Run) -> None:
        cancel = self._running[run.id] = RunCancellation()
        self._tasks[run.id] = asyncio.create_task(self._execute_run(run, cancel), name=f"run {run.id}")

    async def _execute_run(self, run: Run, cancel: RunCancellation) -> None:
        from paddock.runs.execution.run_executor import RunExecutor

        try:
            run = await RunExecutor(self.dependencies, self._store, run, self.owner, cancel).run_to_end()
        except Conflict as error:
            log.warning("run taken over by another server", run=run.id, error=str(error))
        except Exception:
            # The stored run is intact; the next owner continues it.
            log.exception("could not continue run", run=run.id)
        finally:
            self._running.pop(run.id, None)
            self._tasks.pop(run.id, None)
            self._changed.set()
        if run.state is RunState.QUEUED and (cancel.requested or run.cancelling is not None):
            await self.cancel(run.tenant, run.id, run.cancelling or cancel.reason)

    async def _renew_leases_periodically(self) -> None:
        """Renew leases, stop runs taken by other servers, and apply cancellations requested elsewhere."""
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            if not self._running:
                continue
            try:
                await self._renew_leases()
            except Exception as error:
                log.error("could not renew run leases; will retry", error=repr(error))

    async def _renew_leases(self) -> None:
        before = set(self._running)
        ours = await self._store.renew(self.owner, self._lease_expiry(datetime.now(UTC)))
        for run_id, cancelling, hard in ours:
            if cancelling is not None and run_id in self._running:
                self._running[run_id].request(cancelling, hard=hard)
        for run_id in before - {run_id for run_id, _, _ in ours}:
            # Ended and re-queued runs leave by themselves.
            if run_id in self._tasks and (await self._store.get(run_id)).owner not in (None, self.owner):
                self._tasks[run_id].cancel()

    async def _remove_old_runs_periodically(self) -> None:
        """Remove old runs, leftover folders and unused inputs."""
        keep = self._settings.keep
        try:
            await asyncio.to_thread(remove_leftover_run_folders, self.dependencies.folders)
        except OSError as error:
            log.error("could not remove leftover run folders", error=repr(error))
        while True:
            await asyncio.sleep(CLEANUP_INTERVAL if keep is None else min(CLEANUP_INTERVAL, keep))
            try:
                if keep is not None:
                    await self._remove_runs_ended_before(datetime.now(UTC) - timedelta(seconds=keep))
                await asyncio.to_thread(
                    self.dependencies.bundles.remove_unused, await self._store.inputs(), UNUSED_INPUTS_AGE
                )
            except Exception as error:
                log.error("could not remove old runs; will retry", error=repr(error))

    async def _remove_runs_ended_before(self, before: datetime) -> None:
        while old := await self._store.ended_before(before, REMOVAL_BATCH):
            for run in old:
                await self.remove(run.tenant, run.id)

"""Execute one run from its current stage to its end: order of stages, cancellation, retries and the result.

Each stage is stored before it starts and is idempotent, so another server can continue a run with the stored
stage. The end of the work is stored before results are collected: a finished entrypoint is not watched again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import structlog

from paddock.errors import Conflict, HostFull, PaddockError, QuotaExceeded, SandboxError, SandboxNotFound, Unavailable
from paddock.model.events import EventType
from paddock.model.runs import EndedBy, Run, RunReasonCode, RunResult, RunStage, RunState, TaskCheckResult
from paddock.runs.execution import stage_operations
from paddock.runs.execution.build_progress_filter import BuildProgressFilter
from paddock.runs.execution.end_conditions import (
    EntrypointOutcome,
    RunCancellation,
    cancelled_verdict,
    single_line_text,
)
from paddock.runs.execution.entrypoint_watch import ENTRYPOINT_COMMAND_ID, EntrypointWatch, EntrypointWatchSettings
from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
from paddock.runs.presets import LaunchPlan, make_output_reader
from paddock.runs.results.connection_export import write_attempt_connections
from paddock.runs.results.conversation_export import write_run_conversation
from paddock.runs.results.mcp_call_export import write_run_mcp_calls
from paddock.runs.results.run_results import (
    CollectedResults,
    build_run_result,
    collect_results,
    deliverable_events,
    unreachable_sandbox_results,
)
from paddock.runs.results.verify_checks import run_check, run_checks, skipped_check_results
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.images import BuildProgress
from paddock.store.event_store import NewEvent
from paddock.store.run_store import RunStore

CAPACITY_RETRY_SECONDS = 1.0
"""Seconds before a run without capacity tries again."""
CAPACITY_WAIT_LIMIT = 600.0
"""Maximum seconds that a run waits for free disk space."""
WRITE_RETRY_SECONDS = 1.0
CANNOT_EXECUTE, NOT_FOUND = 126, 127
START_FAILURE_SECONDS = 10.0
"""A "command not found" within these seconds means that the entrypoint is missing."""
EVENT_PAGE_SIZE = 1000
IMAGE_BUILD = "image"
"""Name of the image build among the times of the stages."""
STAGE_ORDER = {stage: index for index, stage in enumerate(RunStage)}
T = TypeVar("T")
EventContent = tuple[EventType, Mapping[str, Any]]
log = structlog.get_logger()


class NoCapacity(PaddockError):
    """The server has no capacity for the run's sandbox now."""


class RunExecutor:
    """Executor of one run that this server owns."""

    def __init__(
        self, dependencies: RunServiceDependencies, store: RunStore, run: Run, owner: str, cancel: RunCancellation
    ) -> None:
        self.run = run
        self.cancel = cancel
        self._dependencies = dependencies
        self._store = store
        self._owner = owner
        self._folder = dependencies.run_folder(run.id)
        self._image: str | None = None
        self._image_build_started: float | None = None
        if run.cancelling is not None:
            cancel.request(run.cancelling, hard=run.hard)

    async def run_to_end(self) -> Run:
        """Continue until the run ends or is queued again. Raises `Conflict` if another server took it over."""
        gateway = self._dependencies.gateway
        try:
            end = await self._run_until_work_ends()
            return await self._finish_or_retry(end, await self._collect_and_check(end))
        except NoCapacity as error:
            return await self._queue_until_capacity(error)
        except Exception as error:
            # End the run: a retry would meet the same error again.
            return await self._finish_or_retry(await self._end_from_error(error), CollectedResults(), last=True)
        finally:
            gateway.run_traffic.stop_counting(self.run.id)
            gateway.routes.run_scripts.remove(self.run.id)

    async def _run_until_work_ends(self) -> EntrypointOutcome:
        """Execute the work unless it has ended already, and store its end."""
        stored_end = self.run.progress.get("over")
        if stored_end is not None:
            return EntrypointOutcome.model_validate(stored_end)
        try:
            end = await self._start_and_watch()
        except (NoCapacity, asyncio.CancelledError):
            raise
        except Exception as error:
            end = await self._end_from_error(error)
        await self._enter_stage(RunStage.COLLECT, over=end.model_dump(mode="json"))
        return end

    async def _start_and_watch(self) -> EntrypointOutcome:
        if STAGE_ORDER[self.run.stage] < STAGE_ORDER[RunStage.WATCH]:
            if await self._unless_cancelled(self._prepare_and_start()) is None:
                return self._cancelled_end()
        else:
            await self._register_with_gateway()
        return await self._explain_missing_entrypoint(await self._watch().wait_until_end())

    async def _prepare_and_start(self) -> bool:
        """Execute all stages before the watch."""
        await asyncio.to_thread(self._prepare_folder)
        if self._is_at_stage(RunStage.ADMIT):
            await self._admit()
        if self._is_at_stage(RunStage.SANDBOX):
            await self._create_sandbox()
        await self._register_with_gateway()
        daemon = await self._daemon_client()
        plan = await self._make_launch_plan()
        if self._is_at_stage(RunStage.INPUTS):
            await stage_operations.upload_run_inputs(self._dependencies, self.run, daemon, plan.files)
            await self._enter_stage(RunStage.START)
        await stage_operations.start_entrypoint(self._dependencies, self.run, daemon, plan)
        await self._enter_stage(RunStage.WATCH)
        return True

    async def _admit(self) -> None:
        progress_filter = BuildProgressFilter()
        append_tasks: set[asyncio.Task[Any]] = set()

        def on_progress(progress: BuildProgress) -> None:
            self._image_build_started = self._image_build_started or time.time()
            if progress_filter.should_report(progress, time.monotonic()):
                data = {
                    "stage": RunStage.ADMIT,
                    "image": self._image_name(),
                    "step": progress.step,
                    "fraction": progress.fraction,
                    "step_number": progress.step_number,
                    "step_count": progress.step_count,
                }
                append_tasks.add(asyncio.ensure_future(self._append_event(EventType.RUN_STAGE, data)))

        try:
            admitted = await stage_operations.admit_run(self._dependencies, self.run, on_progress)
        finally:
            await asyncio.gather(*append_tasks, return_exceptions=True)
        self._image = admitted.image
        facts = {"model": admitted.model, "scripted": admitted.scripted}
        replaced = {} if admitted.replaced_model is None else {"instead_of": admitted.replaced_model}
        events = [(EventType.RUN_STARTED, {"attempt": self.run.attempt, **facts, **replaced})]
        # A run that waited for capacity has published this already.
        await self._enter_stage(RunStage.SANDBOX, events, fields=facts, quiet="waiting" in self.run.progress)

    async def _create_sandbox(self) -> None:
        # Wait for the sandbox even if the run is cancelled: its id is needed to remove it.
        creation = asyncio.ensure_future(
            stage_operations.create_run_sandbox(self._dependencies, self.run, self._image_name())
        )
        try:
            sandbox = await asyncio.shield(creation)
        except asyncio.CancelledError:
            if self.cancel.requested:
                await asyncio.wait([creation])
            creation.cancel()
            await asyncio.gather(creation, return_exceptions=True)
            raise
        except (QuotaExceeded, HostFull) as error:
            raise NoCapacity(error.message) from error
        events = [(EventType.RUN_SANDBOX, {"sandbox_id": sandbox.id, "image": sandbox.image})]
        await self._enter_stage(
            RunStage.INPUTS, events, fields={"sandbox_id": sandbox.id}, waiting=None, waiting_since=None
        )

    async def _register_with_gateway(self) -> None:
        """Register the run with the model gateway, which counts and answers its requests."""
        run, gateway = self.run, self._dependencies.gateway
        if run.scripted and run.task.llm.script is not None:
            gateway.routes.run_scripts.add(run.id, run.task.llm.script, run.tenant)
        if run.attempt == 1 and STAGE_ORDER[run.stage] < STAGE_ORDER[RunStage.START]:
            gateway.run_traffic.start_counting(run.id, run.tenant)  # No requests yet.
        else:
            await gateway.run_traffic.resume_counting(run.id, run.tenant, run.sandbox_id)

    def _watch(self) -> EntrypointWatch:
        task = self.run.task
        return EntrypointWatch(
            self.run,
            fleet=self._dependencies.fleet,
            usage_source=self._dependencies.gateway.run_traffic,
            logs=self._folder.attempt_log_directory(self.run.attempt),
            store_progress=self._store_watch_progress,
            cancel=self.cancel,
            reader=make_output_reader(stage_operations.find_agent_preset(self._dependencies, task))
            if task.agent
            else None,
            verify=self._all_checks_pass,
            settings=EntrypointWatchSettings(grace=self._dependencies.config.runs.grace),
            masker=self._dependencies.secret_masker(task),
        )

    async def _explain_missing_entrypoint(self, end: EntrypointOutcome) -> EntrypointOutcome:
        """Tell a missing entrypoint from a failed one."""
        began = self.run.progress.get("stage_began", 0.0)
        if (
            end.ended_by is not EndedBy.EXIT
            or end.exit_code not in (CANNOT_EXECUTE, NOT_FOUND)
            or end.turns
            or time.time() - began > START_FAILURE_SECONDS
        ):
            return end
        output = end.evidence.get("last_output", {})
        error = str(output.get("stderr") or output.get("stdout") or "").strip()
        with suppress(PaddockError):
            error = str((await (await self._daemon_client()).status(ENTRYPOINT_COMMAND_ID)).get("error") or error)
        last = single_line_text(error.splitlines()[-1], 500) if error else f"exit code {end.exit_code}"
        reason = f"the entrypoint could not be started: {last}"
        code, params = RunReasonCode.ENTRYPOINT_MISSING, {"detail": last}
        update = {"state": RunState.FAILED, "ended_by": EndedBy.SETUP, "reason": reason, "code": code}
        return end.model_copy(update={**update, "params": params})

    async def _all_checks_pass(self) -> bool:
        daemon = await self._daemon_client()
        masker = self._dependencies.secret_masker(self.run.task)
        for check in self.run.task.verify:
            if not (await run_check(daemon, check, self.run.task.env, masker)).passed:
                return False
        return True

    async def _collect_and_check(self, end: EntrypointOutcome) -> CollectedResults:
        """Collect deliverables and run checks while the sandbox answers."""
        results = CollectedResults.model_validate(self.run.progress.get("harvest", {}))
        if self._is_at_stage(RunStage.COLLECT):
            found = await self._unless_cancelled(self._collect_results(), end)
            results = found or unreachable_sandbox_results(self.run.task, "the run was cancelled")
            # A cancelled run is not checked.
            checking = self.run.task.verify and self.run.sandbox_id is not None and not self.cancel.requested
            stage = RunStage.VERIFY if checking else RunStage.RELEASE
            await self._enter_stage(stage, deliverable_events(results), harvest=results.model_dump(mode="json"))
        if self._is_at_stage(RunStage.VERIFY):
            checks, broken = await self._unless_cancelled(self._run_checks(), end) or ((), None)
            results = results.model_copy(update={"checks": tuple(checks), "broken": results.broken or broken})
            events = [(EventType.RUN_CHECKED, each.model_dump(mode="json")) for each in checks]
            await self._enter_stage(RunStage.RELEASE, events, harvest=results.model_dump(mode="json"))
        return results

    async def _collect_results(self) -> CollectedResults:
        task = self.run.task
        try:
            if self.run.model is not None or self._dependencies.gateway.run_traffic.traffic_of(self.run.id).requests:
                await write_run_conversation(self._dependencies.gateway.archive, self.run.tenant, self._folder)
        except (PaddockError, OSError) as error:
            log.warning("could not store conversation of run", run=self.run.id, error=str(error))
        if self.run.sandbox_id is None:
            return CollectedResults()  # Never started: there is nothing to report as missing.
        if not task.deliverables:
            return CollectedResults()
        try:
            return await collect_results(await self._daemon_client(), task, self._folder)
        except (Conflict, SandboxNotFound) as error:
            return unreachable_sandbox_results(task, "the sandbox has ended").model_copy(
                update={"broken": error.message}
            )
        except Exception as error:
            log.exception("could not collect deliverables", run=self.run.id)
            return unreachable_sandbox_results(task, f"the server could not take it: {error}")

    async def _run_checks(self) -> tuple[Sequence[TaskCheckResult], str | None]:
        try:
            return await run_checks(
                await self._daemon_client(), self.run.task, self._dependencies.secret_masker(self.run.task)
            )
        except (Conflict, SandboxNotFound) as error:
            return skipped_check_results(self.run.task, error.message), error.message

    async def _finish_or_retry(self, end: EntrypointOutcome, results: CollectedResults, *, last: bool = False) -> Run:
        try:
            await stage_operations.remove_run_sandbox(self._dependencies, self.run)
        except (PaddockError, OSError) as error:
            log.error("could not remove sandbox of run; it will expire", run=self.run.id, error=str(error))
        await self._write_connections()
        await self._write_mcp_calls()
        usage_source = self._dependencies.gateway.run_traffic
        result = build_run_result(self.run, end, results, self._cancelled_after_end(end)).model_copy(
            update={"stages": self._executed_stages(), "traffic": usage_source.traffic_of(self.run.id)}
        )
        retries = self.run.task.retries
        if result.state in retries.on and self.run.attempt <= retries.times and not (last or self.cancel.requested):
            return await self._queue_retry(result)
        return await self._finish_run(result)

    async def _write_connections(self) -> None:
        """Write the network connections of this attempt to the run's folder."""
        if self.run.sandbox_id is None:
            return
        try:
            await write_attempt_connections(
                self._dependencies.connections, self._folder, self.run.attempt, self.run.sandbox_id
            )
        except (PaddockError, OSError, ValueError) as error:
            log.warning("could not store network connections of run", run=self.run.id, error=str(error))

    async def _write_mcp_calls(self) -> None:
        """Write the run's calls of MCP servers to its folder."""
        if self._dependencies.mcp is None or not self.run.task.mcp:
            return
        try:
            await write_run_mcp_calls(self._dependencies.mcp, self.run.tenant, self._folder)
        except (PaddockError, OSError) as error:
            log.warning("could not store MCP calls of run", run=self.run.id, error=str(error))

    async def _finish_run(self, result: RunResult) -> Run:
        now = datetime.now(UTC)
        data = {"state": result.state, "ended_by": result.ended_by, "reason": result.reason}
        try:
            await asyncio.to_thread(self._folder.write_result, result)
            uploaded = await self._dependencies.deliverable_uploader.upload(self._folder)
            if uploaded is not None and uploaded.problem is not None:
                evidence = {**result.evidence, "artifacts": uploaded.problem}
                result = result.model_copy(update={"evidence": evidence})
                await asyncio.to_thread(self._folder.write_result, result)
            await self._folder.write_lines(self._folder.events, self._event_lines(now, data))
        except OSError as error:
            log.error("could not complete run folder", run=self.run.id, error=str(error))
        return await self._write_run(
            [(EventType.RUN_ENDED, data)],
            at=now,
            state=result.state,
            result=result,
            progress={},
            owner=None,
            owned_until=None,
            ended_at=now,
        )

    async def _event_lines(self, now: datetime, last: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Yield the run's events and the final one, which is recorded after the file is complete."""
        stream, number = f"run/{self.run.id}", 0
        while events := await self._dependencies.events.read(stream, number, EVENT_PAGE_SIZE):
            for event in events:
                number = event.number
                yield event.model_dump_json(include={"number", "type", "at", "data"}).encode()
            if len(events) < EVENT_PAGE_SIZE:
                break
        ended = {"number": number + 1, "type": EventType.RUN_ENDED, "at": now.isoformat(), "data": dict(last)}
        yield json.dumps(ended, ensure_ascii=False).encode(errors="replace")

    async def _queue_retry(self, result: RunResult) -> Run:
        retries = self.run.task.retries
        wait = retries.backoff * 2 ** (self.run.attempt - 1)
        attempts = [*self.run.progress.get("attempts", ()), result.model_dump(mode="json", exclude_none=True)]
        return await self._write_run(
            [
                (
                    EventType.RUN_RETRYING,
                    {
                        "state": result.state,
                        "reason": result.reason,
                        "code": result.code,
                        "params": dict(result.params),
                        "wait": wait,
                    },
                )
            ],
            attempt=self.run.attempt + 1,
            sandbox_id=None,
            **self._queued_fields(wait, {"attempts": attempts}),
        )

    async def _queue_until_capacity(self, error: NoCapacity) -> Run:
        """Queue the run again with the reason of the wait."""
        since = self.run.progress.get("waiting_since") or time.time()
        progress = {name: value for name, value in self.run.progress.items() if name in ("attempts", "stages")}
        progress |= {"waiting": error.message, "waiting_since": since}
        if isinstance(error.__cause__, HostFull) and time.time() - since > CAPACITY_WAIT_LIMIT:
            end = EntrypointOutcome(
                state=RunState.FAILED, ended_by=EndedBy.SETUP, reason=error.message, code=HostFull.code
            )
            return await self._finish_or_retry(end, CollectedResults())
        return await self._write_run([], **self._queued_fields(CAPACITY_RETRY_SECONDS, progress))

    def _queued_fields(self, wait: float, progress: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "state": RunState.QUEUED,
            "stage": RunStage.ADMIT,
            "owner": None,
            "owned_until": None,
            "not_before": datetime.now(UTC) + timedelta(seconds=wait),
            "progress": progress,
        }

    async def _end_from_error(self, error: Exception) -> EntrypointOutcome:
        """Return the end of a run after a failed stage."""
        if isinstance(error, Conflict) and not await self._is_still_owner():
            raise error
        evidence: dict[str, Any] = {"stage": self.run.stage}
        if isinstance(error, SandboxError | SandboxNotFound | Conflict) and self._sandbox_was_requested():
            with suppress(PaddockError, OSError):
                evidence |= await stage_operations.ended_sandbox_evidence(self._dependencies, self.run)
            reason = f"the sandbox ended in the stage {self.run.stage}: {error}"
            code, params = RunReasonCode.SANDBOX_ENDED, {"detail": str(error)}
            return EntrypointOutcome(
                state=RunState.LOST,
                ended_by=EndedBy.SANDBOX_DIED,
                reason=reason,
                code=code,
                params=params,
                evidence=evidence,
            )
        failed, values = PaddockError.code, {}
        if isinstance(error, PaddockError):
            reason, failed, values = error.message, error.code, dict(error.params)
        elif isinstance(error, OSError):
            failed, values = RunReasonCode.HOST_ERROR, {"detail": error.strerror or str(error)}
            reason = f"the server could not do it: {error.strerror or error}"
        else:
            log.exception("unexpected error in run stage", run=self.run.id, stage=self.run.stage)
            reason = f"Paddock itself failed in the stage {self.run.stage}: {error!r}; the server's log has more"
        return EntrypointOutcome(
            state=RunState.FAILED,
            ended_by=EndedBy.SETUP,
            reason=reason,
            code=failed,
            params=values,
            evidence=evidence,
        )

    async def _is_still_owner(self) -> bool:
        return (await self._store.get(self.run.id)).owner == self._owner

    def _cancelled_end(self) -> EntrypointOutcome:
        return EntrypointOutcome(**dict(cancelled_verdict(self.cancel.reason)))

    def _cancelled_after_end(self, end: EntrypointOutcome) -> str | None:
        """Return the reason of a cancellation that came after the work had ended in another way."""
        return self.cancel.reason if self.cancel.requested and end.ended_by is not EndedBy.CANCEL else None

    async def _unless_cancelled(self, work: Coroutine[Any, Any, T], end: EntrypointOutcome | None = None) -> T | None:
        """Return the result of the work, or None if the run is cancelled first. Work of a cancelled run
        continues unless the cancellation is hard."""
        wanted = self.cancel.hard.wait if end is not None and end.ended_by is EndedBy.CANCEL else self.cancel.wait
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(wanted())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return await working
            working.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await working
            return None
        finally:
            for each in (working, stopping):
                each.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    def _is_at_stage(self, stage: RunStage) -> bool:
        return self.run.stage is stage

    def _sandbox_was_requested(self) -> bool:
        return self.run.sandbox_id is not None or self.run.stage is RunStage.SANDBOX

    def _image_name(self) -> str:
        if self._image is None:
            self._image = stage_operations.choose_image_name(
                self._dependencies, self.run.task, stage_operations.find_agent_preset(self._dependencies, self.run.task)
            )
        return self._image

    async def _make_launch_plan(self) -> LaunchPlan:
        preset = stage_operations.find_agent_preset(self._dependencies, self.run.task)
        home = await stage_operations.sandbox_home_directory(self._dependencies, self.run.task, self._image_name())
        return stage_operations.create_launch_plan(self._dependencies, self.run.task, preset, self.run.model, home)

    async def _daemon_client(self) -> DaemonClient:
        assert self.run.sandbox_id is not None
        return await self._dependencies.fleet.running_client(self.run.tenant, self.run.sandbox_id)

    def _prepare_folder(self) -> None:
        self._folder.create()
        if self.run.attempt > 1 and STAGE_ORDER[self.run.stage] < STAGE_ORDER[RunStage.START]:
            self._folder.clear_deliverables()
        if not self._folder.task.exists():
            self._folder.write_task(self._dependencies.masked_task(self.run.task))

    def _stage_times(self) -> dict[str, float]:
        """Return seconds per stage, including the current one; `image` is the image build, the end of `admit`."""
        times = dict(self.run.progress.get("stages", {}))
        began = self.run.progress.get("stage_began") or self.run.changed_at.timestamp()
        stage = str(self.run.stage)
        now = time.time()
        if self._is_at_stage(RunStage.ADMIT) and self._image_build_started is not None:
            build_started = max(began, self._image_build_started)
            times[IMAGE_BUILD] = round(times.get(IMAGE_BUILD, 0.0) + max(0.0, now - build_started), 4)
            now = build_started
        times[stage] = round(times.get(stage, 0.0) + max(0.0, now - began), 4)
        return times

    def _executed_stages(self) -> dict[str, float]:
        """Return seconds of the executed stages: without a sandbox, nothing is collected, checked or removed."""
        times = self._stage_times()
        if self.run.sandbox_id is None:
            for stage in (RunStage.COLLECT, RunStage.VERIFY, RunStage.RELEASE):
                times.pop(stage, None)
        return times

    async def _enter_stage(
        self,
        stage: RunStage,
        events: Sequence[EventContent] = (),
        *,
        fields: Mapping[str, Any] | None = None,
        quiet: bool = False,
        **notes: Any,
    ) -> None:
        """Store the start of a stage with the results of the previous one."""
        kept = {**self.run.progress, "stages": self._stage_times(), "stage_began": time.time(), **notes}
        progress = {name: value for name, value in kept.items() if value is not None}
        # Without a sandbox, there is nothing to collect or release.
        empty = stage in (RunStage.COLLECT, RunStage.RELEASE) and self.run.sandbox_id is None
        published_events = [] if quiet else [*events, *([] if empty else [(EventType.RUN_STAGE, {"stage": stage})])]
        await self._write_run(published_events, stage=stage, progress=progress, **fields or {})

    async def _store_watch_progress(self, watched: Mapping[str, Any]) -> None:
        progress = {**self.run.progress, "watch": dict(watched)}
        self.run = await self._store.update(self.run.id, self._owner, progress=progress)

    async def _write_run(self, events: Sequence[EventContent], *, at: datetime | None = None, **fields: Any) -> Run:
        """Update the run's row and append events in one transaction. Retries while the disk is full."""
        fields.setdefault("changed_at", at or datetime.now(UTC))
        changing = self._store.update_work(self.run.id, self._owner, **fields)
        new_events = [NewEvent(f"run/{self.run.id}", kind, data, self.run.tenant, at) for kind, data in events]
        while True:
            try:
                self.run = await self._dependencies.events.write_with_events(changing, lambda _: new_events)
                return self.run
            except Unavailable as error:
                log.error("could not write run progress; will retry", run=self.run.id, error=str(error))
                await asyncio.sleep(WRITE_RETRY_SECONDS)

    async def _append_event(self, kind: EventType, data: Mapping[str, Any]) -> None:
        await self._dependencies.events.append(f"run/{self.run.id}", kind, data, tenant=self.run.tenant)

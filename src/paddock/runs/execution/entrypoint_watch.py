"""Watch a run's entrypoint from its start to its end.

    watch = EntrypointWatch(run, fleet=fleet, traffics=traffics, logs=folder.logs, store_progress=store, cancel=cancel,
                            reader=reader, verify=verify, settings=WatchSettings(grace=config.runs.grace))
    end = await watch.wait_until_end()

The entrypoint runs as command `task` (`ENTRYPOINT_COMMAND_ID`) in the sandbox `run.sandbox_id`.

- `reader` parses agent events from the output; use a new one for each watch. None: each line is an output event.
- `logs` is the directory of `agent.out` and `agent.err`.
- `store_progress(mapping)` replaces `run.progress["watch"]`. A later watch of the same attempt
  continues from that progress without lost or duplicate events. A new attempt starts without progress,
  with empty `logs`, after a RUN_STARTED event in the run's stream.
- `cancel.request(reason, hard=…)` may be called at any time, also before `wait_until_end`.
- `verify()` returns whether all checks pass; needed only for `end.verified`.

When `wait_until_end` returns, no process of the entrypoint runs and all output is in the logs and events.
Failures of the sandbox become part of the result; a cancelled watch leaves everything for the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog

from paddock.errors import InvalidInput, NotFound, PaddockError, SandboxNotFound
from paddock.fleet.fleet import Fleet
from paddock.model.runs import EndedBy, ModelUsage, Run, RunReasonCode, RunState
from paddock.model.sandbox import Sandbox
from paddock.runs.execution.end_conditions import (
    EntrypointExit,
    EntrypointOutcome,
    RunCancellation,
    RunEndVerdict,
    budget_verdict,
    cancelled_verdict,
    exit_verdict,
    silence_seconds,
    single_line_text,
    unreached_verdict,
)
from paddock.runs.execution.entrypoint_stop import stop_entrypoint
from paddock.runs.execution.sandbox_health import SandboxHealthMonitor, SandboxHealthTimeouts, find_full_disk_event
from paddock.runs.output.agent_event_publisher import AgentEventPublisher, AgentOutputReader
from paddock.runs.output.output_follower import OutputFollower
from paddock.runs.output.output_logs import OutputLogs
from paddock.runs.output.output_pipeline import OutputPipeline, OutputPosition, stored_position
from paddock.runs.output.secret_masking import SecretMasker
from paddock.sandbox.daemon.client import CommandEnded

ENTRYPOINT_COMMAND_ID = "task"
"""Command id of the entrypoint in its sandbox."""
EVIDENCE_BYTES = 2000
"""Bytes of each stream's tail kept as evidence."""
OUTPUT_DRAIN_SECONDS, HURRIED_DRAIN_SECONDS = 5.0, 0.5
"""Seconds to wait for remaining output after the end; shorter for a hard cancellation."""
log = structlog.get_logger()

StoreProgress = Callable[[Mapping[str, Any]], Awaitable[None]]
Verify = Callable[[], Awaitable[bool]]


class ModelUsageSource(Protocol):
    """Model usage of runs."""

    def traffic_of(self, run_id: str) -> ModelUsage: ...

    async def wait_for_change(self, run_id: str, after: ModelUsage | None = None) -> ModelUsage:
        """Return the usage once it differs from `after`."""
        ...


@dataclass(frozen=True)
class EntrypointWatchSettings:
    """Limits and intervals of a watch. Tests use shorter ones."""

    grace: float = 10.0
    """Seconds between the stop signal and the kill."""
    log_bytes: int = 256 * 2**20
    """Maximum log size of a run; each stream gets half, for its beginning and its end."""
    health_timeouts: SandboxHealthTimeouts = SandboxHealthTimeouts()
    check_interval: float = 0.25
    """Interval of checks of time limits; the end file is checked half as often."""
    store_interval: float = 5.0
    usage_interval: float = 1.0
    verify_interval: float = 5.0
    """Interval of repeated checks when the reader does not report turns."""


class EntrypointWatch:
    """Watcher of one run's entrypoint."""

    def __init__(
        self,
        run: Run,
        *,
        fleet: Fleet,
        usage_source: ModelUsageSource,
        logs: Path,
        store_progress: StoreProgress,
        cancel: RunCancellation,
        reader: AgentOutputReader | None = None,
        verify: Verify | None = None,
        settings: EntrypointWatchSettings | None = None,
        masker: SecretMasker | None = None,
    ) -> None:
        self._run = run
        self._masker = masker
        self._end = run.task.end
        self._fleet = fleet
        self._usage_source = usage_source
        self._directory = logs
        self._store_progress = store_progress
        self._cancel = cancel
        self._reader = reader
        self._verify = verify
        self._settings = settings or EntrypointWatchSettings()
        self._verdict: asyncio.Future[RunEndVerdict] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[CommandEnded] = asyncio.get_running_loop().create_future()

    async def wait_until_end(self) -> EntrypointOutcome:
        """Wait until the entrypoint ends or an end condition stops it."""
        run = self._run
        try:
            self._sandbox = await self._fleet.get(run.tenant, run.sandbox_id or "")
        except SandboxNotFound:
            verdict = _lost(
                EndedBy.SANDBOX_DIED, "the sandbox ended: somebody deleted it", RunReasonCode.SANDBOX_DELETED
            )
            return EntrypointOutcome(
                state=verdict.state, ended_by=verdict.ended_by, reason=verdict.reason, code=verdict.code
            )
        self._health = SandboxHealthMonitor(self._fleet, self._sandbox, self._settings.health_timeouts)
        position = stored_position(run)
        self._publisher = AgentEventPublisher(self._fleet.events, run)
        if position is None:
            position = OutputPosition(attempt=run.attempt, began=time.time())
            await self._publisher.resume(0, 0, 0)
            await self._store_position(position)
        else:
            self._publisher.usage = dict(position.usage)
            await self._publisher.resume(position.number, position.told, position.told_to)
            self._stored = position
        self._started_at = position.began
        if position.verdict is not None:
            self._decide(position.verdict)
        logs = OutputLogs(self._directory, self._settings.log_bytes)
        self._logs = logs
        self._pipeline = OutputPipeline(run, position, logs, self._publisher, self._reader, self._decide, self._masker)
        try:
            return await self._watch(self._sandbox)
        finally:
            logs.close()
            await self._pipeline.close()

    async def _watch(self, sandbox: Sandbox) -> EntrypointOutcome:
        following = asyncio.create_task(self._follow_output(sandbox))
        publishing = asyncio.create_task(self._publisher.run())
        others = [asyncio.create_task(work) for work in self._watch_loops()]
        tasks = [following, publishing, *others]
        try:
            await _wait_for_verdict(self._verdict, *tasks)
            verdict = self._verdict.result()
            await _cancel_tasks(*others)
            await self._flush_and_store_position()
            await stop_entrypoint(
                verdict,
                fleet=self._fleet,
                sandbox=sandbox,
                command=ENTRYPOINT_COMMAND_ID,
                ended=self._ended,
                cancel=self._cancel,
                grace=self._settings.grace,
            )
            if verdict.state is not RunState.LOST:
                await asyncio.wait(
                    [self._ended], timeout=HURRIED_DRAIN_SECONDS if self._cancel.hard.is_set() else OUTPUT_DRAIN_SECONDS
                )
            await _cancel_tasks(following, publishing)
            return await self._finish(verdict)
        finally:
            await _cancel_tasks(*tasks)

    def _watch_loops(self) -> list[Coroutine[Any, Any, None]]:
        works = [
            self._watch_sandbox_health(),
            self._watch_time_limits(),
            self._store_position_periodically(),
            self._watch_model_usage(),
            self._watch_cancellation(),
        ]
        if self._end.file is not None:
            works.append(self._watch_for_file(self._end.file))
        if self._end.verified and self._verify is not None:
            works.append(self._repeat_checks(self._verify))
        return works

    def _decide(self, verdict: RunEndVerdict) -> None:
        if not self._verdict.done():
            self._verdict.set_result(verdict)

    async def _follow_output(self, sandbox: Sandbox) -> None:
        keep = self._settings.log_bytes // 4
        beginning = self._pipeline.cursor
        follower = OutputFollower(
            self._fleet,
            sandbox,
            ENTRYPOINT_COMMAND_ID,
            beginning,
            keep=keep,
            enough=2 * keep,
            check_health=self._health.check_now,
        )
        try:
            async with aclosing(follower.pieces()) as pieces:
                async for each in pieces:
                    if isinstance(each, CommandEnded):
                        await self._pipeline.finish()
                        self._ended.set_result(each)
                        await self._judge_exit(each)
                        break
                    await self._pipeline.process_piece(each)
                    if each.missed:
                        await self._flush_and_store_position()
        except NotFound as error:
            reason = f"the sandbox knows nothing of the entrypoint: {error}"
            self._decide(_lost(EndedBy.SETUP, reason, RunReasonCode.ENTRYPOINT_LOST))
        await asyncio.Future()  # Other loops decide now; a finished task would count as a failure.

    async def _judge_exit(self, ended: CommandEnded) -> None:
        traffic = self._usage_source.traffic_of(self._run.id)
        status = await self._health.status()
        found = EntrypointExit(
            code=ended.exit_code,
            exit_message=ended.reason,
            error=self._pipeline.error,
            uses_model=self._uses_model,
            produced_events=self._publisher.has_agent_events or self._reader is None,
            out_of_memory_kills=status.out_of_memory_kills,  # Since the sandbox's start; it serves one attempt.
            full_disk=await find_full_disk_event(self._fleet.events, self._sandbox),
            last_line=self._last_line(),
        )
        verdict = exit_verdict(found, self._run.task.llm, traffic)
        if verdict.state is RunState.SUCCEEDED and not self._end.exit:
            self._pipeline.turned.set()
            if self._end.file is not None or self._end.verified:
                return  # Background processes may still produce the end condition.
            reason = f"{found.subject} finished (exit code 0) before any end condition was met"
            code = RunReasonCode.EXITED_EARLY
            verdict = RunEndVerdict(state=RunState.FAILED, ended_by=EndedBy.EXIT, reason=reason, code=code)
        self._decide(verdict)

    async def _watch_sandbox_health(self) -> None:
        self._decide(await self._health.wait_for_failure())

    async def _watch_cancellation(self) -> None:
        await self._cancel.wait()
        self._decide(cancelled_verdict(self._cancel.reason))

    async def _watch_time_limits(self) -> None:
        while True:
            now = time.time()
            if now - self._started_at >= self._end.timeout:
                limit = f"{self._end.timeout:g}"
                reason = f"it took longer than {limit} seconds"
                self._decide(_timed_out(EndedBy.TIMEOUT, reason, RunReasonCode.TIMED_OUT, limit))
            silence = self._end.silence
            quiet = silence_seconds(now, self._pipeline.last_output, self._usage_source.traffic_of(self._run.id))
            if silence is not None and quiet >= silence:
                reason = f"it wrote nothing and asked no model for {silence:g} seconds"
                self._decide(_timed_out(EndedBy.SILENCE, reason, RunReasonCode.SILENT, f"{silence:g}"))
            if self._uses_model and (unreached := unreached_verdict(self._usage_source.traffic_of(self._run.id), now)):
                self._decide(unreached)
            await self._pipeline.search_unfinished_lines()
            await asyncio.sleep(self._settings.check_interval)

    async def _watch_for_file(self, path: str) -> None:
        while True:
            try:
                daemon = await self._fleet.running_client(self._run.tenant, self._sandbox.id)
                async with asyncio.timeout(self._settings.health_timeouts.answer_timeout):
                    async with daemon.request("GET", "/files/info", params={"path": path}):
                        reason = f"{path} is there"
                        self._decide(_succeeded(EndedBy.FILE, reason, RunReasonCode.FILE_FOUND, path=path))
            except (NotFound, InvalidInput):
                pass
            except (PaddockError, TimeoutError, RuntimeError):
                self._health.check_now()
            await asyncio.sleep(2 * self._settings.check_interval)

    async def _repeat_checks(self, verify: Verify) -> None:
        while True:
            if self._reader is not None:
                await self._pipeline.turned.wait()
                self._pipeline.turned.clear()
            else:
                await asyncio.sleep(self._settings.verify_interval)
            try:
                if await verify():
                    reason = "all checks pass"
                    self._decide(_succeeded(EndedBy.VERIFIED, reason, RunReasonCode.CHECKS_PASSED))
            except (PaddockError, RuntimeError):
                self._health.check_now()

    async def _watch_model_usage(self) -> None:
        """Publish model usage and end the run when it exceeds its budget."""
        while True:
            traffic = self._usage_source.traffic_of(self._run.id)
            if traffic.requests or traffic.under_way:
                await self._publisher.publish_usage(self._usage(traffic))
            await self._publish_model_failure(traffic)
            if spent := budget_verdict(self._run.task.llm, traffic):
                self._decide(spent)
            await self._usage_source.wait_for_change(self._run.id, traffic)
            await asyncio.sleep(self._settings.usage_interval)

    async def _publish_model_failure(self, traffic: ModelUsage) -> None:
        message = single_line_text(traffic.last_error or "no answer") if traffic.failing else None
        await self._publisher.publish_model_failure(message, retried=traffic.unreached > 0)

    @property
    def _uses_model(self) -> bool:
        return self._run.task.agent is not None and self._run.model is not None

    def _usage(self, traffic: ModelUsage) -> dict[str, Any]:
        figures = traffic.model_dump(include={"requests", "input_tokens", "output_tokens", "cost"})
        return {"turns": self._pipeline.turns, **figures}

    async def _store_position_periodically(self) -> None:
        position = self._pipeline.position
        while True:
            await asyncio.sleep(self._settings.store_interval)
            if self._publisher.has_published(position.nth, position.cursor):
                await self._store_published_position(position)
                position = self._pipeline.position

    async def _flush_and_store_position(self) -> None:
        """Publish all pending events and store the position."""
        position = self._pipeline.position
        if await self._publisher.flush():
            await self._store_published_position(position)

    async def _store_published_position(self, position: OutputPosition) -> None:
        verdict = self._verdict.result() if self._verdict.done() else None
        update = {
            "told": self._publisher.published,
            "told_to": self._publisher.published_to,
            "number": self._publisher.number,
            "usage": self._publisher.usage,
            "verdict": verdict,
        }
        position = position.model_copy(update=update)
        if position != self._stored:
            await self._store_position(position)

    async def _store_position(self, position: OutputPosition) -> None:
        self._stored = position
        try:
            await self._store_progress(position.model_dump(mode="json"))
        except PaddockError as error:
            log.warning("could not store output position of run; will retry", run=self._run.id, error=str(error))

    async def _finish(self, verdict: RunEndVerdict) -> EntrypointOutcome:
        if not self._ended.done():
            await self._pipeline.finish()
        await self._publisher.flush()
        traffic = self._usage_source.traffic_of(self._run.id)
        await self._publish_model_failure(traffic)
        if traffic.requests or self._pipeline.turns:
            await self._publisher.publish_usage(self._usage(traffic))
        evidence = await self._evidence(verdict)
        await asyncio.to_thread(self._logs.finish)
        await self._flush_and_store_position()
        return EntrypointOutcome(
            state=verdict.state,
            ended_by=verdict.ended_by,
            reason=verdict.reason,
            code=verdict.code,
            params=verdict.params,
            exit_code=self._ended.result().exit_code if self._ended.done() else None,
            evidence=evidence,
            turns=max(self._pipeline.turns, self._stored.turns),
        )

    async def _evidence(self, verdict: RunEndVerdict) -> dict[str, Any]:
        tails = self._logs.tails(EVIDENCE_BYTES + 1).items()
        last = {stream: text for stream, data in tails if (text := self._whole_lines(data))}
        kills = (await self._health.status()).out_of_memory_kills
        disk = await find_full_disk_event(self._fleet.events, self._sandbox)
        found = {
            "last_output": last,
            "out_of_memory_kills": kills,
            "disk": dict(disk) if disk else None,
            "missed_bytes": self._pipeline.position.missed,
            "slow_patterns": self._pipeline.slow_searches,
        }
        return {**verdict.evidence, **{name: value for name, value in found.items() if value}}

    def _whole_lines(self, tail: bytes) -> str:
        """Return the last lines from their beginnings; the end of one very long line only if it is not JSON."""
        if len(tail) > EVIDENCE_BYTES:
            _, _, whole = tail.partition(b"\n")
            tail = whole if whole.strip() or self._reader is not None else tail[1:]
        return tail.decode(errors="replace")

    def _last_line(self) -> str:
        tails = self._logs.tails(EVIDENCE_BYTES)
        lines = (tails["stderr"].strip() or tails["stdout"].strip()).splitlines()
        return lines[-1].decode(errors="replace") if lines else ""


async def _wait_for_verdict(verdict: asyncio.Future[RunEndVerdict], *tasks: asyncio.Task[None]) -> None:
    """Wait for a verdict. Raises the error of a failed task."""
    left: set[asyncio.Future[Any]] = {verdict, *tasks}
    while not verdict.done():
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for each in done - {verdict}:
            each.result()


async def _cancel_tasks(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _succeeded(ended_by: EndedBy, reason: str, code: RunReasonCode, **params: str) -> RunEndVerdict:
    return RunEndVerdict(state=RunState.SUCCEEDED, ended_by=ended_by, reason=reason, code=code, params=params)


def _lost(ended_by: EndedBy, reason: str, code: RunReasonCode) -> RunEndVerdict:
    return RunEndVerdict(state=RunState.LOST, ended_by=ended_by, reason=reason, code=code)


def _timed_out(ended_by: EndedBy, reason: str, code: RunReasonCode, seconds: str) -> RunEndVerdict:
    params = {"seconds": seconds}
    return RunEndVerdict(state=RunState.TIMED_OUT, ended_by=ended_by, reason=reason, code=code, params=params)

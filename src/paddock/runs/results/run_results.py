"""Results of a run: deliverables, checks, and the final state derived from them and the end of the work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from paddock.model.events import EventType
from paddock.model.runs import (
    DeliveredFile,
    EndedBy,
    MissingDeliverable,
    Run,
    RunReasonCode,
    RunResult,
    RunState,
    TaskCheckResult,
)
from paddock.model.sandbox import FrozenModel
from paddock.model.task import Task
from paddock.runs.execution.end_conditions import (
    MAX_REASON_LENGTH,
    EntrypointOutcome,
    RunEndVerdict,
    cancelled_verdict,
    shorten_reason_middle,
)
from paddock.runs.results.deliverable_collector import collect_deliverables
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient

MAX_DELIVERABLE_EVENTS = 1000
"""Maximum deliverables with an event; the result lists all."""
MAX_LISTED_NAMES = 10


class CollectedResults(FrozenModel):
    """Results collected from the sandbox."""

    delivered: tuple[DeliveredFile, ...] = ()
    missing: tuple[MissingDeliverable, ...] = ()
    checks: tuple[TaskCheckResult, ...] = ()
    notes: tuple[str, ...] = ()
    broken: str | None = None
    """Why the collection is incomplete."""


def unreachable_sandbox_results(task: Task, reason: str) -> CollectedResults:
    """Return results for a sandbox that cannot be reached."""
    missing = [MissingDeliverable(path=each.path, required=each.required, reason=reason) for each in task.deliverables]
    return CollectedResults(missing=tuple(missing))


async def collect_results(daemon: DaemonClient, task: Task, folder: RunFolder) -> CollectedResults:
    """Copy deliverables into the run folder."""
    found = await collect_deliverables(daemon, task.deliverables, folder)
    return CollectedResults(delivered=found.delivered, missing=found.missing, notes=found.notes, broken=found.broken)


def deliverable_events(results: CollectedResults) -> list[tuple[EventType, Mapping[str, Any]]]:
    """Return events for deliverables."""
    delivered = [
        (EventType.RUN_DELIVERED, each.model_dump(mode="json")) for each in results.delivered[:MAX_DELIVERABLE_EVENTS]
    ]
    return [
        *delivered,
        *((EventType.RUN_MISSING, each.model_dump(mode="json")) for each in results.missing[:MAX_DELIVERABLE_EVENTS]),
    ]


def build_run_result(run: Run, end: EntrypointOutcome, results: CollectedResults, cancelling: str | None) -> RunResult:
    """Build the final result. Missing deliverables and failed checks can only worsen the state."""
    verdict = _final_state(end, results, cancelling)
    now = datetime.now(UTC)
    weight = sum(each.weight for each in results.checks)
    passed = sum(each.weight for each in results.checks if each.passed)
    evidence = dict(end.evidence)
    if len(end.reason) > MAX_REASON_LENGTH:
        evidence["whole_reason"] = end.reason
    if results.notes:
        evidence["deliverables"] = list(results.notes)
    if results.broken:
        evidence["collection"] = results.broken
    return RunResult(
        state=verdict.state,
        ended_by=verdict.ended_by,
        reason=shorten_reason_middle(verdict.reason),
        code=verdict.code,
        params={name: shorten_reason_middle(value) for name, value in verdict.params.items()},
        exit_code=end.exit_code,
        evidence=evidence,
        attempt=run.attempt,
        turns=end.turns,
        seconds=round((now - (run.started_at or now)).total_seconds(), 3),
        deliverables=results.delivered,
        missing=results.missing,
        checks=results.checks,
        score=passed / weight if results.checks else None,
    )


def _final_state(end: EntrypointOutcome, results: CollectedResults, cancelling: str | None) -> RunEndVerdict:
    missing = [f"{each.path} ({each.reason})" for each in results.missing if each.required]
    failed = [each.name for each in results.checks if each.required and not each.passed]
    if cancelling is not None and end.ended_by is not EndedBy.CANCEL:
        return cancelled_verdict(cancelling)
    if end.state is not RunState.SUCCEEDED or not (missing or failed):
        return RunEndVerdict(
            state=end.state, ended_by=end.ended_by, reason=end.reason, code=end.code, params=end.params
        )
    if results.broken:
        reason = f"the sandbox ended before all was taken out of it: {results.broken}"
        code, params = RunReasonCode.SANDBOX_ENDED, {"detail": results.broken}
        return RunEndVerdict(
            state=RunState.LOST, ended_by=EndedBy.SANDBOX_DIED, reason=reason, code=code, params=params
        )
    if missing:
        names = "; ".join(missing[:MAX_LISTED_NAMES])
        reason, code = f"deliverables are missing: {names}", RunReasonCode.DELIVERABLES_MISSING
    else:
        names = ", ".join(failed[:MAX_LISTED_NAMES])
        reason, code = f"checks did not pass: {names}", RunReasonCode.CHECKS_FAILED
    return RunEndVerdict(
        state=RunState.FAILED, ended_by=end.ended_by, reason=reason, code=code, params={"names": names}
    )

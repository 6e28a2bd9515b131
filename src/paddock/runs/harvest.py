"""What a run brings home: deliverables, checks, and the result that follows from them and from how the work ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.errors import PaddockError
from paddock.model.events import EventType
from paddock.model.runs import Checked, Delivered, EndedBy, Missing, ReasonCode, Result, Run, RunState
from paddock.model.sandbox import Frozen
from paddock.model.task import Task
from paddock.runs.collecting import collect
from paddock.runs.ends import LONGEST_REASON, Over, Verdict, bounded, cancelled
from paddock.runs.folder import RunFolder
from paddock.runs.masking import Masker
from paddock.runs.stages import run_check
from paddock.sandbox.client import Inside

MOST_TOLD = 1000
"""Deliverables that have an event each; the result has all."""
NAMED = 10


class Harvest(Frozen):
    """What came out of the box."""

    delivered: tuple[Delivered, ...] = ()
    missing: tuple[Missing, ...] = ()
    checks: tuple[Checked, ...] = ()
    notes: tuple[str, ...] = ()
    broken: str | None = None
    """Why the box could not be asked to the end."""


def nothing(task: Task, reason: str) -> Harvest:
    """What there is of a box that cannot be asked."""
    missing = [Missing(path=each.path, required=each.required, reason=reason) for each in task.deliverables]
    return Harvest(missing=tuple(missing))


async def bring_home(inside: Inside, task: Task, folder: RunFolder) -> Harvest:
    """Copy deliverables into the run's folder."""
    found = await collect(inside, task.deliverables, folder)
    return Harvest(delivered=found.delivered, missing=found.missing, notes=found.notes, broken=found.broken)


async def check_all(inside: Inside, task: Task, masker: Masker) -> tuple[Sequence[Checked], str | None]:
    """Run the task's checks in their order, and say why the box could not be asked to the end, if so."""
    checks: list[Checked] = []
    broken = None
    for check in task.verify:
        try:
            if broken is None:
                checks.append(await run_check(inside, check, task.env, masker))
        except PaddockError as error:
            broken = error.message
    return [*checks, *unchecked(task, broken or "", len(checks))], broken


def unchecked(task: Task, reason: str, after: int = 0) -> Sequence[Checked]:
    """Checks that could not be run."""
    return [
        Checked(
            name=check.title,
            passed=False,
            required=check.required,
            weight=check.weight,
            exit_code=None,
            seconds=0.0,
            output=f"could not be run: {reason}",
        )
        for check in task.verify[after:]
    ]


def told_of(harvest: Harvest) -> list[tuple[EventType, Mapping[str, Any]]]:
    """What is told of deliverables."""
    told = [(EventType.RUN_DELIVERED, each.model_dump(mode="json")) for each in harvest.delivered[:MOST_TOLD]]
    return [*told, *((EventType.RUN_MISSING, each.model_dump(mode="json")) for each in harvest.missing[:MOST_TOLD])]


def conclude(run: Run, over: Over, harvest: Harvest, cancelling: str | None) -> Result:
    """What came of the run. What was brought home can only make it worse than how the work ended."""
    verdict = _verdict(over, harvest, cancelling)
    now = datetime.now(UTC)
    weight = sum(each.weight for each in harvest.checks)
    passed = sum(each.weight for each in harvest.checks if each.passed)
    evidence = dict(over.evidence)
    if len(over.reason) > LONGEST_REASON:
        evidence["whole_reason"] = over.reason
    if harvest.notes:
        evidence["deliverables"] = list(harvest.notes)
    if harvest.broken:
        evidence["sandbox"] = harvest.broken
    return Result(
        state=verdict.state,
        ended_by=verdict.ended_by,
        reason=bounded(verdict.reason),
        code=verdict.code,
        params={name: bounded(value) for name, value in verdict.params.items()},
        exit_code=over.exit_code,
        evidence=evidence,
        attempt=run.attempt,
        turns=over.turns,
        seconds=round((now - (run.started_at or now)).total_seconds(), 3),
        deliverables=harvest.delivered,
        missing=harvest.missing,
        checks=harvest.checks,
        score=passed / weight if harvest.checks else None,
    )


def _verdict(over: Over, harvest: Harvest, cancelling: str | None) -> Verdict:
    lacking = [f"{each.path} ({each.reason})" for each in harvest.missing if each.required]
    failed = [each.name for each in harvest.checks if each.required and not each.passed]
    if cancelling is not None and over.ended_by is not EndedBy.CANCEL:
        return cancelled(cancelling)
    if over.state is not RunState.SUCCEEDED or not (lacking or failed):
        return Verdict(state=over.state, ended_by=over.ended_by, reason=over.reason, code=over.code, params=over.params)
    if harvest.broken:
        reason = f"the sandbox ended before all was taken out of it: {harvest.broken}"
        code, params = ReasonCode.SANDBOX_ENDED, {"detail": harvest.broken}
        return Verdict(state=RunState.LOST, ended_by=EndedBy.BOX_DIED, reason=reason, code=code, params=params)
    if lacking:
        names = "; ".join(lacking[:NAMED])
        reason, code = f"deliverables are missing: {names}", ReasonCode.DELIVERABLES_MISSING
    else:
        names = ", ".join(failed[:NAMED])
        reason, code = f"checks did not pass: {names}", ReasonCode.CHECKS_FAILED
    return Verdict(state=RunState.FAILED, ended_by=over.ended_by, reason=reason, code=code, params={"names": names})

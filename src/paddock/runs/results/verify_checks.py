"""Run the checks of a task (`verify`) in its sandbox."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from paddock.errors import PaddockError
from paddock.model.runs import TaskCheckResult
from paddock.model.task import WORKSPACE, Task, TaskCheck
from paddock.runs.execution.stage_operations import SANDBOX_TIMEOUT_SECONDS, with_sandbox_timeout
from paddock.runs.output.secret_masking import SecretMasker
from paddock.sandbox.daemon.client import DaemonClient, SandboxCommand

MAX_CHECK_OUTPUT_BYTES = 64 * 1024
MAX_SHOWN_CHARACTERS = 2000
"""Characters of a check's output in its result, from the end."""


async def run_checks(
    daemon: DaemonClient, task: Task, masker: SecretMasker
) -> tuple[Sequence[TaskCheckResult], str | None]:
    """Run the task's checks in order. Return the results and the sandbox error that stopped them."""
    checks: list[TaskCheckResult] = []
    broken = None
    for check in task.verify:
        try:
            if broken is None:
                checks.append(await run_check(daemon, check, task.env, masker))
        except PaddockError as error:
            broken = error.message
    return [*checks, *skipped_check_results(task, broken or "", len(checks))], broken


def skipped_check_results(task: Task, reason: str, after: int = 0) -> Sequence[TaskCheckResult]:
    """Return results for checks that could not run."""
    return [
        TaskCheckResult(
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


async def run_check(
    daemon: DaemonClient, check: TaskCheck, env: Mapping[str, str], masker: SecretMasker
) -> TaskCheckResult:
    """Run one check. Raises `SandboxError` if the sandbox does not answer."""
    began = time.monotonic()
    command = SandboxCommand(check.run, cwd=WORKSPACE, env=dict(env), timeout=check.timeout)
    done = await with_sandbox_timeout(
        check.timeout + SANDBOX_TIMEOUT_SECONDS, daemon.run(command, limit=MAX_CHECK_OUTPUT_BYTES)
    )
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.reason and done.exit_code == 124:
        text += f"\n{done.reason}"
    return TaskCheckResult(
        name=check.title,
        passed=done.exit_code == 0,
        required=check.required,
        weight=check.weight,
        exit_code=done.exit_code,
        seconds=round(time.monotonic() - began, 3),
        output=masker.mask_text(text)[-MAX_SHOWN_CHARACTERS:],
    )

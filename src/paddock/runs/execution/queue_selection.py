"""Select the queued runs that may start: by priority, then by waiting time, within the limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.store.run_store import QueuedRun


@dataclass(frozen=True)
class RunCapacity:
    """Limits of concurrent runs."""

    free: int
    """Runs that this server can still start."""
    tenant_parallel: int | None = None

    def select_runs(self, waiting: Sequence[QueuedRun], active: Sequence[QueuedRun]) -> Sequence[str]:
        """Return ids of the runs that may start, given the waiting runs in order and the active runs.

        A run over its own limit is skipped and does not block the runs behind it.
        """
        tenants = Counter(run.tenant for run in active)
        tasks = Counter((run.tenant, run.task) for run in active)
        chosen: list[str] = []
        for run in waiting:
            if len(chosen) >= self.free:
                break
            task = (run.tenant, run.task)
            if self.tenant_parallel is not None and tenants[run.tenant] >= self.tenant_parallel:
                continue
            if run.concurrency is not None and tasks[task] >= run.concurrency:
                continue
            tenants[run.tenant] += 1
            tasks[task] += 1
            chosen.append(run.id)
        return chosen

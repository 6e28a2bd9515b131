"""Who may begin: those of higher priority first, then those that have waited longer, as far as there is room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.store.runs import Waiting


@dataclass(frozen=True)
class Room:
    """How many runs may be under way at a time."""

    free: int
    """How many more this server takes."""
    tenant_parallel: int | None = None

    def choose(self, waiting: Sequence[Waiting], active: Sequence[Waiting]) -> Sequence[str]:
        """Ids of those that may begin now, given all that wait, first in line first, and all that are under way.

        A run for which there is no room stands aside, so that it does not hold up those behind it.
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

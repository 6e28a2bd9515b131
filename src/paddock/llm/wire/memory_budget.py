"""Bounds on the memory of large request bodies, per tenant or listener and in total."""

from __future__ import annotations

LISTENER_MEMORY = 128 * 2**20
TOTAL_MEMORY = 1024 * 2**20
"""Bytes of large request bodies held at once, by one tenant or listener and by all."""
UNCOUNTED_BYTES = 64 * 1024
"""Bytes of each request that are free: connections are bounded too, and most requests are smaller."""


class MemoryBudget:
    """Bytes that may still be reserved; a reservation counts against the parent budget as well."""

    __slots__ = ("_parent", "free")

    def __init__(self, size: int, parent: MemoryBudget | None = None) -> None:
        self.free = size
        self._parent = parent

    def claim(self, size: int) -> bool:
        """Reserve bytes if enough are free, and return whether they were."""
        if self.free < size or (self._parent is not None and not self._parent.claim(size)):
            return False
        self.free -= size
        return True

    def release(self, size: int) -> None:
        """Return reserved bytes."""
        self.free += size
        if self._parent is not None:
            self._parent.release(size)


class MemoryReservation:
    """The memory that one request has reserved of a budget."""

    __slots__ = ("_budget", "_claimed", "size")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._claimed = 0
        self.size = 0

    def grow(self, size: int) -> bool:
        """Reserve more bytes, and return whether enough were free."""
        self.size += size
        wanted = self.size - UNCOUNTED_BYTES - self._claimed
        if wanted <= 0:
            return True
        if not self._budget.claim(wanted):
            return False
        self._claimed += wanted
        return True

    def move_to(self, budget: MemoryBudget) -> bool:
        """Reserve the bytes of another budget instead, and return whether enough were free there."""
        self._budget.release(self._claimed)
        self._budget = budget
        if budget.claim(self._claimed):
            return True
        self._claimed = 0
        return False

    def release(self) -> None:
        """Return all reserved bytes. Idempotent."""
        if self._claimed:
            self._budget.release(self._claimed)
        self._claimed = self.size = 0


class TenantMemoryBudgets:
    """A budget for the request bodies of each tenant, so that none can use all of the memory."""

    def __init__(self, total: MemoryBudget) -> None:
        self._total = total
        self._budgets: dict[str, MemoryBudget] = {}

    def budget(self, tenant: str) -> MemoryBudget:
        """Return the budget of a tenant."""
        return self._budgets.setdefault(tenant, MemoryBudget(LISTENER_MEMORY, self._total))

    def reservation(self, tenant: str) -> MemoryReservation:
        """Return a reservation, of nothing yet."""
        return MemoryReservation(self.budget(tenant))

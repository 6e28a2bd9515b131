"""Limit the direct connections to sandboxes, and choose which one is closed for a new one.

Every program of the machine can connect to a direct endpoint. Those that do not show the daemon's token must never keep
out those that do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_CONNECTIONS = 256
"""Direct connections per sandbox: half of its daemon's limit, so that the server can always connect."""
MAX_WITHOUT_TOKEN = 128
"""Connections to a daemon that have not sent its token."""
MAX_TO_OTHER_PORTS = 192
"""Connections to other ports of a sandbox."""
MAX_PER_TENANT = 2048
IDLE_SECONDS = 30.0
"""Seconds without data after which a connection may be closed for a new one."""
YOUNG_SECONDS = 1.0
"""Seconds in which a client sends its first request; until then it is not known whether it has a token."""


@dataclass(eq=False)
class DirectSandboxConnection:
    """One forwarded connection to a sandbox."""

    task: asyncio.Task[None]
    tenant: str
    sandbox: str
    to_daemon: bool
    has_token: bool
    """Whether the client has sent the daemon's token; always true for other ports."""
    answered: bool = False
    active: float = field(default_factory=time.monotonic)
    """When data was last relayed."""


class DirectConnectionLimiter:
    """All direct connections."""

    def __init__(self) -> None:
        self._connections: dict[DirectSandboxConnection, None] = {}

    def add(self, new: DirectSandboxConnection, *, few_descriptors: bool) -> bool:
        """Add a connection, if necessary in place of another one. Return whether it was added."""
        sandbox = [each for each in self._connections if each.sandbox == new.sandbox]
        tenant = [each for each in self._connections if each.tenant == new.tenant]
        alike = [each for each in sandbox if each.to_daemon == new.to_daemon and not (new.to_daemon and each.has_token)]
        limits = (
            (alike, MAX_WITHOUT_TOKEN if new.to_daemon else MAX_TO_OTHER_PORTS),
            (sandbox, MAX_CONNECTIONS),
            (tenant, 0 if few_descriptors else MAX_PER_TENANT),
        )
        for crowd, limit in limits:
            left = [each for each in crowd if each in self._connections]
            if len(left) >= limit and not self._drop_one(left):
                return False
        self._connections[new] = None
        return True

    def remove(self, connection: DirectSandboxConnection) -> None:
        self._connections.pop(connection, None)

    def tasks_of(self, sandbox_id: str | None) -> list[asyncio.Task[None]]:
        """Return the tasks of one sandbox's connections, or of all."""
        return [each.task for each in self._connections if sandbox_id in (None, each.sandbox)]

    def _drop_one(self, crowd: Iterable[DirectSandboxConnection]) -> bool:
        """Close the most dispensable connection, and return whether there was one."""
        now = time.monotonic()
        ranked = [(rank, each.active, each) for each in crowd if (rank := _dispensability(each, now)) is not None]
        if not ranked:
            return False
        _, _, dropped = min(ranked, key=lambda entry: entry[:2])
        self.remove(dropped)
        dropped.task.cancel()
        return True


def _dispensability(connection: DirectSandboxConnection, now: float) -> int | None:
    """Rank connections, the first to be closed lowest; `None` for connections in use."""
    silent = now - connection.active
    if not connection.has_token:
        if connection.answered:
            return 1
        return 0 if silent >= YOUNG_SECONDS else 2
    if not connection.answered:
        return 3
    return 4 if silent >= IDLE_SECONDS else None

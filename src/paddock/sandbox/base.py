"""The contract every sandbox backend keeps.

A backend starts boxes and finds them again; it keeps nothing between calls that it could not rebuild. What it needs
to find a box after a restart is the *record* that `start` returns: JSON data the caller stores. `conformance.py` is
the suite that any backend, ours or a plugin's, runs to prove it behaves as written here.

Two kinds of failure are told apart everywhere. A command that fails inside a box is not an error of the backend: its
exit code is a result. A `BoxError` means the box itself is broken, and what it was asked to do may not have happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from paddock.model.sandbox import Address, BoxSpec, BoxStatus, Frozen, Limits

TOKEN_HEADER = "X-EXECD-ACCESS-TOKEN"  # noqa: S105
"""Header that holds the token of a sandbox's daemon."""
Record: TypeAlias = Mapping[str, Any]


class Feature(StrEnum):
    """What a backend may or may not be able to do on this machine."""

    PAUSE = "pause"
    SNAPSHOT = "snapshot"
    SURVIVE = "survive"
    """Boxes outlive the process that started them."""
    MOUNTS = "mounts"
    HOLES = "holes"
    MEMORY_LIMIT = "memory_limit"
    """Memory is limited for the box as a whole, not only per process."""
    CPU_LIMIT = "cpu_limit"


class Finding(Frozen):
    """One thing `paddock doctor` looked at."""

    check: str
    ok: bool
    detail: str
    fix: str | None = None
    required: bool = True
    """Whether boxes cannot run at all without it."""


class Backend(ABC):
    """Starts, reaches, freezes, copies and ends boxes of one sort.

    Every method is a coroutine, may be called concurrently for different boxes, and cleans up when cancelled.
    Calls for one box are serialised by the caller.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def features(self) -> frozenset[Feature]:
        """What works on this machine, found out once at construction."""

    @abstractmethod
    async def start(self, spec: BoxSpec) -> Record:
        """Start a box and return its record once `inside` answers.

        Nothing is left behind when it raises or is cancelled.
        Raises `BoxStartError` with the end of the box's own log, `Unsupported` for what this backend cannot give.
        """

    @abstractmethod
    def address(self, record: Record) -> Address:
        """How to reach `inside` of this box. Does no I/O; the box may be gone."""

    @abstractmethod
    def holes(self, record: Record) -> Path:
        """The directory in which the host serves what this box may reach, each service as the socket `NAME.sock`.

        The box sees it read-only, and nobody else but the host's own user gets into it. Raises `Unsupported` without
        `Feature.HOLES`.
        """

    @abstractmethod
    async def status(self, record: Record) -> BoxStatus:
        """Look at the box from outside, without asking `inside`. Never raises for a box that has ended."""

    @abstractmethod
    async def wait(self, record: Record) -> BoxStatus:
        """Return when the box has ended. Costs nothing while waiting."""

    @abstractmethod
    async def limit(self, record: Record, limits: Limits) -> None:
        """Change the limits of a running box; `None` fields stay as they are."""

    @abstractmethod
    async def pause(self, record: Record) -> None:
        """Stop every process of the box where it stands. Idempotent. Raises `BoxGone`, `Unsupported`."""

    @abstractmethod
    async def resume(self, record: Record) -> None:
        """Let a paused box go on. Idempotent. Raises `BoxGone`, `Unsupported`."""

    @abstractmethod
    async def snapshot(self, record: Record, snapshot_id: str) -> None:
        """Keep what the box has written, as it is now, under `snapshot_id`.

        The box is frozen meanwhile and goes on afterwards. All or nothing: on failure no snapshot exists.
        Processes are not part of it. Raises `BoxGone`, `Unsupported`.
        """

    @abstractmethod
    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Forget a snapshot. Idempotent."""

    @abstractmethod
    async def snapshots(self) -> Sequence[str]:
        """Ids of all snapshots that exist."""

    @abstractmethod
    async def disk_used(self, record: Record) -> int:
        """Bytes the box has written to its own layer and workspace."""

    @abstractmethod
    async def end_commands(self, record: Record) -> None:
        """Kill every process of the box but `inside`, which then still serves its files."""

    async def refuse_writes(self, record: Record, reason: str | None) -> None:
        """Keep commands that start from now on from writing to files, and tell them `reason`; `None` lets them again.

        They still run and can delete. A backend that cannot do this does nothing.
        """
        return

    @abstractmethod
    async def remove(self, box_id: str) -> None:
        """End the box, by force, and remove all that is left of it: processes, mounts, cgroups, directories.

        Needs no record, so that what a crash left behind can be removed too. Idempotent.
        """

    @abstractmethod
    async def leftovers(self) -> Sequence[str]:
        """Ids of all boxes of which anything exists on the machine, running or not."""

    @abstractmethod
    async def examine(self) -> Sequence[Finding]:
        """Check the machine for what this backend needs."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of what this object holds. Boxes go on."""

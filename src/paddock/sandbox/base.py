"""The contract of sandbox backends.

A backend starts sandboxes and finds them again; it keeps no state between calls that it cannot rebuild. To find a
sandbox after a restart it needs the *record* that `start` returns: JSON data that the caller stores.
`paddock.testing.backends` is the conformance suite for any backend, ours or a plugin's.

Two kinds of failure are distinct. A command that fails inside a sandbox is not an error: its exit code is a result. A
`SandboxError` means that the sandbox itself is broken, and the requested operation may not have happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from paddock.model.sandbox import DaemonAddress, FrozenModel, SandboxLimits, SandboxSpec, SandboxStatus

TOKEN_HEADER = "X-EXECD-ACCESS-TOKEN"  # noqa: S105
"""Header with the token of a sandbox's daemon."""
Record: TypeAlias = Mapping[str, Any]


class BackendFeature(StrEnum):
    """Optional ability of a backend on this machine."""

    PAUSE = "pause"
    SNAPSHOT = "snapshot"
    SURVIVE = "survive"
    """Sandboxes outlive the process that started them."""
    MOUNTS = "mounts"
    UPLINK = "holes"
    MEMORY_LIMIT = "memory_limit"
    """The memory limit covers the whole sandbox, not only single processes."""
    CPU_LIMIT = "cpu_limit"
    ROOT_MODE = "root_mode"
    """Programs can run as root of a user namespace."""


class HostCheck(FrozenModel):
    """Result of one check of `paddock doctor`."""

    check: str
    ok: bool
    detail: str
    fix: str | None = None
    required: bool = True
    """Whether sandboxes cannot run without it."""


@dataclass(frozen=True, slots=True)
class OpenDeletedFiles:
    """Files without a name that are kept because a process has them open."""

    size: int = 0
    """Allocated bytes."""
    may_hide_more: bool = False
    """Whether there may be others that cannot be found, such as of descriptors on their way between processes."""


class SandboxBackend(ABC):
    """Starts, connects, pauses, snapshots and removes sandboxes of one type.

    Every method is a coroutine, may be called concurrently for different sandboxes, and cleans up when cancelled.
    Calls for one sandbox are serialised by the caller.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def features(self) -> frozenset[BackendFeature]:
        """Features that work on this machine, detected once at construction."""

    @abstractmethod
    async def start(self, spec: SandboxSpec) -> Record:
        """Start a sandbox and return its record once `inside` answers.

        Leaves nothing behind when it raises or is cancelled.
        Raises `SandboxStartError` with the end of the sandbox's log, `Unsupported` for missing features.
        """

    @abstractmethod
    def daemon_address(self, record: Record) -> DaemonAddress:
        """Return the address of the sandbox's daemon. Does no I/O; the sandbox may be gone."""

    @abstractmethod
    def uplink_directory(self, record: Record) -> Path:
        """Return the directory of the sandbox's uplink services, one socket `NAME.sock` per service.

        The sandbox sees it read-only; only the host's own user can enter it otherwise. Raises `Unsupported` without
        `BackendFeature.UPLINK`.
        """

    @abstractmethod
    async def status(self, record: Record) -> SandboxStatus:
        """Return the state of the sandbox without asking its daemon. Never raises for an ended sandbox."""

    @abstractmethod
    async def wait(self, record: Record) -> SandboxStatus:
        """Wait until the sandbox ends, without polling."""

    @abstractmethod
    async def limit(self, record: Record, limits: SandboxLimits) -> None:
        """Change the limits of a running sandbox; `None` fields are unchanged."""

    @abstractmethod
    async def pause(self, record: Record) -> None:
        """Freeze every process of the sandbox. Idempotent. Raises `SandboxGone`, `Unsupported`."""

    @abstractmethod
    async def resume(self, record: Record) -> None:
        """Resume a paused sandbox. Idempotent. Raises `SandboxGone`, `Unsupported`."""

    @abstractmethod
    async def snapshot(self, record: Record, snapshot_id: str) -> None:
        """Save the files written by the sandbox as snapshot `snapshot_id`.

        The sandbox is frozen meanwhile and resumes afterwards. On failure no snapshot exists.
        Processes are not part of a snapshot. Raises `SandboxGone`, `Unsupported`.
        """

    @abstractmethod
    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot. Idempotent."""

    @abstractmethod
    async def snapshots(self) -> Sequence[str]:
        """Return ids of all snapshots."""

    @abstractmethod
    async def disk_used(self, record: Record) -> int:
        """Return the bytes in the sandbox's writable layer and workspace, and of the `open_deleted_files`."""

    async def open_deleted_files(self, record: Record) -> OpenDeletedFiles:
        """Find files without a name that the sandbox's processes have open."""
        return OpenDeletedFiles()

    @abstractmethod
    async def end_commands(self, record: Record) -> None:
        """Kill every process of the sandbox except the daemon, which still serves files."""

    async def refuse_writes(self, record: Record, reason: str | None) -> None:
        """Refuse file writes of new commands with `reason`; `None` allows them again.

        Commands still run and can delete files. A backend without this ability does nothing.
        """
        return

    @abstractmethod
    async def remove(self, sandbox_id: str) -> None:
        """Kill the sandbox and remove its processes, mounts, cgroups and directories.

        Needs no record, so that leftovers of a crash can be removed too. Idempotent.
        """

    @abstractmethod
    async def leftovers(self) -> Sequence[str]:
        """Return ids of all sandboxes with anything left on the machine, running or not."""

    @abstractmethod
    async def examine(self) -> Sequence[HostCheck]:
        """Check the machine for the backend's requirements."""

    @abstractmethod
    async def close(self) -> None:
        """Release resources of this object. Sandboxes keep running."""

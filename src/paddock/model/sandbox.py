"""What a sandbox is made from and what it can say about itself."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from paddock.model.owners import Owned

SESSION = "session"
"""Key of a sandbox's metadata: the session that it is for."""
RUN = "paddock.run"
"""Key of a sandbox's metadata: the run that it is for."""
KIND_EXTENSION = "paddock.kind"
"""The extension that says of which kind a sandbox is."""
KIND_VARIABLE = "PADDOCK_KIND"
"""The variable that tells a box the same."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SandboxState(StrEnum):
    """The life cycle, in OpenSandbox's words."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    STOPPING = "Stopping"
    TERMINATED = "Terminated"
    FAILED = "Failed"

    @property
    def alive(self) -> bool:
        return self not in (SandboxState.TERMINATED, SandboxState.FAILED)


class SnapshotState(StrEnum):
    CREATING = "Creating"
    READY = "Ready"
    DELETING = "Deleting"
    FAILED = "Failed"


class Limits(Frozen):
    """What a box may use. `None` means the configured default."""

    cpu: float | None = Field(default=None, gt=0)
    """CPUs, fractions allowed."""
    memory: int | None = Field(default=None, ge=16 * 2**20)
    """Bytes, counting what the box keeps in tmpfs and page cache."""
    pids: int | None = Field(default=None, ge=4)
    """Processes and threads."""
    disk: int | None = Field(default=None, ge=2**20)
    """Bytes written to the box's own layer and workspace."""
    files: int | None = Field(default=None, ge=64)
    """Open files per process."""


class Mount(Frozen):
    """A host directory or file seen inside the box."""

    source: Path
    target: str
    read_only: bool = False
    sub_path: str | None = None
    """A way below `source`, walked without leaving it whatever links lie on it."""


class VolumeUse(StrEnum):
    """What a sandbox may do with a named volume."""

    READ = "read"
    WRITE = "write"
    OWN = "own"
    """It was made for this sandbox, which may write to it and takes it along when it ends."""


class Hole(Frozen):
    """One host service the box may reach: `127.0.0.1:port` inside leads to the host's Unix socket `name`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")
    port: int = Field(ge=1, le=65535)


class User(Frozen):
    """Who the box's processes are, as seen inside."""

    name: str = "agent"
    uid: int = 1000
    gid: int = 1000
    home: str = "/home/agent"
    shell: str = "/bin/bash"


class Service(Frozen):
    """A program that runs in every box of an image, from the box's start on."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")
    command: str | tuple[str, ...] = Field(min_length=1)
    """Shell text, or words that no shell sees."""
    env: Mapping[str, str] = {}
    after: tuple[str, ...] = ()
    """Services that must be ready before it starts."""
    ready: str | None = None
    """A path that exists once it is ready; without one it is ready as soon as it runs."""
    late: bool = False
    """Whether it waits until the display speaks, whose start it would only slow down."""


class Image(Frozen):
    """A root file system ready to start boxes from."""

    name: str
    digest: str
    root: Path
    """The read-only lower layer."""
    binds: tuple[Mount, ...] = ()
    """Host directories that complete the root (only the `host` image has any)."""
    user: User = User()
    env: Mapping[str, str] = {}
    services: tuple[Service, ...] = ()
    nested_namespaces: bool = False
    """Whether programs in the box may make user namespaces of their own (browsers do)."""


class BoxSpec(Frozen):
    """Everything a backend needs to start one box."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    image: Image
    token: str
    """What `inside` will demand on every call."""
    hostname: str = "box"
    env: Mapping[str, str] = {}
    entrypoint: tuple[str, ...] | None = None
    limits: Limits = Limits()
    mounts: tuple[Mount, ...] = ()
    holes: tuple[Hole, ...] = ()
    snapshot: str | None = None
    """A snapshot id of this backend to start from."""


class BoxHealth(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class BoxStatus(Frozen):
    """What a backend can see of a box from outside."""

    health: BoxHealth
    exit_code: int | None = None
    reason: str | None = None
    """Machine-readable cause of death: `out_of_memory`, `killed`, `exited`."""
    message: str | None = None
    out_of_memory_kills: int = 0


class Address(Frozen):
    """How the host reaches `inside`: a Unix socket or a TCP address, and the token it demands."""

    token: str
    socket: Path | None = None
    host: str | None = None
    port: int | None = None


class Sandbox(Owned):
    """A sandbox as its owner sees it."""

    id: str
    tenant: str
    backend: str
    image: str
    state: SandboxState
    reason: str | None = None
    message: str | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}
    extensions: Mapping[str, str] = {}
    limits: Limits = Limits()
    volumes: Mapping[str, VolumeUse] = {}
    """Named volumes it has mounted."""
    snapshot: str | None = None
    pool: str | None = None
    network_default: str | None = None
    request_key: str | None = None
    token: str = Field(default="", repr=False)
    record: Mapping[str, Any] = Field(default={}, repr=False)
    """What the backend needs to find the box again after a restart."""

    @property
    def kind(self) -> str | None:
        """The sort of computer it was asked for as, if it was."""
        return self.extensions.get(KIND_EXTENSION)


class Snapshot(Owned):
    id: str
    tenant: str
    backend: str
    sandbox_id: str
    image: str
    name: str | None = None
    state: SnapshotState
    reason: str | None = None
    message: str | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime


class Pool(Frozen):
    """Boxes started ahead of need, all from one image with one set of limits."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    tenant: str
    image: str
    kind: str | None = None
    size: int = Field(ge=0, le=1000)
    max_total: int | None = Field(default=None, ge=0)
    """Upper bound of ready and allocated sandboxes together; None is no bound."""
    limits: Limits = Limits()
    created_at: AwareDatetime

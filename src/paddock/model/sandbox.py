"""Sandboxes, images, snapshots and pools as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from paddock.model.owners import Ownership

SESSION_KEY = "session"
"""Metadata key: id of the session that uses the sandbox."""
RUN_KEY = "paddock.run"
"""Metadata key: id of the run that uses the sandbox."""
KIND_EXTENSION = "paddock.kind"
"""Extension key: kind of the sandbox."""
USER_EXTENSION = "paddock.user"
"""Extension key: `root` if the sandbox's programs run as root of a user namespace."""
VAULT_EXTENSION = "paddock.vault"
"""Extension key: `enabled` if the sandbox has a credential vault."""
KIND_VARIABLE = "PADDOCK_KIND"
"""Environment variable with the kind, inside the sandbox."""


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SandboxState(StrEnum):
    """Lifecycle states, as OpenSandbox names them."""

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


class SandboxLimits(FrozenModel):
    """Resource limits. `None` means the configured default."""

    cpu: float | None = Field(default=None, gt=0)
    """CPUs, fractions allowed."""
    memory: int | None = Field(default=None, ge=16 * 2**20)
    """Bytes, counting what the sandbox keeps in tmpfs and page cache."""
    pids: int | None = Field(default=None, ge=4)
    """Processes and threads."""
    disk: int | None = Field(default=None, ge=2**20)
    """Bytes written to the sandbox's own layer and workspace."""
    files: int | None = Field(default=None, ge=64)
    """Open files per process."""


class SandboxMount(FrozenModel):
    """A host directory or file seen inside the sandbox."""

    source: Path
    target: str
    read_only: bool = False
    sub_path: str | None = None
    """Path below `source`; symbolic links cannot lead out of it."""


class VolumeAccess(StrEnum):
    """Access of a sandbox to a named volume."""

    READ = "read"
    WRITE = "write"
    OWN = "own"
    """The volume belongs to this sandbox and is deleted with it."""


class UplinkService(FrozenModel):
    """A server service the sandbox can reach: `127.0.0.1:port` inside leads to the Unix socket `name`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")
    port: int = Field(ge=1, le=65535)


class SandboxUser(FrozenModel):
    """User of the sandbox's processes, as seen inside."""

    name: str = "agent"
    uid: int = 1000
    gid: int = 1000
    home: str = "/home/agent"
    shell: str = "/bin/bash"


ROOT_USER = SandboxUser(name="root", uid=0, gid=0, home="/root")
"""User of the programs of a sandbox in root mode."""


class ImageService(FrozenModel):
    """A program started with every sandbox of an image."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")
    command: str | tuple[str, ...] = Field(min_length=1)
    """Shell text, or an argument list."""
    env: Mapping[str, str] = {}
    after: tuple[str, ...] = ()
    """Services that must be ready before it starts."""
    ready: str | None = None
    """Path that exists once the service is ready; without one, running means ready."""
    late: bool = False
    """Whether to start after the display is up, so as not to slow its start down."""


class Image(FrozenModel):
    """A root file system that sandboxes start from."""

    name: str
    digest: str
    root: Path
    """The read-only lower layer."""
    binds: tuple[SandboxMount, ...] = ()
    """Host directories mounted into the root; only the `host` image has any."""
    user: SandboxUser = SandboxUser()
    env: Mapping[str, str] = {}
    services: tuple[ImageService, ...] = ()
    nested_namespaces: bool = False
    """Whether programs in the sandbox may create user namespaces, as browsers do."""
    root_mode: bool = False
    """Whether programs run as root of a user namespace with a range of ids, and not as `user`."""

    @property
    def program_user(self) -> SandboxUser:
        return ROOT_USER if self.root_mode else self.user


class SandboxSpec(FrozenModel):
    """Input of a backend to start one sandbox."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    image: Image
    token: str
    """Access token of the daemon."""
    hostname: str = "box"
    env: Mapping[str, str] = {}
    entrypoint: tuple[str, ...] | None = None
    limits: SandboxLimits = SandboxLimits()
    mounts: tuple[SandboxMount, ...] = ()
    uplink_services: tuple[UplinkService, ...] = ()
    snapshot: str | None = None
    """Id of a snapshot of this backend to start from."""
    user: Literal["root"] | None = None
    """User of the programs: `root` of a user namespace with a range of ids; by default the image's user."""
    files: Mapping[str, bytes] = Field(default={}, repr=False)
    """Contents of files by path in the sandbox; read-only, except in root mode."""

    @property
    def root_mode(self) -> bool:
        return self.user == "root" or self.image.root_mode

    @property
    def program_user(self) -> SandboxUser:
        """User of the sandbox's programs."""
        return ROOT_USER if self.root_mode else self.image.user


class SandboxHealth(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class SandboxStatus(FrozenModel):
    """State of a sandbox as its backend sees it from outside."""

    health: SandboxHealth
    exit_code: int | None = None
    reason: str | None = None
    """Machine-readable cause of death: `out_of_memory`, `killed`, `exited`."""
    message: str | None = None
    out_of_memory_kills: int = 0


class DaemonAddress(FrozenModel):
    """Address of a sandbox's daemon: a Unix socket or TCP address, and the token."""

    token: str
    socket: Path | None = None
    host: str | None = None
    port: int | None = None


class Sandbox(Ownership):
    """Stored state of a sandbox."""

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
    limits: SandboxLimits = SandboxLimits()
    volumes: Mapping[str, VolumeAccess] = {}
    """Access per mounted named volume."""
    snapshot: str | None = None
    pool: str | None = None
    network: tuple[str, ...] = ()
    """Rules of its network policy in canonical form, presets not expanded; none allow nothing."""
    network_token: str | None = Field(default=None, repr=False)
    """Gives clients access to the network policy. Unlike `token`, it is unknown inside the sandbox."""
    request_key: str | None = None
    token: str = Field(default="", repr=False)
    record: Mapping[str, Any] = Field(default={}, repr=False)
    """Backend data to find the sandbox after a restart."""

    @property
    def kind(self) -> str | None:
        """Requested kind, if any."""
        return self.extensions.get(KIND_EXTENSION)

    @property
    def user(self) -> Literal["root"] | None:
        """Requested user of the programs; None for the image's."""
        return "root" if self.extensions.get(USER_EXTENSION) == "root" else None

    @property
    def credential_vault(self) -> bool:
        """True if requests of its programs may get credentials from a vault."""
        return self.extensions.get(VAULT_EXTENSION) == "enabled"


class SandboxSnapshot(Ownership):
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


class SandboxPool(FrozenModel):
    """Sandboxes started in advance from one image with one set of limits."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    tenant: str
    image: str
    kind: str | None = None
    size: int = Field(ge=0, le=1000)
    max_total: int | None = Field(default=None, ge=0)
    """Upper bound of ready and allocated sandboxes together; `None` sets no bound."""
    limits: SandboxLimits = SandboxLimits()
    user: Literal["root"] | None = None
    """User of the programs; `None` means the image's."""
    created_at: AwareDatetime

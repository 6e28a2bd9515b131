"""Every setting, its default and what it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from paddock.config.base import Section
from paddock.config.chat import ChatConfig
from paddock.config.kinds import KindConfig
from paddock.config.limits import LimitsConfig
from paddock.config.live import LiveConfig
from paddock.config.llm import LlmConfig
from paddock.config.mcp import McpConfig
from paddock.config.runs import RunsConfig
from paddock.config.units import Bytes, Cpus, PortRange, Ports, Seconds


class ServerConfig(Section):
    """Where Paddock listens."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but a loopback address needs an API key to exist."""
    port: int = Field(default=8420, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Names accepted in the `Host` header besides loopback names, which guards against DNS rebinding."""
    cors_origins: tuple[str, ...] = ()
    """Web origins that may call the API from a browser."""
    max_body: Bytes = Field(default=64 * 2**20, ge=1024)
    """Largest JSON body the API reads; most routes take 1 MiB at most. What passes through to a box is not limited."""
    shutdown_grace: Seconds = 3
    """How long open requests may go on after the server is told to stop."""


class SandboxesConfig(Section):
    """How sandboxes are made, and how long they live."""

    default_backend: str = "local"
    """Backend for sandboxes that name none."""
    default_image: str = "code"
    """Image for sandboxes that name none."""
    default_timeout: Seconds | None = Field(default=3600, gt=0)
    """Life of a sandbox that asks for none; `null` keeps it until it is deleted."""
    max_timeout: Seconds = Field(default=7 * 86400, gt=0)
    """Longest life that may be asked for."""
    idle_timeout: Seconds | None = Field(default=None, gt=0)
    """End a sandbox that nobody has used for this long; `null` never does. A call under way is use, a command that goes
    on by itself is not."""
    start_timeout: Seconds = Field(default=30, gt=0)
    """How long a box may take until it answers."""
    limits: LimitsConfig = LimitsConfig(cpu=2, memory=2 * 2**30, pids=512, disk=10 * 2**30, files=65536)
    """Limits of a sandbox that asks for none."""
    max_limits: LimitsConfig = LimitsConfig()
    """Most that may be asked for; `null` sets no bound."""
    allowed_host_paths: tuple[Path, ...] = ()
    """Host directories that sandboxes may mount. Empty allows none."""
    shared: Path | None = None
    """Directory every box sees read-only as `/shared`; `null` means `shared` in the data directory."""
    keep_ended: Seconds = 3600
    """How long an ended sandbox stays listed."""
    min_free_disk: Bytes = 2**30
    """No sandbox starts while the data directory's disk has less free space than this."""
    port_range: Ports = PortRange(20000, 29999)
    """Host ports that direct endpoints of sandboxes are taken from."""
    direct_endpoints: bool = True
    """Whether a client on this machine that asks for a port of a sandbox gets a loopback port, which every user of this
    machine can connect to without a key. `false` has all of them use the server's proxy, which demands one."""
    max_endpoints: int | None = Field(default=32, ge=0)
    """Direct endpoints of one sandbox, besides its daemon's; `null` sets no bound."""
    reconcile_every: Seconds = Field(default=15, gt=0)
    """How often what is recorded is compared with what exists."""
    max_move: Bytes = Field(default=4 * 2**30, ge=0)
    """Most that may be moved from one sandbox to another at a time."""

    @field_validator("limits", mode="after")
    @classmethod
    def _unset_limits_keep_their_defaults(cls, limits: LimitsConfig) -> LimitsConfig:
        default: LimitsConfig = cls.model_fields["limits"].default
        return default.model_copy(update={name: getattr(limits, name) for name in limits.model_fields_set})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.default_timeout is not None and self.default_timeout > self.max_timeout:
            raise ValueError("default_timeout is longer than max_timeout")
        for name in LimitsConfig.model_fields:
            limit, bound = getattr(self.limits, name), getattr(self.max_limits, name)
            if limit is not None and bound is not None and limit > bound:
                raise ValueError(f"limits.{name} is more than max_limits.{name}")
        return self


class Quota(Section):
    """What one tenant may have at a time."""

    sandboxes: int | None = Field(default=100, ge=0)
    """Sandboxes that have not ended."""
    snapshots: int | None = Field(default=100, ge=0)
    """Snapshots."""
    volumes: Bytes | None = Field(default=50 * 2**30, ge=0)
    """Size of all its named volumes together."""
    memory: Bytes | None = Field(default=None, ge=0)
    """Sum of the memory limits of its sandboxes."""
    cpu: Cpus | None = Field(default=None, ge=0)
    """Sum of the CPU limits of its sandboxes."""
    endpoints: int | None = Field(default=512, ge=0)
    """Direct endpoints of its sandboxes, besides those of their daemons."""


class QuotasConfig(Quota):
    """What each tenant may have at a time; `null` sets no bound."""

    tenants: Mapping[str, Quota] = {}
    """Other quotas for single tenants; what one leaves out is as above."""

    def of(self, tenant: str) -> Quota:
        """The quota that holds for one tenant."""
        own = self.tenants.get(tenant, Quota())
        return Quota(
            **{name: getattr(own if name in own.model_fields_set else self, name) for name in Quota.model_fields}
        )


class PoolConfig(Section):
    """Boxes started ahead of need."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """Name by which sandboxes ask for the pool."""
    image: str | None = None
    """Image its boxes start from; that of its kind if this is left out."""
    kind: str | None = None
    """Kind of its boxes."""
    size: int = Field(default=2, ge=0, le=1000)
    """Boxes kept ready."""
    limits: LimitsConfig = LimitsConfig()
    """Limits of its boxes; what is left out is as its kind has it, or `sandboxes.limits`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.image is None and self.kind is None:
            raise ValueError("a pool needs an image or a kind; give one")
        return self


class ImagesConfig(Section):
    """Where images come from."""

    recipes: tuple[Path, ...] = ()
    """Directories with recipes of your own, searched before the ones Paddock brings."""
    mirror: str | None = None
    """Debian mirror to build from; `null` uses the host's own sources where they have the suite."""
    aliases: Mapping[str, str] = {}
    """Other names for images, such as an OCI reference that a recipe of yours stands in for."""


class LocalConfig(Section):
    """The `local` backend."""

    uid_base: int = Field(default=1_200_000_000, ge=100_000, le=4_000_000_000)
    """First host user id given to boxes when Paddock runs as root."""
    uid_count: int = Field(default=65536, ge=1)
    """How many host user ids may be given to boxes."""
    cgroup_parent: Path | None = None
    """cgroup directory that boxes' cgroups are made in; `null` finds one."""
    disk_check_every: Seconds = Field(default=0.1, gt=0)
    """How often the host's free space is looked at. Sandboxes are measured when it has shrunk by as much as they may
    still write. A sandbox can be over its limit by what it writes in this time, and while it is measured."""
    unsafe_disable_seccomp: bool = False
    """Run boxes without the system call filter. Only for finding out why a program fails."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.uid_base + self.uid_count > 2**32 - 2:
            raise ValueError("uid_base plus uid_count is more than the largest user id")
        return self


class SharingConfig(Section):
    """Who sees what a key makes."""

    default: Literal["private", "tenant"] = "private"
    """Visibility of new sessions, runs and sandboxes: their owner's alone, or every key's of the tenant."""


class LogConfig(Section):
    """What the server says on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least serious messages shown."""
    format: Literal["auto", "json", "console"] = "auto"
    """`auto` is `console` on a terminal and `json` elsewhere."""


class Config(Section):
    """Everything Paddock can be told."""

    data: Path = Field(
        default_factory=lambda: Path("~/.paddock").expanduser(), json_schema_extra={"shown": "~/.paddock"}
    )
    """Directory for the database, boxes, snapshots, images and the local key."""
    server: ServerConfig = ServerConfig()
    sandboxes: SandboxesConfig = SandboxesConfig()
    quotas: QuotasConfig = QuotasConfig()
    pools: tuple[PoolConfig, ...] = ()
    """Pools that exist from the start."""
    kinds: Mapping[str, KindConfig] = {}
    """Other images and limits for the kinds there are, and kinds of your own, by name."""
    images: ImagesConfig = ImagesConfig()
    local: LocalConfig = LocalConfig()
    llm: LlmConfig = LlmConfig()
    runs: RunsConfig = RunsConfig()
    mcp: McpConfig = McpConfig()
    live: LiveConfig = LiveConfig()
    chat: ChatConfig = ChatConfig()
    sharing: SharingConfig = SharingConfig()
    log: LogConfig = LogConfig()

    @field_validator("pools")
    @classmethod
    def _names_are_unique(cls, pools: tuple[PoolConfig, ...]) -> tuple[PoolConfig, ...]:
        names = [pool.name for pool in pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"more than one pool is named {', '.join(twice)}")
        return pools

    @property
    def shared(self) -> Path:
        """The directory every box sees read-only as `/shared`."""
        return self.sandboxes.shared or self.data / "shared"

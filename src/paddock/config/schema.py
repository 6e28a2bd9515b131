"""The whole configuration schema: every setting with its default and description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from paddock.config.chat import ChatConfig
from paddock.config.live_view import LiveViewConfig
from paddock.config.llm import LlmConfig
from paddock.config.mcp import McpConfig
from paddock.config.network import NetworkConfig
from paddock.config.outgoing import OutgoingConfig
from paddock.config.runs import RunsConfig
from paddock.config.sandbox_kinds import SandboxKindConfig
from paddock.config.sandbox_limits import SandboxLimitsConfig
from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Cpus, PortRange, Ports, Seconds

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class ServerConfig(ConfigSection):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on. The server refuses to listen on a non-loopback address unless an API key exists."""
    port: int = Field(default=8420, ge=0, le=65535)
    """Port to listen on; 0 picks a free port."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted in the `Host` header in addition to loopback names. Protects against DNS rebinding."""
    public_url: str | None = None
    """Address under which browsers reach this server, such as `https://paddock.example.com`. Sign-ins at MCP servers
    come back to it. `null` takes the address of the request that begins the sign-in. Its host must be in
    `server.allowed_hosts` too."""
    cors_origins: tuple[str, ...] = ()
    """Origins allowed to call the API from a browser (CORS)."""
    preview_host: str | None = None
    """Wildcard name of previews, such as `*.preview.example.com`: each preview gets an origin of its own,
    `PORT-SANDBOX.preview.example.com`. `null` puts previews below `/preview/` of the server's own name. Use a domain
    that serves nothing else; its names must lead to this server."""
    max_body: Bytes = Field(default=64 * 2**20, ge=1024)
    """Maximum size of a JSON request body; most routes accept at most 1 MiB. Proxied requests are not limited."""
    shutdown_grace: Seconds = 3
    """How long open requests may continue after the server is asked to stop."""

    @field_validator("public_url")
    @classmethod
    def _is_web_address(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "")
        if url is not None and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query):
            raise ValueError("is not an address; write for example https://paddock.example.com")
        return None if url is None else url.rstrip("/")

    @field_validator("preview_host")
    @classmethod
    def _normalize_preview_host(cls, name: str | None) -> str | None:
        if name is None:
            return None
        name = name.lower().removeprefix("*.").rstrip(".")
        if len(name) > 200 or not _HOST_NAME.fullmatch(name):
            raise ValueError("is not a host name; write for example *.preview.example.com, without a port")
        return name


class SandboxesConfig(ConfigSection):
    """Defaults, limits and lifetimes of sandboxes."""

    default_backend: str = "local"
    """Backend used when a request does not name one."""
    default_image: str = "code"
    """Image used when a request does not name one."""
    default_timeout: Seconds | None = Field(default=3600, gt=0)
    """Lifetime of a sandbox when the request does not set one; `null` keeps it until it is deleted."""
    max_timeout: Seconds = Field(default=7 * 86400, gt=0)
    """Longest lifetime a request may set."""
    idle_timeout: Seconds | None = Field(default=None, gt=0)
    """End sandboxes that have been idle for this long; `null` disables this. An open call counts as use; a command
    running in the background does not."""
    start_timeout: Seconds = Field(default=30, gt=0)
    """How long a sandbox may take to become ready."""
    limits: SandboxLimitsConfig = SandboxLimitsConfig(cpu=2, memory=2 * 2**30, pids=512, disk=10 * 2**30, files=65536)
    """Resource limits used when a request does not set them."""
    max_limits: SandboxLimitsConfig = SandboxLimitsConfig()
    """Highest limits a request may set; `null` means unlimited."""
    allowed_host_paths: tuple[Path, ...] = ()
    """Host directories that sandboxes may mount; an empty list allows none."""
    shared: Path | None = None
    """Directory mounted read-only at `/shared` in every sandbox; `null` means `shared` in the data directory."""
    keep_ended: Seconds = 3600
    """How long ended sandboxes remain in the list."""
    min_free_disk: Bytes = 2**30
    """Minimum free space on the disk of the data directory; no sandbox starts while less is available."""
    port_range: Ports = PortRange(20000, 29999)
    """Range of host ports used for direct endpoints of sandboxes."""
    direct_endpoints: bool = True
    """Whether clients on this machine get a loopback port when they request a port of a sandbox. Any user of the
    machine can connect to such a port without a key. With `false`, all clients use the server's proxy, which requires
    a key."""
    max_endpoints: int | None = Field(default=32, ge=0)
    """Maximum number of direct endpoints per sandbox, not counting its daemon's; `null` means unlimited."""
    reconcile_every: Seconds = Field(default=15, gt=0)
    """Interval at which the recorded sandboxes are reconciled with the running ones."""
    max_move: Bytes = Field(default=4 * 2**30, ge=0)
    """Maximum size of one transfer between sandboxes."""

    @field_validator("limits", mode="after")
    @classmethod
    def _unset_limits_keep_their_defaults(cls, limits: SandboxLimitsConfig) -> SandboxLimitsConfig:
        default: SandboxLimitsConfig = cls.model_fields["limits"].default
        return default.model_copy(update={name: getattr(limits, name) for name in limits.model_fields_set})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.default_timeout is not None and self.default_timeout > self.max_timeout:
            raise ValueError("default_timeout is longer than max_timeout")
        for name in SandboxLimitsConfig.model_fields:
            limit, bound = getattr(self.limits, name), getattr(self.max_limits, name)
            if limit is not None and bound is not None and limit > bound:
                raise ValueError(f"limits.{name} is more than max_limits.{name}")
        return self


class TenantQuota(ConfigSection):
    """Resources one tenant may use at the same time."""

    sandboxes: int | None = Field(default=100, ge=0)
    """Maximum number of sandboxes that have not ended."""
    snapshots: int | None = Field(default=100, ge=0)
    """Maximum number of snapshots."""
    volumes: Bytes | None = Field(default=50 * 2**30, ge=0)
    """Maximum total size of named volumes."""
    memory: Bytes | None = Field(default=None, ge=0)
    """Maximum sum of the memory limits of all sandboxes."""
    cpu: Cpus | None = Field(default=None, ge=0)
    """Maximum sum of the CPU limits of all sandboxes."""
    endpoints: int | None = Field(default=512, ge=0)
    """Maximum number of direct endpoints of all sandboxes, not counting those of their daemons."""


class QuotasConfig(TenantQuota):
    """Resources each tenant may use at the same time; `null` means unlimited."""

    tenants: Mapping[str, TenantQuota] = {}
    """Quotas of individual tenants, by name; omitted values are taken from the general quota."""

    def for_tenant(self, tenant: str) -> TenantQuota:
        """Return the effective quota of one tenant."""
        own = self.tenants.get(tenant, TenantQuota())
        return TenantQuota(
            **{name: getattr(own if name in own.model_fields_set else self, name) for name in TenantQuota.model_fields}
        )


class PoolConfig(ConfigSection):
    """A pool of sandboxes started in advance."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """Name that requests use to take a sandbox from the pool."""
    image: str | None = None
    """Image of the sandboxes; defaults to the image of the kind."""
    kind: str | None = None
    """Kind of the sandboxes."""
    size: int = Field(default=2, ge=0, le=1000)
    """Number of sandboxes kept ready."""
    user: Literal["root"] | None = None
    """User of the programs: `root`, or `null` for the image's user."""
    limits: SandboxLimitsConfig = SandboxLimitsConfig()
    """Resource limits of the sandboxes; omitted values come from the kind, then from `sandboxes.limits`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.image is None and self.kind is None:
            raise ValueError("a pool needs an image or a kind; set one")
        return self


class ImagesConfig(ConfigSection):
    """Sources of sandbox images."""

    recipes: tuple[Path, ...] = ()
    """Directories with your own image recipes, searched before the built-in ones."""
    mirror: str | None = None
    """Debian mirror used for builds; `null` uses the host's own package sources if they provide the suite."""
    aliases: Mapping[str, str] = {}
    """Alternative names of images, for example an OCI reference that maps to one of your recipes."""


class LocalBackendConfig(ConfigSection):
    """The `local` sandbox backend."""

    uid_base: int = Field(default=1_200_000_000, ge=100_000, le=4_000_000_000)
    """First host user ID assigned to sandboxes when Paddock runs as root."""
    uid_count: int = Field(default=65536, ge=1)
    """Number of host user IDs available for sandboxes."""
    uid_ranges: int = Field(default=1024, ge=0)
    """Number of sandboxes with `user: root` at a time when Paddock runs as root. Each has 65,536 host user IDs, after
    those of `uid_count`."""
    cgroup_parent: Path | None = None
    """Parent directory of the sandboxes' cgroups; `null` finds one automatically."""
    disk_check_every: Seconds = Field(default=0.1, gt=0)
    """Interval at which the host's free disk space is checked. The disk use of sandboxes is measured only when free
    space has shrunk by as much as they may still write. A sandbox can exceed its limit by the amount it writes within
    one interval and during the measurement."""
    unsafe_disable_seccomp: bool = False
    """Run sandboxes without the seccomp filter. Use this only to find out why a program fails."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.uid_base + self.uid_count + self.uid_ranges * 65536 > 2**32 - 2:
            raise ValueError("uid_base, uid_count and uid_ranges exceed the largest user ID")
        return self


class SharingConfig(ConfigSection):
    """Default visibility of new objects."""

    default: Literal["private", "tenant"] = "private"
    """Visibility of new sessions, runs and sandboxes: `private` to the owner, or to every key of the `tenant`."""


class LogConfig(ConfigSection):
    """Log messages of the server, written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of the messages shown."""
    format: Literal["auto", "json", "console"] = "auto"
    """Log format; `auto` means `console` on a terminal and `json` elsewhere."""


class Config(ConfigSection):
    """All settings of Paddock."""

    data: Path = Field(
        default_factory=lambda: Path("~/.paddock").expanduser(), json_schema_extra={"shown": "~/.paddock"}
    )
    """Data directory: database, sandboxes, snapshots, images and the local API key."""
    server: ServerConfig = ServerConfig()
    sandboxes: SandboxesConfig = SandboxesConfig()
    quotas: QuotasConfig = QuotasConfig()
    pools: tuple[PoolConfig, ...] = ()
    """Sandbox pools created when the server starts."""
    kinds: Mapping[str, SandboxKindConfig] = {}
    """Sandbox kinds by name: overrides for built-in kinds, and kinds of your own."""
    images: ImagesConfig = ImagesConfig()
    local: LocalBackendConfig = LocalBackendConfig()
    llm: LlmConfig = LlmConfig()
    runs: RunsConfig = RunsConfig()
    mcp: McpConfig = McpConfig()
    network: NetworkConfig = NetworkConfig()
    outgoing: OutgoingConfig = OutgoingConfig()
    live: LiveViewConfig = LiveViewConfig()
    chat: ChatConfig = ChatConfig()
    sharing: SharingConfig = SharingConfig()
    log: LogConfig = LogConfig()

    @field_validator("pools")
    @classmethod
    def _names_are_unique(cls, pools: tuple[PoolConfig, ...]) -> tuple[PoolConfig, ...]:
        names = [pool.name for pool in pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"several pools are named {', '.join(twice)}; pool names must be unique")
        return pools

    @property
    def shared(self) -> Path:
        """Directory mounted read-only at `/shared` in every sandbox."""
        return self.sandboxes.shared or self.data / "shared"

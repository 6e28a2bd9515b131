"""Settings of MCP servers outside sandboxes."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from paddock.config.mcp_grpc import McpGrpcConfig
from paddock.config.mcp_servers import McpServer, McpSet
from paddock.config.network_targets import parse_allowed_target
from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Seconds


class McpCallerLimits(ConfigSection):
    """Bounds of calls to all MCP servers together; `null` sets no bound."""

    concurrency: int | None = Field(default=None, ge=1)
    """Calls at the same time."""
    calls_per_minute: int | None = Field(default=None, ge=1)
    """Calls per minute."""


class McpConfig(ConfigSection):
    """MCP servers, and the gateway to them."""

    allow: tuple[str, ...] = ()
    """Servers in private networks or on this machine that tasks may use: host names, addresses or networks such as
    `10.1.0.0/16`, each with or without `:PORT`. Public addresses need no entry. The ports of Paddock and of its
    sandboxes are always refused."""
    servers: tuple[McpServer, ...] = ()
    """Servers for all tenants, or for those in their `access`. The API shows them, but cannot change them. For a secret
    of `runs.secrets` in a header, write `$${NAME}`."""
    sets: tuple[McpSet, ...] = ()
    """Named subsets of the servers, each at `/mcp/sets/NAME`."""
    approve_new_tools: bool = True
    """Approve a tool that was never seen before. With `false`, new tools are withheld until a person approves them."""
    tenant_limits: McpCallerLimits = McpCallerLimits()
    """Bounds of each tenant."""
    sandbox_limits: McpCallerLimits = McpCallerLimits(concurrency=64)
    """Bounds of each sandbox."""
    idle_timeout: Seconds = Field(default=300, gt=0)
    """How long an unused connection to a server, or a server program in a sandbox, is kept."""
    list_timeout: Seconds = Field(default=5, gt=0, le=300)
    """How long a list of all servers waits for one server. A slower server appears with its last known tools, or is
    named as missing."""
    keep_calls: Seconds | None = Field(default=30 * 86400, gt=0)
    """How long records of calls are kept; `null` keeps them forever."""
    record_size: Bytes = Field(default=16 * 2**10, ge=0, le=2**20)
    """Largest recorded arguments, and largest recorded result, of a call; the rest is cut."""

    grpc: McpGrpcConfig = McpGrpcConfig()
    """The gateway over gRPC."""

    @field_validator("allow")
    @classmethod
    def _are_targets(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for entry in allow:
            parse_allowed_target(entry)
        return allow

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [server.name for server in self.servers]
        for kind, found in (("servers", names), ("sets", [each.name for each in self.sets])):
            if repeated := next((name for name in found if found.count(name) > 1), None):
                raise ValueError(f"{kind}: {repeated!r} is declared twice; rename one")
        for each in self.sets:
            if unknown := next((name for name in each.servers if name not in names), None):
                raise ValueError(f"sets: {each.name!r} has the server {unknown!r}, which is not in mcp.servers")
        return self

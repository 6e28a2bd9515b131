"""Settings of the network of sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from pydantic import Field, field_validator

from paddock.config.network_policy import NetworkRules, encode_host_name
from paddock.config.network_targets import parse_allowed_target
from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Seconds


class NetworkConfig(ConfigSection):
    """Network access of sandboxes: default policy, bounds and limits."""

    default: NetworkRules = ()
    """Policy of sandboxes whose request and kind name none: `none`, `open`, `web`, `packages`, `git`, or a list of
    rules such as `allow *.example.com:443`."""
    bound: NetworkRules = ("allow open",)
    """Most that any policy can allow; a connection must be allowed by this and by the sandbox's policy."""
    tenant_bounds: Mapping[str, NetworkRules] = {}
    """Further bounds of individual tenants, by name."""
    private_targets: tuple[str, ...] = ()
    """Targets in private networks or on this machine that a rule may allow by naming them: host names, addresses or
    networks such as `10.1.0.0/16`, each with or without `:PORT`. Other private addresses are always refused, as are the
    ports of Paddock and of its sandboxes."""
    hosts: Mapping[str, str] = {}
    """Addresses of host names, used instead of DNS."""
    git_hosts: tuple[str, ...] = (
        "github.com",
        "*.github.com",
        "*.githubusercontent.com",
        "gitlab.com",
        "bitbucket.org",
        "codeberg.org",
    )
    """Hosts of the preset `git`."""
    package_hosts: tuple[str, ...] = ()
    """Further hosts of the preset `packages`, each with or without `:PORT`. The indexes that the server's own pip, npm
    and apt use are always included."""
    connect_timeout: Seconds = Field(default=10, gt=0)
    """How long resolving a name and connecting may take."""
    max_connections: int = Field(default=512, ge=1)
    """Maximum number of open connections of a sandbox."""
    max_tenant_connections: int = Field(default=4096, ge=1)
    """Maximum number of open connections of all sandboxes of a tenant."""
    max_new_per_second: int = Field(default=200, ge=1)
    """Maximum number of connections that a sandbox may open per second, on average over a few seconds."""
    max_daily_bytes: Bytes | None = Field(default=None, ge=0)
    """Maximum bytes that a sandbox may send and receive in 24 hours; `null` means unlimited."""
    max_tenant_daily_bytes: Bytes | None = Field(default=None, ge=0)
    """Maximum bytes that all sandboxes of a tenant may send and receive in 24 hours; `null` means unlimited."""
    keep_connections: Seconds = Field(default=30 * 86400, ge=0)
    """How long records of connections are kept."""

    @field_validator("private_targets", "package_hosts")
    @classmethod
    def _are_targets(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        for entry in targets:
            parse_allowed_target(entry)
        return targets

    @field_validator("git_hosts")
    @classmethod
    def _are_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if encode_host_name(host.removeprefix("*.")) is None:
                raise ValueError(f"{host!r} is not a host name, nor *. before one")
        return hosts

    @field_validator("hosts")
    @classmethod
    def _are_addresses(cls, hosts: Mapping[str, str]) -> Mapping[str, str]:
        for name, address in hosts.items():
            if encode_host_name(name) != name:
                raise ValueError(f"{name!r} is not a host name in lower case")
            ip_address(address)
        return hosts

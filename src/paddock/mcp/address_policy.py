"""Address policy for MCP servers of tasks: refuses private and local addresses (SSRF protection).

Tasks come from any tenant, and the server connects on their behalf. Addresses that are not public are refused unless
the operator lists them in `mcp.allow`. Some are refused even then: metadata services of clouds, Paddock's own ports,
and the ports on which sandboxes are published. Host names are checked by the addresses they resolve to while
connecting, and the connection goes to the checked address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from paddock.config.mcp import AllowedTarget, parse_allowed_target
from paddock.config.units import PortRange
from paddock.errors import Forbidden

_METADATA_ADDRESSES = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
            *("fd00:ec2::254", "fd00:ec2::23"),
        ),
    )
)
"""Metadata services of clouds, which hand out a machine's credentials."""
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")


class McpAddressPolicy(AbstractResolver):
    """DNS resolver for connections to MCP servers; raises `Forbidden` for addresses that are not allowed."""

    def __init__(self, allow: Iterable[str] = (), published: PortRange | None = None) -> None:
        self._allowed_targets = tuple(map(parse_allowed_target, allow))
        self._published = published
        self._refused_ports: set[int] = set()

    def refuse_port(self, port: int) -> None:
        """Refuse a port of this host on which Paddock itself listens."""
        self._refused_ports.add(port)

    def check_address(self, host: str, port: int, name: str | None = None) -> None:
        """Raise `Forbidden` for a refused address; `name` is the host name that resolved to it.

        Host names pass: they are checked when they are resolved.
        """
        address = _parse_address(host.partition("%")[0])
        if address is None:
            if host.lower().rstrip(".").rpartition(".")[2] == "localhost":
                self.check_address("127.0.0.1", port, name=host)
            return
        if isinstance(address, IPv6Address):
            address = _embedded_ipv4(address)
        if address.is_multicast or address.is_unspecified or address in _METADATA_ADDRESSES:
            raise Forbidden(f"an MCP server of a task may not have the address {host}")
        own = _is_own_address(address)
        if own and port in self._refused_ports:
            raise Forbidden(f"{host}:{port} is Paddock itself, which sandboxes may not reach as an MCP server")
        if own and self._published is not None and self._published.first <= port <= self._published.last:
            raise Forbidden(f"{host}:{port} is a port of another sandbox (sandboxes.port_range)")
        if (own or not _is_public_address(address)) and not any(
            _target_allows(each, address, port, name) for each in self._allowed_targets
        ):
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise Forbidden(
                f"{f'{name} leads to {shown}, which' if name else shown} is not a public address; "
                f"the operator of this server can allow it with the setting mcp.allow: ['{name or shown}']"
            )

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await ThreadedResolver().resolve(host, port, family)
        for each in found:
            self.check_address(each["host"], port, name=host)
        return found

    async def close(self) -> None:
        """Do nothing; required by the base class."""


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; return None for a host name.

    `127.1` and `2130706433` are addresses too: C libraries connect to them without resolving.
    """
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address embedded in an IPv6 address, else the address itself."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public_address(address: IPv4Address | IPv6Address) -> bool:
    if not address.is_global or address.is_reserved or address.is_link_local:
        return False
    return isinstance(address, IPv4Address) or not (address.is_site_local or address in _LOCAL_NAT64)


def _target_allows(target: AllowedTarget, address: IPv4Address | IPv6Address, port: int, name: str | None) -> bool:
    if target.port not in (None, port):
        return False
    if target.network is None:
        return name is not None and name.lower().rstrip(".") == target.name and not address.is_link_local
    # A network as wide as 0.0.0.0/0 does not include link-local addresses, which serve machine configuration.
    return _network_contains(target.network, address) and (target.network.is_link_local or not address.is_link_local)


def _network_contains(network: IPv4Network | IPv6Network, address: IPv4Address | IPv6Address) -> bool:
    return network.version == address.version and address in network


def _is_own_address(address: IPv4Address | IPv6Address) -> bool:
    """Tell whether the address belongs to this host: only then can it be bound."""
    if address.is_loopback:
        return True
    socket_address: tuple[Any, ...] = (str(address), 0)
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(socket_address)
        except OSError:
            return False
    return True

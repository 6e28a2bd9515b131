"""Classify addresses that the server may connect to on behalf of sandboxes (SSRF protection)."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, TypeAlias

from paddock.config.network_targets import AllowedTarget, parse_allowed_target
from paddock.config.units import PortRange

IPAddress: TypeAlias = IPv4Address | IPv6Address

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


class TargetAddresses:
    """Decides which addresses connections on behalf of sandboxes may have.

    `private_targets` are those in private networks or on this machine that the operator allows. `published` are host
    ports of sandboxes, which are always refused, as are the ports of Paddock itself.
    """

    def __init__(self, private_targets: Iterable[str] = (), published: PortRange | None = None) -> None:
        self._private_targets = tuple(map(parse_allowed_target, private_targets))
        self._published = published
        self._own_ports: set[int] = set()

    def refuse_port(self, port: int) -> None:
        """Refuse a port of this host on which Paddock itself listens."""
        self._own_ports.add(port)

    def forbidden_reason(self, address: IPAddress, port: int) -> str | None:
        """Return why no setting can allow this address, or `None`."""
        address = embedded_ipv4(address)
        if address.is_multicast or address.is_unspecified or address in _METADATA_ADDRESSES:
            return f"{address} is never allowed: it is a multicast, unspecified or metadata address"
        if is_own_address(address):
            if port in self._own_ports:
                return f"{address}:{port} is Paddock itself"
            if self._published is not None and self._published.first <= port <= self._published.last:
                return f"{address}:{port} is a port of another sandbox (sandboxes.port_range)"
        return None

    def is_public(self, address: IPAddress) -> bool:
        address = embedded_ipv4(address)
        return is_public_address(address) and not is_own_address(address)

    def operator_allows(self, address: IPAddress, port: int, name: str | None) -> bool:
        """Return whether the operator allows this private target."""
        address = embedded_ipv4(address)
        return any(target_allows(each, address, port, name) for each in self._private_targets)


def parse_address(host: str) -> IPAddress | None:
    """Parse an IP address; return `None` for a host name.

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


def embedded_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address embedded in an IPv6 address, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def is_public_address(address: IPAddress) -> bool:
    if not address.is_global or address.is_reserved or address.is_link_local:
        return False
    return isinstance(address, IPv4Address) or not (address.is_site_local or address in _LOCAL_NAT64)


def target_allows(target: AllowedTarget, address: IPAddress, port: int, name: str | None) -> bool:
    if target.port not in (None, port):
        return False
    if target.network is None:
        return name is not None and name.lower().rstrip(".") == target.name and not address.is_link_local
    # A network as wide as 0.0.0.0/0 does not include link-local addresses, which serve machine configuration.
    return network_contains(target.network, address) and (target.network.is_link_local or not address.is_link_local)


def network_contains(network: IPv4Network | IPv6Network, address: IPAddress) -> bool:
    return network.version == address.version and address in network


def network_leads_to(network: IPv4Network | IPv6Network, address: IPAddress) -> bool:
    """Return whether the network has the address, or the IPv4 address to which it is translated on its way."""
    return network_contains(network, address) or network_contains(network, embedded_ipv4(address))


def is_own_address(address: IPAddress) -> bool:
    """Return whether the address belongs to this host: only then can it be bound."""
    if address.is_loopback:
        return True
    socket_address: tuple[Any, ...] = (str(address), 0)
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(socket_address)
        except OSError:
            return False
    return True

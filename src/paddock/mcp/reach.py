"""Which addresses the servers that a task names may have.

Servers of the own network and of this machine are what MCP is much used for, so private addresses are fine. Two things
are not: addresses where clouds hand out a machine's own credentials to whoever asks from it, and Paddock itself, to
whose API a sandbox must have no way, whatever key it has got hold of. Names are checked by what they lead to at the
moment of connecting, so that none can lead elsewhere later.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from paddock.errors import Forbidden

_METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))
"""Where clouds keep what a machine should know, beside the link-local addresses."""
_TRANSLATED = IPv6Network("64:ff9b::/96")


class Reach(AbstractResolver):
    """Resolves names, and refuses addresses that no task may have. Raises `Forbidden`, which says why."""

    def __init__(self) -> None:
        self._own: set[int] = set()

    def refuse_port(self, port: int) -> None:
        """Let nobody reach this port of this machine, on which Paddock itself listens."""
        self._own.add(port)

    def check(self, host: str, port: int) -> None:
        """Refuse an address; a name is refused when it is resolved."""
        address = _address(host.partition("%")[0])
        if address is None:
            return
        if isinstance(address, IPv6Address):
            address = _within(address)
        if address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA:
            raise Forbidden(f"{host} is no address that an MCP server of a task may have")
        if port in self._own and _is_own(address):
            raise Forbidden(f"{host}:{port} is Paddock itself, which sandboxes may not reach this way")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await ThreadedResolver().resolve(host, port, family)
        for each in found:
            self.check(each["host"], port)
        return found

    async def close(self) -> None:
        """There is nothing to let go of."""


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that is written; none if it is a name. `127.1` and `2130706433` are what C makes of them, because
    connecting may do the same without anybody resolving them."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _within(address: IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that is meant, where one is written as IPv6."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_own(address: IPv4Address | IPv6Address) -> bool:
    """Whether it is one of this machine's: only those can be bound."""
    if address.is_loopback:
        return True
    place: tuple[Any, ...] = (str(address), 0)
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(place)
        except OSError:
            return False
    return True

"""Address policy for MCP servers of tasks: refuses private and local addresses (SSRF protection).

Tasks come from any tenant, and the server connects on their behalf. Addresses that are not public are refused unless
the operator lists them in `mcp.allow`. Some are refused even then: metadata services of clouds, Paddock's own ports,
and the ports on which sandboxes are published. Host names are checked by the addresses they resolve to while
connecting, and the connection goes to the checked address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from paddock.config.units import PortRange
from paddock.errors import Forbidden
from paddock.network.addresses import TargetAddresses, embedded_ipv4, parse_address


class McpAddressPolicy(AbstractResolver):
    """DNS resolver for connections to MCP servers; raises `Forbidden` for addresses that are not allowed."""

    def __init__(self, allow: Iterable[str] = (), published: PortRange | None = None) -> None:
        self._addresses = TargetAddresses(allow, published)

    def refuse_port(self, port: int) -> None:
        """Refuse a port of this host on which Paddock itself listens."""
        self._addresses.refuse_port(port)

    def check_address(self, host: str, port: int, name: str | None = None) -> None:
        """Raise `Forbidden` for a refused address; `name` is the host name that resolved to it.

        Host names pass: they are checked when they are resolved.
        """
        address = parse_address(host.partition("%")[0])
        if address is None:
            if host.lower().rstrip(".").rpartition(".")[2] == "localhost":
                self.check_address("127.0.0.1", port, name=host)
            return
        address = embedded_ipv4(address)
        if reason := self._addresses.forbidden_reason(address, port):
            raise Forbidden(f"an MCP server of a task may not have the address {host}: {reason}")
        if not self._addresses.is_public(address) and not self._addresses.operator_allows(address, port, name):
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

"""Parse network targets of the configuration: host names, addresses and networks, with or without a port."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*", re.ASCII)
_WITH_PORT = re.compile(r"(?:\[(?P<bracketed>[^]]+)\]|(?P<plain>[^][:]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


class AllowedTarget(NamedTuple):
    """A host name or a network, and a port or every port."""

    name: str | None
    network: IPv4Network | IPv6Network | None
    port: int | None


def parse_allowed_target(text: str) -> AllowedTarget:
    """Parse `HOST`, `ADDRESS` or `CIDR` with an optional `:PORT`. Raises `ValueError`."""
    problem = f"{text!r} is not a host name, an address or a network such as 10.0.0.0/8, with or without :PORT"
    try:
        return AllowedTarget(None, ip_network(text), None)  # IPv6 without brackets has colons of its own.
    except ValueError:
        pass
    match = _WITH_PORT.fullmatch(text)
    if not match or (match["port"] and not 0 < int(match["port"]) < 65536):
        raise ValueError(problem)
    host, port = (match["bracketed"] or match["plain"]).lower(), int(match["port"]) if match["port"] else None
    try:
        return AllowedTarget(None, ip_network(host), port)
    except ValueError:
        if match["bracketed"] or not HOST_NAME.fullmatch(host) or host.rpartition(".")[2].isdigit():
            raise ValueError(problem) from None
    return AllowedTarget(host, None, port)

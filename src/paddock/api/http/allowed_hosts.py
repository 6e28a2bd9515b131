"""Which host names the server answers to."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

from paddock.api.http.authorization import read_header
from paddock.config.schema import ServerConfig


class AllowedHosts:
    """Host names that the server answers to.

    A web page can point its own name at this machine (DNS rebinding) and would then be allowed to read answers; but
    the browser still sends that name.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._names = {name.lower() for name in config.allowed_hosts} | {"localhost", config.host.strip("[]").lower()}
        self._preview_suffix = None if config.preview_host is None else f".{config.preview_host}"

    def allows_request(self, scope: Scope) -> bool:
        name = read_header(scope, b"host")
        if self.allows_name(name) or self._is_preview_name(name):
            return True
        server = scope.get("server")
        return bool(server and host_name_without_port(name).lower() == str(server[0]).lower())

    def _is_preview_name(self, host: str) -> bool:
        suffix = self._preview_suffix
        return suffix is not None and host_name_without_port(host).lower().endswith(suffix)

    def allows_name(self, host: str) -> bool:
        """Return whether a Host header names this server, on any of its addresses."""
        name = host_name_without_port(host).lower()
        if name in self._names or "*" in self._names:
            return bool(name)
        if is_loopback_address(name):
            return True
        return any(known.startswith("*.") and name.endswith(known[1:]) for known in self._names)


def host_name_without_port(value: str) -> str:
    """Return the name in a Host header, without its port."""
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0] if value.count(":") == 1 else value


def is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

"""Refuses to let strangers in."""

from __future__ import annotations

import ipaddress

from paddock.errors import ConfigError


def check_exposure(host: str, has_keys: bool) -> None:
    """Raise `ConfigError` if others could reach the server while no key has been made."""
    if not has_keys and not is_loopback(host):
        raise ConfigError(
            f"server.host is {host or 'every address'}, which others can reach, but there is no API key yet; "
            "make one with `paddock key create NAME`, or listen on 127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name counts as reachable unless it is `localhost`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"

"""Refuse to listen on reachable addresses while no API key exists."""

from __future__ import annotations

import ipaddress

from paddock.errors import ConfigError


def check_network_exposure(host: str, has_keys: bool) -> None:
    """Raise `ConfigError` if other machines could reach the server while no key exists."""
    if not has_keys and not is_local_only_address(host):
        raise ConfigError(
            f"server.host is {host or 'every address'}, which others can reach, but there is no API key yet; "
            "make one with `paddock key create NAME`, or listen on 127.0.0.1."
        )


def is_local_only_address(host: str) -> bool:
    """Return whether only this machine can reach an address.

    Names count as reachable, except `localhost`.
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"

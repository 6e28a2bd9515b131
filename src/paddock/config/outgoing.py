"""Settings of the server's own connections to other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr, field_validator

from paddock.config.outgoing_proxy import (
    ALL_TARGETS,
    OutgoingProxies,
    parse_bypass,
    parse_proxy,
    read_outgoing_proxies,
)
from paddock.config.section import ConfigSection


class OutgoingConfig(ConfigSection):
    """Connections of the server to providers, MCP servers and trace collectors, and to hosts on behalf of sandboxes."""

    proxy: SecretStr | None = None
    """HTTP proxy, such as `http://USER:PASSWORD@proxy.example.com:3128`; `none` connects directly. `null` uses
    `HTTPS_PROXY` for https addresses and `HTTP_PROXY` for http addresses."""
    no_proxy: tuple[str, ...] | None = None
    """Targets of direct connections: names (with their subdomains), addresses or networks such as `10.0.0.0/8`, each
    with or without `:PORT`, or `*` for all. `null` uses `NO_PROXY`. This machine is always a direct target."""
    ca_bundle: Path | None = None
    """PEM file with CA certificates to trust in addition to the system's, also in sandboxes that have a network and in
    their browsers. The system's are OpenSSL's; the variable `SSL_CERT_FILE` replaces them."""

    @field_validator("proxy")
    @classmethod
    def _is_proxy(cls, proxy: SecretStr | None) -> SecretStr | None:
        return check_proxy_setting(proxy)

    @field_validator("no_proxy")
    @classmethod
    def _are_targets(cls, no_proxy: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for entry in no_proxy or ():
            if entry != ALL_TARGETS:
                parse_bypass(entry)
        return no_proxy

    def proxies(self, environment: Mapping[str, str]) -> OutgoingProxies:
        """Return the proxies in use. Raises `ConfigError` for an invalid variable."""
        proxy = None if self.proxy is None else self.proxy.get_secret_value()
        return read_outgoing_proxies(environment, proxy, self.no_proxy, self.ca_bundle)


def check_proxy_setting(proxy: SecretStr | None) -> SecretStr | None:
    """Return a valid setting. Raises `ValueError` without the address, which may contain a password."""
    if proxy is not None:
        parse_proxy(proxy.get_secret_value(), "")
    return proxy

"""Choose the proxy of the server's own connections: addresses of proxies, and matching of `NO_PROXY`."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from paddock.config.network_targets import AllowedTarget, parse_allowed_target
from paddock.errors import ConfigError

NO_PROXY_WORD = "none"
"""Setting that means a direct connection, whatever the environment names."""
ALL_TARGETS = "*"
"""Entry of `NO_PROXY` that stands for every target."""
_LOCAL_NAME = "localhost"
_PROXY_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_OTHER_PROXY_SCHEMES = ("https", "socks4", "socks4a", "socks5", "socks5h")
_NOT_A_PROXY = (
    "is not the address of a proxy; write it like http://proxy.example.com:3128, or "
    "http://USER:PASSWORD@proxy.example.com:3128 with special characters of the password as %XX"
)


@dataclass(frozen=True)
class ProxyAddress:
    """An HTTP proxy. Its text and representation never contain the credentials."""

    host: str
    port: int
    source: str
    """Variable or setting that names it, for messages."""
    authorization: str | None = field(default=None, repr=False)
    """Value of the header `Proxy-Authorization`."""

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.url} ({self.source})"


@dataclass(frozen=True)
class OutgoingProxies:
    """Proxies of the server's own connections, and the targets that need none."""

    http: ProxyAddress | None = None
    """Proxy for http addresses, and for port 80."""
    https: ProxyAddress | None = None
    """Proxy for https addresses, and for all other ports."""
    bypass: tuple[AllowedTarget, ...] = ()
    """Targets of direct connections. A name includes its subdomains."""
    ca_bundle: Path | None = None
    """File of CA certificates to trust besides the system's."""

    def choose(
        self, scheme: Literal["http", "https"], host: str, port: int, address: IPv4Address | IPv6Address | None = None
    ) -> ProxyAddress | None:
        """Return the proxy for a target; `None` for a direct connection.

        `address` is the address that the host name has, if it is known. Targets on this machine never need a proxy.
        """
        proxy = self.http if scheme == "http" else self.https
        if proxy is None:
            return None
        name = host.strip("[]").rstrip(".").lower()
        address = address or _parse_address(name)
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        if name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}") or (address is not None and address.is_loopback):
            return None
        return None if any(_matches(each, name, port, address) for each in self.bypass) else proxy


def read_outgoing_proxies(
    environment: Mapping[str, str],
    proxy: str | None = None,
    no_proxy: Iterable[str] | None = None,
    ca_bundle: Path | None = None,
) -> OutgoingProxies:
    """Combine the settings with the variables, their defaults. Raises `ConfigError` for an invalid variable."""
    if proxy is not None:
        http = https = parse_proxy(proxy, "outgoing.proxy")
    else:
        http, https = _proxy_variable(environment, "HTTP_PROXY"), _proxy_variable(environment, "HTTPS_PROXY")
    if no_proxy is None:
        no_proxy = re.split(r"[\s,]+", _variable(environment, "NO_PROXY")[1])
    entries = tuple(no_proxy)
    if ALL_TARGETS in entries:
        http = https = None
    return OutgoingProxies(http, https, tuple(_bypass_targets(entries)), ca_bundle)


def parse_proxy(text: str, source: str) -> ProxyAddress | None:
    """Parse the address of a proxy, or `none`. Raises `ValueError`; its message never contains the address."""
    text = text.strip()
    if text.lower() == NO_PROXY_WORD:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        raise ValueError(_NOT_A_PROXY) from None
    if parts.scheme in _OTHER_PROXY_SCHEMES:
        raise ValueError(
            f"is the address of a proxy with {parts.scheme}, which is not supported; name one that starts with "
            "http://, through which https requests are sent too"
        )
    extra = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme != "http" or extra or not _PROXY_HOST.fullmatch(host):
        raise ValueError(_NOT_A_PROXY)
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
    return ProxyAddress(host, port, source, authorization)


def check_ca_bundle(file: Path | None) -> None:
    """Raise `ConfigError` if the certificates of `outgoing.ca_bundle` cannot be read."""
    if file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise ConfigError(f"outgoing.ca_bundle: {file} has no CA certificates in PEM format") from None
    except OSError as error:
        raise ConfigError(f"outgoing.ca_bundle: {file}: {error.strerror}") from None


def parse_bypass(entry: str) -> AllowedTarget:
    """Parse an entry of `NO_PROXY`: a name, an address or a network, with or without a port. Raises `ValueError`."""
    try:
        return AllowedTarget(None, ip_network(entry, strict=False), None)
    except ValueError:
        return parse_allowed_target(entry.removeprefix("*").removeprefix(".").rstrip("."))


def _bypass_targets(entries: Iterable[str]) -> Iterable[AllowedTarget]:
    """Yield the valid entries; other programs ignore invalid ones in the variable too."""
    for entry in entries:
        try:
            yield parse_bypass(entry)
        except ValueError:
            continue


def _matches(entry: AllowedTarget, name: str, port: int, address: IPv4Address | IPv6Address | None) -> bool:
    if entry.port not in (None, port):
        return False
    if entry.name is not None:
        return name == entry.name or name.endswith(f".{entry.name}")
    return address is not None and entry.network is not None and address in entry.network


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _proxy_variable(environment: Mapping[str, str], upper: str) -> ProxyAddress | None:
    name, text = _variable(environment, upper)
    try:
        return parse_proxy(text, name) if text else None
    except ValueError as error:
        raise ConfigError(f"environment {name}: {error}; or set outgoing.proxy to an address or to none") from None


def _variable(environment: Mapping[str, str], upper: str) -> tuple[str, str]:
    """Return the name and value of a variable; lower case takes precedence, as in curl."""
    return next(
        ((name, text) for name in (upper.lower(), upper) if (text := environment.get(name, "").strip())), (upper, "")
    )

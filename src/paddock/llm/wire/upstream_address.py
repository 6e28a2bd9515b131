"""Parsed addresses of upstreams, and the TLS context to reach them with."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from paddock.config.outgoing_proxy import ProxyAddress

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class UpstreamAddress:
    """The parsed base URL of an upstream."""

    tls: bool
    host: str
    port: int
    prefix: bytes = b""
    """Path prefix of every request, without a trailing slash."""
    ca: Path | None = None
    """File of CA certificates to trust besides the system's."""
    proxy: ProxyAddress | None = None
    """Proxy to connect through."""

    @classmethod
    def parse(cls, url: str, *, ca: Path | None = None) -> UpstreamAddress:
        """Parse a base URL. Raises `ValueError` if it is invalid."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("an upstream's address starts with http:// or https:// and a host")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("an upstream's address has no user, query or fragment")
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
        prefix = parts.path.rstrip("/")
        if not prefix.isascii() or any(character <= " " for character in prefix + host):
            raise ValueError("an upstream's address has no spaces, and non-ASCII characters in its path are %-encoded")
        port = parts.port or _PORTS[parts.scheme]
        return cls(tls=parts.scheme == "https", host=host, port=port, prefix=prefix.encode("ascii"), ca=ca)

    @cached_property
    def connection_key(self) -> tuple[object, ...]:
        """Key of the connections that can be shared for this address."""
        key = (self.tls, self.host, self.port, self.ca)
        return key if self.proxy is None else (*key, self.proxy)

    @cached_property
    def target_prefix(self) -> bytes:
        """Text before the target in the first line of every request; proxies need the whole address for http."""
        return self.prefix if self.tls or self.proxy is None else b"http://" + self.host_header + self.prefix

    @cached_property
    def header_lines(self) -> tuple[bytes, ...]:
        """First header lines of every request."""
        host = b"host: " + self.host_header
        if self.tls or self.proxy is None or self.proxy.authorization is None:
            return (host,)
        return host, b"proxy-authorization: " + self.proxy.authorization.encode("ascii")

    @cached_property
    def host_header(self) -> bytes:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return (name if self.port == _PORTS["https" if self.tls else "http"] else f"{name}:{self.port}").encode("ascii")


def make_tls_context(*files: Path | None) -> ssl.SSLContext:
    """Return a context that trusts the system's CAs and the CAs in files; certificates and host names are verified."""
    context = ssl.create_default_context()
    for file in files:
        if file is not None:
            context.load_verify_locations(cafile=file)
    context.set_alpn_protocols(["http/1.1"])
    return context

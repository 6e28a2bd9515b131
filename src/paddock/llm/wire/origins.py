"""Where upstreams are, and whom to believe that they are it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Origin:
    """The address of an upstream, taken apart once."""

    tls: bool
    host: str
    port: int
    prefix: bytes = b""
    """Path that stands before the path of every request, without a slash at its end."""
    ca: Path | None = None
    """Certificates to trust besides the system's."""

    @classmethod
    def parse(cls, url: str, *, ca: Path | None = None) -> Origin:
        """Take a base URL apart. Raises `ValueError` when it is none."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("an upstream's address begins with http:// or https:// and a host")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("an upstream's address has no user, query or fragment")
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
        prefix = parts.path.rstrip("/")
        if not prefix.isascii() or any(letter <= " " for letter in prefix + host):
            raise ValueError("an upstream's address has no spaces, and other letters in its path are %-encoded")
        port = parts.port or _PORTS[parts.scheme]
        return cls(tls=parts.scheme == "https", host=host, port=port, prefix=prefix.encode("ascii"), ca=ca)

    @cached_property
    def key(self) -> tuple[bool, str, int, Path | None]:
        """What connections that may serve each other's requests have in common."""
        return self.tls, self.host, self.port, self.ca

    @cached_property
    def host_header(self) -> bytes:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return (name if self.port == _PORTS["https" if self.tls else "http"] else f"{name}:{self.port}").encode("ascii")


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """Trust the system's authorities and those of a file; certificates and host names are checked."""
    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(cafile=ca)
    context.set_alpn_protocols(["http/1.1"])
    return context

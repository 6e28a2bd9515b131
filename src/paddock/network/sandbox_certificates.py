"""Certificate authorities that programs of a sandbox trust: the authorities of the host, the server and the vault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

CERTIFICATES_FILE = "certificates.pem"
"""File in the uplink directory with the trusted certificate authorities."""
CERTIFICATES_PATH = f"/run/paddock/holes/{CERTIFICATES_FILE}"
"""The same file as seen in a sandbox."""
EXTRA_CERTIFICATES_FILE = "extra-certificates.pem"
"""File in the uplink directory with the authorities that browsers trust in addition to their own list."""
EXTRA_CERTIFICATES_VARIABLE = "PADDOCK_EXTRA_CERTIFICATES"
"""Variable with the path of that file; images with a browser read it when they start."""
HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
)
log = structlog.get_logger()


class SandboxCertificates:
    """Reads the authorities that this machine and the server trust, and writes them for sandboxes."""

    def __init__(self, ca_bundle: Path | None, host: Path = HOST_CERTIFICATES) -> None:
        """`ca_bundle` are authorities that the server's outgoing connections trust in addition."""
        self._ca_bundle = ca_bundle
        self._host = host
        self.exist = host.is_file()
        """Whether this machine has any."""

    def environment(self) -> Mapping[str, str]:
        """Return variables that name the file to programs."""
        return dict.fromkeys(_VARIABLES, CERTIFICATES_PATH)

    def read(self, authority: str | None = None) -> bytes:
        """Return all authorities, with that of a sandbox's vault if there is one. Raises `OSError`."""
        parts = [self._host.read_bytes()] if self.exist else []
        if self._ca_bundle is not None:
            parts.append(self._ca_bundle.read_bytes())
        if authority is not None:
            parts.append(authority.encode())
        return b"\n".join(parts)

    def write(self, uplinks: Path, authority: str | None = None) -> None:
        """Put the file where the sandbox can read it; a failure is logged."""
        try:
            _write_file(uplinks / CERTIFICATES_FILE, self.read(authority))
        except OSError as error:
            log.warning("could not copy certificates for a sandbox", error=str(error))

    def browser_environment(self, *, has_vault: bool) -> Mapping[str, str]:
        """Return the variable for browsers, if they are to trust further authorities."""
        if self._ca_bundle is None and not has_vault:
            return {}
        return {EXTRA_CERTIFICATES_VARIABLE: f"/run/paddock/holes/{EXTRA_CERTIFICATES_FILE}"}

    def write_for_browsers(self, uplinks: Path, authority: str | None = None) -> None:
        """Put the authorities of the server and of a vault where browsers of the sandbox wait for them."""
        try:
            parts = [] if self._ca_bundle is None else [self._ca_bundle.read_bytes()]
            if authority is not None:
                parts.append(authority.encode())
            if parts:
                _write_file(uplinks / EXTRA_CERTIFICATES_FILE, b"\n".join(parts))
        except OSError as error:
            log.warning("could not copy certificates for browsers of a sandbox", error=str(error))


def _write_file(path: Path, content: bytes) -> None:
    """Write a world-readable file atomically."""
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(content)
    partial.chmod(0o644)
    partial.rename(path)

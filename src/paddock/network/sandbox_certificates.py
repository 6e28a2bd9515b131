"""Certificate authorities that programs of a sandbox trust: those of this machine and of the server, and of a vault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

CERTIFICATES_FILE = "certificates.pem"
"""File in the uplink directory with the trusted certificate authorities."""
CERTIFICATES_PATH = f"/run/paddock/holes/{CERTIFICATES_FILE}"
"""The same file as seen in a sandbox."""
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
            partial = uplinks / f".{CERTIFICATES_FILE}"
            partial.write_bytes(self.read(authority))
            partial.chmod(0o644)
            partial.rename(uplinks / CERTIFICATES_FILE)
        except OSError as error:
            log.warning("could not copy certificates for a sandbox", error=str(error))

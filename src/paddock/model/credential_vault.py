"""Credential vaults of sandboxes: credentials, and the requests that get them as headers."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from paddock.model.sandbox import FrozenModel


class CredentialAuthType(StrEnum):
    """How a credential is put into a request, as OpenSandbox names the ways."""

    BEARER = "bearer"
    """`Authorization: Bearer VALUE`."""
    BASIC = "basic"
    """`Authorization: Basic VALUE`; the value is base64 of USER:PASSWORD."""
    API_KEY = "apiKey"
    """A header with the value."""
    CUSTOM_HEADERS = "customHeaders"
    """Several headers, each with the value of a credential."""


class HeaderCredential(FrozenModel):
    """A header and the credential that is its value."""

    name: str
    credential: str


class CredentialAuth(FrozenModel):
    """How a binding puts credentials into requests."""

    type: CredentialAuthType
    credential: str | None = None
    """Credential of every type but `customHeaders`."""
    name: str | None = None
    """Header of the type `apiKey`."""
    headers: tuple[HeaderCredential, ...] = ()
    """Headers of the type `customHeaders`."""

    def header_credentials(self) -> tuple[HeaderCredential, ...]:
        """Return the headers to set, each with the name of its credential."""
        if self.type is CredentialAuthType.CUSTOM_HEADERS:
            return self.headers
        header = self.name if self.type is CredentialAuthType.API_KEY else "Authorization"
        return (HeaderCredential(name=header or "", credential=self.credential or ""),)


class CredentialMatch(FrozenModel):
    """Requests that a binding is for. Every part must match."""

    schemes: tuple[str, ...] = ("https",)
    ports: tuple[int, ...] = ()
    """Ports besides those of the schemes; 80 and 443 stand for the port of the scheme."""
    hosts: tuple[str, ...]
    """Host names; `*.` stands for exactly one label."""
    methods: tuple[str, ...] = ()
    """Methods in upper case; none match every method."""
    paths: tuple[str, ...] = ()
    """Paths without query; `*` stands for any characters. None match every path."""


class VaultCredential(FrozenModel):
    """A secret value with its name."""

    name: str
    value: str = Field(repr=False)
    revision: int
    """Revision of the vault that set the value."""


class CredentialBinding(FrozenModel):
    """Puts credentials into the requests that match."""

    name: str
    match: CredentialMatch
    auth: CredentialAuth
    revision: int
    """Revision of the vault that set the binding."""


class CredentialVault(FrozenModel):
    """Credentials and bindings of a sandbox."""

    revision: int
    credentials: tuple[VaultCredential, ...] = ()
    bindings: tuple[CredentialBinding, ...] = ()


class VaultContent(FrozenModel):
    """Stored content of a sandbox's credential vault, with the certificate authority of the sandbox."""

    authority_key: str = Field(repr=False)
    """Private key of the sandbox's certificate authority, PEM."""
    authority_certificate: str
    """Its certificate, PEM."""
    vault: CredentialVault | None = None
    """`None` until credentials are written."""
    last_revision: int = 0
    """Revision of the last change, which a vault that is deleted and created again continues."""
    retired_values: tuple[str, ...] = Field(default=(), repr=False)
    """Values that were replaced or deleted; servers may still send them back, so they stay masked."""

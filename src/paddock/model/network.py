"""Connections of sandboxes to the network, as recorded."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from paddock.model.sandbox import FrozenModel


class ConnectionRefusal(StrEnum):
    """Why a connection was refused or closed by the server."""

    NO_RULE = "no_rule"
    """No rule of the sandbox's policy matches."""
    DENY_RULE = "deny_rule"
    """A deny rule of the sandbox's policy matches."""
    BOUND = "bound"
    """The bound of the server or the tenant does not allow the target."""
    PRIVATE_ADDRESS = "private_address"
    """The address is private, local, a metadata service or Paddock itself."""
    SERVER_NAME = "server_name"
    """The TLS server name differs from the requested name."""
    LIMIT = "limit"
    """A limit of connections, new connections or bytes is reached."""
    UNRESOLVED = "unresolved"
    """The name has no address."""
    UNREACHABLE = "unreachable"
    """The target did not accept the connection."""
    POLICY_CHANGED = "policy_changed"
    """The policy was changed, and no longer allows the open connection."""
    VAULT = "vault"
    """The credential vault refused a request, or the connection was closed for a new binding."""


class ConnectionRecord(FrozenModel):
    """One connection of a sandbox, recorded when it ended or was refused."""

    id: str
    sandbox: str
    tenant: str
    run: str | None = None
    session: str | None = None
    started_at: AwareDatetime
    duration: float = Field(ge=0)
    """Seconds."""
    name: str | None = None
    """Requested host name; `None` if the program asked for an address."""
    address: str | None = None
    """Address that the server connected to, or that the program asked for; `None` if none was looked up."""
    port: int
    server_name: str | None = None
    """Server name of the TLS handshake (SNI)."""
    sent: int = 0
    """Bytes from the sandbox to the target."""
    received: int = 0
    allowed: bool
    rule: str | None = None
    """Rule that allowed or denied it."""
    refusal: ConnectionRefusal | None = None
    message: str | None = None
    """What happened and what to do, if it was refused or failed."""

    @property
    def host(self) -> str:
        return self.name or self.address or "?"


class ByteCountScope(StrEnum):
    """The owner of counted bytes."""

    SANDBOX = "sandbox"
    TENANT = "tenant"


class ByteCount(FrozenModel):
    """Bytes that a sandbox or the sandboxes of a tenant sent and received since a time."""

    scope: ByteCountScope
    owner: str
    started_at: AwareDatetime
    bytes: int

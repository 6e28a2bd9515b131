"""Tokens and clients of sign-ins at MCP servers. Both are encrypted before they are stored."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime

from paddock.model.sandbox import FrozenModel

ClientAuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class OAuthClient(FrozenModel):
    """A client of one authorization server, by which Paddock identifies itself there."""

    client_id: str
    client_secret: str | None = None
    private_key: str | None = None
    auth_method: ClientAuthMethod = "none"
    redirect_uri: str | None = None
    """Address for which it was registered; None for one that was registered by hand."""
    secret_expires_at: AwareDatetime | None = None


class OAuthEndpoints(FrozenModel):
    """Where tokens of an authorization server are obtained and revoked."""

    issuer: str
    token: str
    revocation: str | None = None


class McpToken(FrozenModel):
    """Tokens of one user or tenant for one MCP server."""

    endpoints: OAuthEndpoints
    client: OAuthClient
    resource: str
    """The MCP server that the tokens are for."""
    access_token: str
    refresh_token: str | None = None
    scopes: tuple[str, ...] = ()
    """Granted scopes."""
    requested: tuple[str, ...] = ()
    """Requested scopes."""
    account: str | None = None
    """Name of the account at the authorization server, if it gave one."""
    obtained_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    signed_in_at: AwareDatetime


class SealedMcpToken(FrozenModel):
    """An encrypted token with its subject and its server."""

    tenant: str
    subject: str
    """Empty for the whole tenant."""
    server: str
    url: str
    """Address of the MCP server."""
    issuer: str
    sealed: bytes


class SealedOAuthClient(FrozenModel):
    """An encrypted registration at an authorization server."""

    tenant: str
    issuer: str
    redirect_uri: str
    sealed: bytes

"""Tokens and registrations: encrypted in the database, decrypted in memory while they are used."""

from __future__ import annotations

import json
from dataclasses import dataclass

import structlog
from pydantic import ValidationError

from paddock.auth.sealing import SecretSealer, UnsealError
from paddock.mcp.oauth.sign_in_rules import is_shared_sign_in
from paddock.model.mcp import McpServer
from paddock.model.mcp_oauth import McpToken, OAuthClient, SealedMcpToken, SealedOAuthClient
from paddock.store.mcp_oauth_store import McpOAuthStore

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TokenKey:
    """The subject of a token, and its server. A server with another address is another server."""

    tenant: str
    subject: str
    """Empty for the whole tenant."""
    server: str
    url: str


def token_key(server: McpServer, tenant: str, caller: str) -> TokenKey:
    """Return the key of the token that a caller uses at a server."""
    return TokenKey(tenant, "" if is_shared_sign_in(server) else caller, server.name, server.url or "")


class TokenVault:
    """All tokens and registrations. One that cannot be decrypted counts as missing."""

    def __init__(self, store: McpOAuthStore, sealer: SecretSealer) -> None:
        self._store = store
        self._sealer = sealer
        self._sealed: dict[TokenKey, SealedMcpToken] = {}
        self._tokens: dict[TokenKey, McpToken] = {}
        self._clients: dict[tuple[str, str, str], SealedOAuthClient] = {}

    async def load(self) -> None:
        """Read what is stored."""
        for token in await self._store.list_tokens():
            self._sealed[TokenKey(token.tenant, token.subject, token.server, token.url)] = token
        for client in await self._store.list_clients():
            self._clients[client.tenant, client.issuer, client.redirect_uri] = client

    def find(self, key: TokenKey) -> McpToken | None:
        """Return a token."""
        if (token := self._tokens.get(key)) is not None:
            return token
        if (sealed := self._sealed.get(key)) is None:
            return None
        try:
            plain = self._sealer.unseal(_token_owner(key, sealed.issuer), sealed.sealed)
            token = self._tokens[key] = McpToken.model_validate_json(plain)
        except (UnsealError, ValidationError):
            log.warning("cannot decrypt token for MCP server; vault.key was replaced", server=key.server)
            del self._sealed[key]
            return None
        return token

    async def put(self, key: TokenKey, token: McpToken) -> None:
        """Store a token in place of an earlier one, and then use it."""
        issuer = token.endpoints.issuer
        content = self._sealer.seal(_token_owner(key, issuer), token.model_dump_json().encode())
        sealed = SealedMcpToken(
            tenant=key.tenant, subject=key.subject, server=key.server, url=key.url, issuer=issuer, sealed=content
        )
        # A rotated refresh token replaces one that is invalid by now, so it is used even if storing it fails.
        self._sealed[key], self._tokens[key] = sealed, token
        await self._store.put_token(sealed)

    async def delete(self, key: TokenKey) -> None:
        """Delete a token. Idempotent."""
        self._tokens.pop(key, None)
        self._sealed.pop(key, None)
        await self._store.delete_token(key.tenant, key.subject, key.server, key.url)

    def keys_of_server(self, tenant: str, server: str) -> list[TokenKey]:
        """Return the keys of all tokens of a tenant for a server."""
        return [key for key in self._sealed if (key.tenant, key.server) == (tenant, server)]

    def find_client(self, tenant: str, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """Return the registration at an authorization server."""
        sealed = self._clients.get((tenant, issuer, redirect_uri))
        if sealed is None:
            return None
        try:
            plain = self._sealer.unseal(_client_owner(tenant, issuer, redirect_uri), sealed.sealed)
            return OAuthClient.model_validate_json(plain)
        except (UnsealError, ValidationError):
            return None

    def client_issuer(self, tenant: str, redirect_uri: str) -> str | None:
        """Return the authorization server of the registration with a redirect address."""
        return next((each[1] for each in self._clients if (each[0], each[2]) == (tenant, redirect_uri)), None)

    async def put_client(self, tenant: str, issuer: str, redirect_uri: str, client: OAuthClient) -> None:
        """Store a registration in place of an earlier one."""
        content = self._sealer.seal(_client_owner(tenant, issuer, redirect_uri), client.model_dump_json().encode())
        sealed = SealedOAuthClient(tenant=tenant, issuer=issuer, redirect_uri=redirect_uri, sealed=content)
        await self._store.put_client(sealed)
        self._clients[tenant, issuer, redirect_uri] = sealed

    async def delete_client(self, tenant: str, issuer: str, redirect_uri: str) -> None:
        """Delete a registration, which the authorization server does not know any more. Idempotent."""
        self._clients.pop((tenant, issuer, redirect_uri), None)
        await self._store.delete_client(tenant, issuer, redirect_uri)


def _token_owner(key: TokenKey, issuer: str) -> str:
    return json.dumps(["mcp-token", key.tenant, key.subject, key.server, key.url, issuer])


def _client_owner(tenant: str, issuer: str, redirect_uri: str) -> str:
    return json.dumps(["mcp-oauth-client", tenant, issuer, redirect_uri])

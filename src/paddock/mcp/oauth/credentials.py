"""Adds tokens to requests, refreshes them, and says when a user must sign in."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from paddock.errors import McpSignInFailed, McpSignInNeeded, PaddockError, Unavailable
from paddock.mcp.declared_servers import SecretLookup
from paddock.mcp.oauth.challenge import BearerChallenge, parse_bearer_challenge
from paddock.mcp.oauth.discovery import DiscoveredServer, discover_authorization
from paddock.mcp.oauth.oauth_http import OAuthClients
from paddock.mcp.oauth.registration import bind_configured_client, configured_client
from paddock.mcp.oauth.sign_in_rules import uses_oauth
from paddock.mcp.oauth.token_requests import TokenRefused, request_token
from paddock.mcp.oauth.token_vault import TokenKey, TokenVault, token_key
from paddock.mcp.protocol import CallContext
from paddock.model.mcp import McpServer
from paddock.model.mcp_oauth import McpToken, OAuthEndpoints

EXPIRY_MARGIN = timedelta(seconds=30)
"""A token is refreshed this long before it expires."""
FRESH_SECONDS = timedelta(seconds=10)
"""A token that is refused so soon after it was issued is not refreshed again."""
CHALLENGE_SECONDS = 600.0
MAX_CHALLENGES = 10_000
_sent_token: ContextVar[str | None] = ContextVar("sent_token", default=None)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RecordedChallenge:
    """The last demand of a server, for the sign-in that follows it."""

    challenge: BearerChallenge
    at: float


class OAuthCredentials:
    """Tokens of all callers. Close it with `close`."""

    def __init__(self, vault: TokenVault, clients: OAuthClients, secrets: SecretLookup) -> None:
        self._vault = vault
        self._clients = clients
        self._secrets = secrets
        self._challenges: OrderedDict[TokenKey, RecordedChallenge] = OrderedDict()
        self._obtaining: dict[TokenKey, asyncio.Task[McpToken]] = {}

    async def headers(self, server: McpServer, context: CallContext) -> Mapping[str, str]:
        """Return the header with the caller's token; nothing if it has none. Raises `PaddockError`."""
        _sent_token.set(None)
        if not uses_oauth(server):
            return {}
        key = token_key(server, context.tenant, context.caller)
        token = self._vault.find(key)
        if token is None:
            return {}
        if token.expires_at is not None and token.expires_at - EXPIRY_MARGIN <= datetime.now(UTC):
            token = await self._renew(server, key, token)
        _sent_token.set(token.access_token)
        return {"Authorization": f"Bearer {token.access_token}"}

    async def on_challenge(
        self, server: McpServer, context: CallContext, status: int, www_authenticate: str | None
    ) -> bool:
        """Get a new token if possible, and return whether there is one. Raises `McpSignInNeeded` and others."""
        if not uses_oauth(server):
            return False
        challenge = parse_bearer_challenge(www_authenticate)
        key = token_key(server, context.tenant, context.caller)
        sent, token = _sent_token.get(), self._vault.find(key)
        if status == 403:
            if challenge.error != "insufficient_scope":
                return False
            return await self._step_up(server, key, token, challenge)
        self._record(key, challenge)
        if token is not None and token.access_token != sent:
            return True  # Another request has refreshed it meanwhile.
        if token is not None and token.obtained_at + FRESH_SECONDS > datetime.now(UTC):
            raise sign_in_needed(server, "it refuses the new token")
        if server.oauth is not None and server.oauth.grant == "client_credentials":
            await self._obtain(key, self._client_token(server, key, challenge))
            return True
        if token is None:
            raise sign_in_needed(server, "it wants a sign-in")
        await self._check_issuer(server, key, token, challenge)
        await self._renew(server, key, token)
        return True

    def recorded_challenge(self, key: TokenKey) -> BearerChallenge | None:
        """Return what the server demanded of the caller recently."""
        found = self._challenges.get(key)
        return found.challenge if found is not None and found.at + CHALLENGE_SECONDS > time.monotonic() else None

    def forget_challenge(self, key: TokenKey) -> None:
        self._challenges.pop(key, None)

    async def discover(self, server: McpServer, challenge: BearerChallenge) -> DiscoveredServer:
        """Find out how to sign in at a server. Raises `PaddockError`."""
        http = await self._clients.choose(server)
        issuer = None if server.oauth is None else server.oauth.issuer
        return await discover_authorization(http, server.url or "", challenge, issuer)

    async def close(self) -> None:
        """Wait for requests of tokens: the answer may have the only valid refresh token."""
        while self._obtaining:
            await asyncio.gather(*self._obtaining.values(), return_exceptions=True)

    async def _step_up(
        self, server: McpServer, key: TokenKey, token: McpToken | None, challenge: BearerChallenge
    ) -> bool:
        """Ask for more scopes, which a user must agree to."""
        requested = set() if token is None else {*token.requested, *token.scopes}
        if token is not None and set(challenge.scopes) <= requested:
            return False  # They were asked for already: another sign-in would change nothing.
        self._record(key, challenge)
        if server.oauth is not None and server.oauth.grant == "client_credentials":
            await self._obtain(key, self._client_token(server, key, challenge))
            return True
        raise sign_in_needed(server, f"it wants the further scopes {' '.join(challenge.scopes)[:300]}")

    async def _check_issuer(
        self, server: McpServer, key: TokenKey, token: McpToken, challenge: BearerChallenge
    ) -> None:
        """Raise `McpSignInNeeded` if the server has changed its authorization server: tokens of another are useless."""
        try:
            found = await self.discover(server, challenge)
        except PaddockError as error:
            log.info("cannot check authorization server of MCP server", server=server.name, error=error.message)
            return
        if found.authorization_server.issuer != token.endpoints.issuer:
            await self._vault.delete(key)
            raise sign_in_needed(server, "it has another authorization server than before")

    async def _renew(self, server: McpServer, key: TokenKey, token: McpToken) -> McpToken:
        """Return a token in place of one that has expired. Raises `McpSignInNeeded` and others."""
        if server.oauth is not None and server.oauth.grant == "client_credentials":
            challenge = self.recorded_challenge(key) or BearerChallenge(scopes=token.requested)
            return await self._obtain(key, self._client_token(server, key, challenge))
        if token.refresh_token is None:
            await self._vault.delete(key)
            raise sign_in_needed(server, "the sign-in has expired")
        return await self._obtain(key, self._refresh(server, key, token))

    async def _obtain(self, key: TokenKey, work: Coroutine[Any, Any, McpToken]) -> McpToken:
        """Run a request of a token once for all callers that wait for it; a caller that leaves does not end it."""
        task = self._obtaining.get(key)
        if task is None:
            task = self._obtaining[key] = asyncio.create_task(work, name=f"token for MCP server {key.server}")
            task.add_done_callback(lambda _: self._obtaining.pop(key, None))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            work.close()
        try:
            return await asyncio.shield(task)
        except Unavailable as error:
            # Not the MCP server is unavailable, and other callers may have valid tokens.
            raise McpSignInFailed(f"no token for the MCP server {key.server} can be had now: {error.message}") from None

    async def _refresh(self, server: McpServer, key: TokenKey, token: McpToken) -> McpToken:
        http = await self._clients.choose(server)
        grant = {"grant_type": "refresh_token", "refresh_token": token.refresh_token or ""}
        try:
            refreshed = await request_token(
                http, token.endpoints, token.client, token.resource, grant, token.requested, token
            )
        except TokenRefused as error:
            if self._vault.find(key) == token:
                await self._vault.delete(key)
            log.info("MCP sign-in has ended", server=server.name, error=error.error)
            raise sign_in_needed(server, f"the sign-in has ended ({error.error or 'refused'})") from None
        if self._vault.find(key) != token:
            raise sign_in_needed(server, "the sign-in was changed meanwhile")
        await self._vault.put(key, refreshed)
        return refreshed

    async def _client_token(self, server: McpServer, key: TokenKey, challenge: BearerChallenge) -> McpToken:
        """Get a token for the client itself."""
        found = await self.discover(server, challenge)
        client = configured_client(server, found.authorization_server, self._secrets)
        if client is None:
            raise McpSignInFailed(f"the MCP server {server.name} has no oauth.client_id")
        issuer = found.authorization_server.issuer
        await bind_configured_client(self._vault, key.tenant, server, client, issuer)
        scopes = requested_scopes(server, found, challenge, self._vault.find(key))
        grant = {"grant_type": "client_credentials"} | ({"scope": " ".join(scopes)} if scopes else {})
        http = await self._clients.choose(server)
        token = await request_token(http, token_endpoints(found), client, found.resource, grant, scopes)
        await self._vault.put(key, token)
        return token

    def _record(self, key: TokenKey, challenge: BearerChallenge) -> None:
        self._challenges.pop(key, None)
        self._challenges[key] = RecordedChallenge(challenge, time.monotonic())
        while len(self._challenges) > MAX_CHALLENGES:
            self._challenges.popitem(last=False)


def sign_in_needed(server: McpServer, reason: str) -> McpSignInNeeded:
    if server.oauth is not None and server.oauth.grant == "client_credentials":
        return McpSignInNeeded(f"the MCP server {server.name} cannot be used: {reason}; check its oauth settings")
    return McpSignInNeeded(
        f"the MCP server {server.name} cannot be used yet: {reason}. Sign in with `paddock mcp login {server.name}`, "
        "or with Connect in the console.",
        params={"server": server.name},
    )


def token_endpoints(found: DiscoveredServer) -> OAuthEndpoints:
    authorization = found.authorization_server
    return OAuthEndpoints(
        issuer=authorization.issuer,
        token=authorization.token_endpoint,
        revocation=authorization.revocation_endpoint,
    )


def requested_scopes(
    server: McpServer, found: DiscoveredServer, challenge: BearerChallenge, earlier: McpToken | None
) -> tuple[str, ...]:
    """Return the scopes to request: the scopes that the server demands, and the ones requested before."""
    configured = () if server.oauth is None else server.oauth.scopes
    before = () if earlier is None else earlier.requested
    wanted = dict.fromkeys((*configured, *before, *challenge.scopes))
    if not wanted:
        wanted = dict.fromkeys(found.scopes_supported or ())
    is_user = server.oauth is None or server.oauth.grant == "authorization_code"
    if wanted and is_user and "offline_access" in (found.authorization_server.scopes_supported or ()):
        wanted["offline_access"] = None
    return tuple(wanted)

"""Sign-ins of users at MCP servers: begin, answer of the authorization server, confirmation, end.

The answer comes to a public address, in any browser. Somebody could send the authorization address of their own sign-in
to another user, who then grants access to the wrong person. So a code is redeemed only after the person in the browser
has seen for whom, and has confirmed it.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlencode

import structlog
from yarl import URL

from paddock.auth.sealing import SecretSealer
from paddock.errors import Conflict, McpSignInFailed, PaddockError
from paddock.mcp.declared_servers import SecretLookup
from paddock.mcp.oauth.challenge import BearerChallenge, parse_bearer_challenge
from paddock.mcp.oauth.credentials import OAuthCredentials, requested_scopes, token_endpoints
from paddock.mcp.oauth.discovery import AuthorizationServer
from paddock.mcp.oauth.oauth_http import OAuthClients
from paddock.mcp.oauth.pending_sign_ins import LIFETIME, PendingSignIn, PendingSignIns
from paddock.mcp.oauth.public_address import PublicAddress
from paddock.mcp.oauth.registration import choose_client
from paddock.mcp.oauth.sign_in_rules import uses_oauth
from paddock.mcp.oauth.token_requests import TokenRefused, make_code_verifier, request_token, revoke_token
from paddock.mcp.oauth.token_vault import TokenKey, TokenVault, token_key
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.headers import ACCEPT_BOTH
from paddock.model.mcp import McpServer
from paddock.model.mcp_oauth import McpToken
from paddock.store.mcp_oauth_store import McpOAuthStore

MAX_CODE = 8192
MAX_ATTEMPTS = 10_000
_PROBE = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """The last sign-in of a user at a server."""

    id: str
    state: Literal["pending", "done", "failed"]
    error: str | None = None
    started_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """A sign-in that has begun."""

    pending: PendingSignIn
    authorization_url: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Facts that the person in the browser must confirm."""

    secret: str
    pending: PendingSignIn


class McpSignIns:
    """Sign-ins of all users, and the credentials that come of them."""

    def __init__(
        self,
        vault: TokenVault,
        clients: OAuthClients,
        credentials: OAuthCredentials,
        secrets: SecretLookup,
        pending: PendingSignIns,
    ) -> None:
        self.credentials = credentials
        self._vault = vault
        self._clients = clients
        self._secrets = secrets
        self._pending = pending
        self._attempts: OrderedDict[TokenKey, SignInAttempt] = OrderedDict()

    @classmethod
    async def open(
        cls,
        store: McpOAuthStore,
        sealer: SecretSealer,
        clients: OAuthClients,
        secrets: SecretLookup,
    ) -> McpSignIns:
        vault = TokenVault(store, sealer)
        await vault.load()
        return cls(vault, clients, OAuthCredentials(vault, clients, secrets), secrets, PendingSignIns())

    async def close(self) -> None:
        await self.credentials.close()

    async def start(self, server: McpServer, context: CallContext, address: PublicAddress) -> StartedSignIn:
        """Begin a sign-in; the user continues in a browser. Raises `PaddockError`."""
        if not uses_oauth(server):
            raise Conflict(
                f"The MCP server {server.name} needs no sign-in; it is neither of the kind internet nor has it oauth."
            )
        if server.oauth is not None and server.oauth.grant == "client_credentials":
            raise Conflict(
                f"Paddock signs in at the MCP server {server.name} itself (oauth.grant: client_credentials)."
            )
        key = token_key(server, context.tenant, context.caller)
        http = await self._clients.choose(server)
        challenge = self.credentials.recorded_challenge(key) or await self._probe(server)
        found = await self.credentials.discover(server, challenge)
        authorization = found.authorization_server
        _check_usable(authorization)
        client = await choose_client(http, self._vault, context.tenant, server, authorization, address, self._secrets)
        earlier = self._vault.find(key)
        if earlier is not None and earlier.endpoints.issuer != authorization.issuer:
            earlier = None
        verifier, code_challenge = make_code_verifier()
        pending = PendingSignIn(
            id=secrets.token_urlsafe(12),
            key=key,
            user=context.names[0] if context.names else context.caller,
            server=server,
            endpoints=token_endpoints(found),
            requires_issuer=authorization.authorization_response_iss_parameter_supported,
            client=client,
            resource=found.resource,
            scopes=requested_scopes(server, found, challenge, earlier),
            redirect_uri=address.redirect_uri,
            verifier=verifier,
            started_at=time.monotonic(),
        )
        state = self._pending.add(pending)
        self._note(key, SignInAttempt(pending.id, "pending"))
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": address.redirect_uri,
            "state": state,
            "code_challenge": code_challenge,
            "code_challenge_method": "S256",
            "resource": found.resource,
        }
        if pending.scopes:
            query["scope"] = " ".join(pending.scopes)
        if "offline_access" in pending.scopes:
            query["prompt"] = "consent"
        return StartedSignIn(pending, _with_query(authorization.authorization_endpoint or "", query))

    def receive(self, state: str, code: str | None, issuer: str | None, error: str | None) -> Confirmation:
        """Take the answer of the authorization server. Raises `McpSignInFailed`."""
        pending = self._pending.take(state)
        try:
            _check_answer(pending, code, issuer, error)
            return Confirmation(self._pending.add(replace(pending, code=code)), pending)
        except PaddockError as failure:
            self._note(pending.key, SignInAttempt(pending.id, "failed", failure.message))
            raise

    async def confirm(self, secret: str) -> PendingSignIn:
        """Redeem the code of a confirmed sign-in. Raises `PaddockError`."""
        pending = self._pending.take(secret)
        try:
            if pending.code is None:
                raise McpSignInFailed("the authorization server has not answered yet; begin the sign-in again")
            http = await self._clients.choose(pending.server)
            grant = {
                "grant_type": "authorization_code",
                "code": pending.code,
                "redirect_uri": pending.redirect_uri,
                "code_verifier": pending.verifier,
            }
            token = await request_token(
                http, pending.endpoints, pending.client, pending.resource, grant, pending.scopes
            )
        except PaddockError as failure:
            self._note(pending.key, SignInAttempt(pending.id, "failed", failure.message))
            if isinstance(failure, TokenRefused) and failure.error in ("invalid_client", "unauthorized_client"):
                # The authorization server has forgotten the client: the next sign-in registers a new one.
                await self._vault.delete_client(pending.key.tenant, pending.endpoints.issuer, pending.redirect_uri)
            raise
        await self._vault.put(pending.key, token)
        self.credentials.forget_challenge(pending.key)
        self._note(pending.key, SignInAttempt(pending.id, "done"))
        log.info("signed in at MCP server", server=pending.server.name, tenant=pending.key.tenant)
        return pending

    def refuse(self, secret: str) -> PendingSignIn:
        """Drop a sign-in that the person in the browser does not confirm. Raises `McpSignInFailed`."""
        pending = self._pending.take(secret)
        self._note(pending.key, SignInAttempt(pending.id, "failed", "the sign-in was not confirmed in the browser"))
        return pending

    def find(self, server: McpServer, context: CallContext) -> tuple[McpToken | None, SignInAttempt | None]:
        """Return the token that a caller uses, and the last sign-in."""
        key = token_key(server, context.tenant, context.caller)
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.state == "pending" and attempt.started_at + LIFETIME < time.monotonic():
            attempt = replace(attempt, state="failed", error="nobody has signed in within ten minutes")
        return (self._vault.find(key) if uses_oauth(server) else None), attempt

    async def sign_out(self, server: McpServer, context: CallContext) -> bool:
        """Delete a caller's token, and revoke it; return whether the authorization server has revoked it."""
        key = token_key(server, context.tenant, context.caller)
        return await self._remove(server, key)

    async def forget_server(self, tenant: str, server: McpServer) -> None:
        """Delete and revoke all tokens for a server that is removed."""
        for key in self._vault.keys_of_server(tenant, server.name):
            await self._remove(server, key)

    async def _remove(self, server: McpServer, key: TokenKey) -> bool:
        token = self._vault.find(key)
        self._pending.drop(key)
        self._attempts.pop(key, None)
        self.credentials.forget_challenge(key)
        await self._vault.delete(key)
        if token is None:
            return False
        try:
            return await revoke_token(await self._clients.choose(server), token)
        except PaddockError as error:
            log.info("could not revoke token for MCP server", server=server.name, error=error.message)
            return False

    async def _probe(self, server: McpServer) -> BearerChallenge:
        """Ask the server without a token, and return its demand."""
        http = await self._clients.choose(server)
        answer = await http.post_json(server.url or "", _PROBE, {"Accept": ACCEPT_BOTH})
        return parse_bearer_challenge(answer.challenge if answer.status == 401 else None)

    def _note(self, key: TokenKey, attempt: SignInAttempt) -> None:
        earlier = self._attempts.get(key)
        if attempt.state != "pending" and earlier is not None and earlier.id != attempt.id:
            return
        self._attempts.pop(key, None)
        self._attempts[key] = attempt
        while len(self._attempts) > MAX_ATTEMPTS:
            self._attempts.popitem(last=False)


def _check_usable(authorization: AuthorizationServer) -> None:
    """Raise `McpSignInFailed` if users cannot sign in safely."""
    if authorization.authorization_endpoint is None:
        raise McpSignInFailed(f"the authorization server {authorization.issuer[:200]} has no page for sign-ins")
    if "S256" not in authorization.code_challenge_methods_supported:
        raise McpSignInFailed(
            f"the authorization server {authorization.issuer[:200]} does not announce PKCE with S256, which protects "
            "sign-ins; it cannot be used"
        )


def _check_answer(pending: PendingSignIn, code: str | None, issuer: str | None, error: str | None) -> None:
    """Raise `McpSignInFailed` unless the answer comes from the right authorization server and has a code."""
    expected = pending.endpoints.issuer
    if issuer is not None and issuer != expected:
        # Nothing of such an answer is shown: it may be an attack.
        raise McpSignInFailed("the answer comes from another authorization server than the sign-in was sent to")
    if issuer is None and pending.requires_issuer:
        raise McpSignInFailed("the answer does not name its authorization server, although it should")
    if error is not None:
        shown = "".join(letter for letter in error if letter.isprintable())[:100]
        raise McpSignInFailed(f"the authorization server refused the sign-in: {shown}")
    if not code or len(code) > MAX_CODE:
        raise McpSignInFailed("the answer of the authorization server has no code")


def _with_query(address: str, query: dict[str, str]) -> str:
    """Return an address with further parameters; parameters of these names in the address itself are dropped."""
    url = URL(address)
    kept = [(name, value) for name, value in url.query.items() if name not in query]
    return f"{url.with_query(None).with_fragment(None)}?{urlencode([*kept, *query.items()])}"

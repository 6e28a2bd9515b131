"""Requests to the token endpoint: redeem a code, refresh, get a token for the client itself, revoke."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus

from paddock.errors import McpSignInFailed, Unavailable
from paddock.mcp.oauth.challenge import parse_scopes
from paddock.mcp.oauth.client_assertion import ASSERTION_TYPE, sign_client_assertion
from paddock.mcp.oauth.oauth_http import OAuthHttp
from paddock.mcp.oauth.registration import describe_error
from paddock.model.mcp_oauth import McpToken, OAuthClient, OAuthEndpoints

MAX_TOKEN = 16 * 1024
MAX_LIFETIME = 10 * 365 * 86400


class TokenRefused(McpSignInFailed):
    """The authorization server refused to issue a token."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        """The error code, such as `invalid_grant`."""


def make_code_verifier() -> tuple[str, str]:
    """Return a new verifier and its challenge for the method S256 (RFC 7636)."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    return verifier, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


async def request_token(
    http: OAuthHttp,
    endpoints: OAuthEndpoints,
    client: OAuthClient,
    resource: str,
    grant: Mapping[str, str],
    requested: tuple[str, ...],
    earlier: McpToken | None = None,
) -> McpToken:
    """Ask for a token. `earlier` is the one that is refreshed. Raises `TokenRefused` and other `PaddockError`."""
    fields, headers = _with_authentication({**grant, "resource": resource}, client, endpoints)
    answer = await http.post_form(endpoints.token, fields, headers)
    document = answer.document or {}
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(f"the authorization server {endpoints.issuer[:200]} answers with status {answer.status}")
    if answer.status != 200:
        error = document.get("error")
        raise TokenRefused(
            error if isinstance(error, str) else "",
            f"the authorization server {endpoints.issuer[:200]} issues no token: "
            f"{describe_error(answer.document, answer.status)}",
        )
    return _read_token(document, endpoints, client, resource, requested, earlier)


async def revoke_token(http: OAuthHttp, token: McpToken) -> bool:
    """Revoke a token (RFC 7009); return whether the authorization server did."""
    if token.endpoints.revocation is None:
        return False
    revoked = {"token": token.access_token, "token_type_hint": "access_token"}
    if token.refresh_token is not None:
        revoked = {"token": token.refresh_token, "token_type_hint": "refresh_token"}
    fields, headers = _with_authentication(revoked, token.client, token.endpoints)
    return (await http.post_form(token.endpoints.revocation, fields, headers)).status == 200


def _with_authentication(
    fields: dict[str, str], client: OAuthClient, endpoints: OAuthEndpoints
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields and headers of a request in which the client authenticates."""
    if client.auth_method == "private_key_jwt":
        assertion = sign_client_assertion(client.client_id, endpoints.issuer, client.private_key or "")
        identity = {"client_id": client.client_id, "client_assertion_type": ASSERTION_TYPE}
        return {**fields, **identity, "client_assertion": assertion}, {}
    if client.auth_method == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        return fields, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    identity = {"client_id": client.client_id}
    if client.auth_method == "client_secret_post" and client.client_secret is not None:
        identity["client_secret"] = client.client_secret
    return {**fields, **identity}, {}


def _read_token(
    document: Mapping[str, Any],
    endpoints: OAuthEndpoints,
    client: OAuthClient,
    resource: str,
    requested: tuple[str, ...],
    earlier: McpToken | None,
) -> McpToken:
    access, refresh = document.get("access_token"), document.get("refresh_token")
    kind = document.get("token_type")
    if not _is_token(access) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise McpSignInFailed(
            f"the authorization server {endpoints.issuer[:200]} answers with no token of the type Bearer"
        )
    now = datetime.now(UTC)
    granted = parse_scopes(document.get("scope"))
    return McpToken(
        endpoints=endpoints,
        client=client,
        resource=resource,
        access_token=access,
        # Without a new refresh token, the earlier one stays valid.
        refresh_token=refresh if _is_token(refresh) else (earlier.refresh_token if earlier else None),
        scopes=granted or (earlier.scopes if earlier else requested),
        requested=requested,
        account=_account(document.get("id_token")) or (earlier.account if earlier else None),
        obtained_at=now,
        expires_at=_expiry(document.get("expires_in"), now),
        signed_in_at=earlier.signed_in_at if earlier else now,
    )


def _is_token(value: object) -> bool:
    """Return whether a value is a token that can be sent in a header."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TOKEN and value.isascii() and value.isprintable()


def _expiry(value: object, now: datetime) -> datetime | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 15:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_LIFETIME:
        return None
    return now + timedelta(seconds=value)


def _account(id_token: object) -> str | None:
    """Return the name of the account in an id token, which came directly from the authorization server."""
    if not isinstance(id_token, str) or id_token.count(".") != 2 or len(id_token) > MAX_TOKEN:
        return None
    payload = id_token.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(claims, dict):
        return None
    for name in ("email", "preferred_username", "name", "sub"):
        if isinstance(value := claims.get(name), str) and value.isprintable() and value:
            return value[:200]
    return None

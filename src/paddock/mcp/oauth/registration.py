"""Choose the client by which Paddock identifies itself at an authorization server; register one if needed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from paddock.errors import McpSignInFailed
from paddock.mcp.declared_servers import SecretLookup, fill_secrets
from paddock.mcp.oauth.discovery import AuthorizationServer
from paddock.mcp.oauth.oauth_http import OAuthHttp
from paddock.mcp.oauth.public_address import PublicAddress, client_metadata
from paddock.mcp.oauth.token_vault import TokenVault
from paddock.model.mcp import McpServer
from paddock.model.mcp_oauth import ClientAuthMethod, OAuthClient

MAX_TEXT = 4096


def configured_client(
    server: McpServer, authorization: AuthorizationServer, secrets: SecretLookup
) -> OAuthClient | None:
    """Return the client of a server's declaration."""
    oauth = server.oauth
    if oauth is None or oauth.client_id is None:
        return None

    def filled(field: str, value: str) -> str:
        return fill_secrets(f"mcp.{server.name}.oauth.{field}", value, secrets).strip()

    client_id = filled("client_id", oauth.client_id)
    if oauth.private_key is not None:
        key = filled("private_key", oauth.private_key)
        return OAuthClient(client_id=client_id, private_key=key, auth_method="private_key_jwt")
    secret = None if oauth.client_secret is None else filled("client_secret", oauth.client_secret)
    return OAuthClient(
        client_id=client_id, client_secret=secret, auth_method=choose_auth_method(authorization, secret is not None)
    )


def choose_auth_method(authorization: AuthorizationServer, has_secret: bool) -> ClientAuthMethod:
    """Return how a client authenticates."""
    if not has_secret:
        return "none"
    supported = authorization.token_endpoint_auth_methods_supported
    return "client_secret_post" if supported is not None and _prefers_post(supported) else "client_secret_basic"


def _prefers_post(supported: tuple[str, ...]) -> bool:
    return "client_secret_post" in supported and "client_secret_basic" not in supported


async def choose_client(
    http: OAuthHttp,
    vault: TokenVault,
    tenant: str,
    server: McpServer,
    authorization: AuthorizationServer,
    address: PublicAddress,
    secrets: SecretLookup,
) -> OAuthClient:
    """Return the client for a sign-in: declared, by metadata document, or registered. Raises `PaddockError`."""
    client = configured_client(server, authorization, secrets)
    if client is not None:
        await bind_configured_client(vault, tenant, server, client, authorization.issuer)
        return client
    if authorization.client_id_metadata_document_supported and address.client_document is not None:
        return OAuthClient(client_id=address.client_document, redirect_uri=address.redirect_uri)
    known = vault.find_client(tenant, authorization.issuer, address.redirect_uri)
    if known is not None and (known.secret_expires_at is None or known.secret_expires_at > datetime.now(UTC)):
        return known
    if authorization.registration_endpoint is None:
        raise McpSignInFailed(
            f"the authorization server {authorization.issuer[:200]} registers no clients by itself; register Paddock "
            f"there by hand, with the redirect address {address.redirect_uri}, and put the id into oauth.client_id of "
            f"the MCP server {server.name}"
        )
    client = await register_client(http, authorization, address)
    await vault.put_client(tenant, authorization.issuer, address.redirect_uri, client)
    return client


async def bind_configured_client(
    vault: TokenVault, tenant: str, server: McpServer, client: OAuthClient, issuer: str
) -> None:
    """Remember the authorization server of a client that was registered by hand. Raises `McpSignInFailed` for another.

    Otherwise an MCP server could name an authorization server that collects the secrets of clients.
    """
    if server.oauth is not None and server.oauth.issuer is not None:
        return
    marker = f"configured:{client.client_id}@{server.url}"
    bound = vault.client_issuer(tenant, marker)
    if bound is None:
        await vault.put_client(tenant, issuer, marker, OAuthClient(client_id=client.client_id))
    elif bound != issuer:
        raise McpSignInFailed(
            f"the MCP server {server.name} now names the authorization server {issuer[:200]}, but its client is "
            f"registered at {bound[:200]}; set oauth.issuer if the change is right"
        )


async def register_client(http: OAuthHttp, authorization: AuthorizationServer, address: PublicAddress) -> OAuthClient:
    """Register a client (RFC 7591). Raises `PaddockError`."""
    metadata = client_metadata(address)
    supported = authorization.token_endpoint_auth_methods_supported
    wanted: ClientAuthMethod = "none"
    if supported is not None and "none" not in supported:
        wanted = "client_secret_post" if _prefers_post(supported) else "client_secret_basic"
        metadata["token_endpoint_auth_method"] = wanted
    answer = await http.post_json(authorization.registration_endpoint or "", metadata)
    document = answer.document or {}
    client_id = document.get("client_id")
    if answer.status not in (200, 201) or not _is_text(client_id):
        raise McpSignInFailed(
            f"the authorization server {authorization.issuer[:200]} refuses to register Paddock: "
            f"{describe_error(answer.document, answer.status)}"
        )
    secret = document.get("client_secret")
    return OAuthClient(
        client_id=client_id,
        client_secret=secret if _is_text(secret) else None,
        auth_method=_registered_method(document, wanted, _is_text(secret)),
        redirect_uri=address.redirect_uri,
        secret_expires_at=_expiry(document.get("client_secret_expires_at")),
    )


def _registered_method(document: Mapping[str, Any], wanted: ClientAuthMethod, has_secret: bool) -> ClientAuthMethod:
    given = document.get("token_endpoint_auth_method")
    if not has_secret:
        return "none"
    if given in ("none", "client_secret_basic", "client_secret_post"):
        return given  # type: ignore[no-any-return]
    return wanted if wanted != "none" else "client_secret_basic"


def describe_error(document: Mapping[str, Any] | None, status: int) -> str:
    """Return the reason of an OAuth error, for messages."""
    fields = document or {}
    parts = [fields[name] for name in ("error", "error_description") if isinstance(fields.get(name), str)]
    text = ": ".join(part for part in parts if part)
    return "".join(letter if letter.isprintable() else " " for letter in text)[:300] or f"status {status}"


def _expiry(value: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(value, UTC) if isinstance(value, int) and value > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT

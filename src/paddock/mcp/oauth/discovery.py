"""Find the authorization server of an MCP server, and check its metadata (RFC 9728, RFC 8414, OpenID Discovery)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError
from yarl import URL

from paddock.errors import McpSignInFailed
from paddock.mcp.oauth.challenge import BearerChallenge
from paddock.mcp.oauth.oauth_http import OAuthHttp

MAX_AUTHORIZATION_SERVERS = 20
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_OAUTH_PATH = "/.well-known/oauth-authorization-server"
_OPENID_PATH = "/.well-known/openid-configuration"


class ResourceMetadata(BaseModel):
    """Metadata of a protected resource; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None


class AuthorizationServer(BaseModel):
    """Metadata of an authorization server; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    grant_types_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """How to sign in at an MCP server."""

    resource: str
    """The identifier of the MCP server for `resource` (RFC 8707)."""
    scopes_supported: tuple[str, ...] | None
    authorization_server: AuthorizationServer


async def discover_authorization(
    http: OAuthHttp, server_url: str, challenge: BearerChallenge, issuer: str | None = None
) -> DiscoveredServer:
    """Find out how to sign in at an MCP server. `issuer` is the only accepted one. Raises `PaddockError`."""
    found = await _resource_metadata(http, server_url, challenge)
    if found is None:
        # Servers of the revision 2025-03-26 have no such metadata, and are their own authorization server.
        origin = str(URL(server_url).origin())
        _check_issuer_is_expected((origin,), issuer)
        authorization = await _find_authorization_server(http, origin) or _default_authorization_server(origin)
        return DiscoveredServer(canonical_url(server_url), None, authorization)
    servers = found.authorization_servers[:MAX_AUTHORIZATION_SERVERS]
    chosen = _check_issuer_is_expected(servers, issuer)
    return DiscoveredServer(found.resource, found.scopes_supported, await _authorization_server(http, chosen))


def _check_issuer_is_expected(issuers: Sequence[str], expected: str | None) -> str:
    """Return the expected issuer, or the first one. Raises `McpSignInFailed`."""
    if expected is not None and expected not in issuers:
        raise McpSignInFailed(
            f"the MCP server names another authorization server than {expected}, for which its client is registered; "
            "see oauth.issuer and oauth.client_id"
        )
    return expected or issuers[0]


async def _resource_metadata(http: OAuthHttp, server_url: str, challenge: BearerChallenge) -> ResourceMetadata | None:
    """Return the metadata of the MCP server; None if it has none."""
    if challenge.resource_metadata is not None:
        addresses = [challenge.resource_metadata]
    else:
        addresses = well_known_addresses(server_url, _RESOURCE_PATH)
    for address in addresses:
        answer = await http.get_document(address)
        if answer.status == 200 and answer.document is not None:
            try:
                metadata = ResourceMetadata.model_validate_json(_as_json(answer.document))
            except ValidationError as error:
                raise McpSignInFailed(f"the metadata of the MCP server is invalid: {_problem(error)}") from None
            if not metadata.authorization_servers:
                raise McpSignInFailed("the metadata of the MCP server names no authorization server")
            if not covers_resource(metadata.resource, server_url):
                raise McpSignInFailed(
                    f"the metadata of the MCP server is for another resource, {metadata.resource[:200]!r}; "
                    "a token for it is not requested"
                )
            return metadata
        if challenge.resource_metadata is not None:
            raise McpSignInFailed(f"the metadata of the MCP server cannot be read: status {answer.status}")
    return None


async def _authorization_server(http: OAuthHttp, issuer: str) -> AuthorizationServer:
    """Return the metadata of an authorization server. Raises `McpSignInFailed`."""
    found = await _find_authorization_server(http, issuer)
    if found is None:
        raise McpSignInFailed(f"the authorization server {issuer[:200]} has no metadata")
    return found


async def _find_authorization_server(http: OAuthHttp, issuer: str) -> AuthorizationServer | None:
    """Return the metadata of an authorization server. Raises `McpSignInFailed` if it is not that of the issuer."""
    http.check_address(issuer)
    for address in metadata_addresses(issuer):
        answer = await http.get_document(address)
        if answer.status != 200 or answer.document is None:
            continue
        try:
            metadata = AuthorizationServer.model_validate_json(_as_json(answer.document))
        except ValidationError as error:
            raise McpSignInFailed(f"the metadata of the authorization server is invalid: {_problem(error)}") from None
        if metadata.issuer != issuer:
            raise McpSignInFailed(
                f"the metadata of the authorization server {issuer[:200]} is that of another issuer, "
                f"{metadata.issuer[:200]!r}; it is not used"
            )
        for endpoint in (
            metadata.authorization_endpoint,
            metadata.token_endpoint,
            metadata.registration_endpoint,
            metadata.revocation_endpoint,
        ):
            if endpoint is not None:
                http.check_address(endpoint)
        return metadata
    return None


def _default_authorization_server(origin: str) -> AuthorizationServer:
    """Return the endpoints that the revision 2025-03-26 prescribes to servers without metadata."""
    return AuthorizationServer(
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
        code_challenge_methods_supported=("S256",),  # That revision demands PKCE of all servers.
    )


def metadata_addresses(issuer: str) -> list[str]:
    """Return the addresses at which an authorization server may have its metadata, in order."""
    path = URL(issuer, encoded=True).raw_path.rstrip("/")
    if not path:
        return [_with_path(issuer, _OAUTH_PATH), _with_path(issuer, _OPENID_PATH)]
    return [
        _with_path(issuer, _OAUTH_PATH + path),
        _with_path(issuer, _OPENID_PATH + path),
        _with_path(issuer, path + _OPENID_PATH),
    ]


def well_known_addresses(server_url: str, name: str) -> list[str]:
    """Return the addresses at which a server may have a document: for its path first, then for its host."""
    path = URL(server_url, encoded=True).raw_path.rstrip("/")
    return (
        [_with_path(server_url, name + path), _with_path(server_url, name)] if path else [_with_path(server_url, name)]
    )


def canonical_url(server_url: str) -> str:
    """Return the identifier of a server: scheme and host in lower case, no fragment, no slash at the end."""
    url = URL(server_url, encoded=True).with_fragment(None)
    return str(url.with_query(None)).rstrip("/")


def covers_resource(resource: str, server_url: str) -> bool:
    """Return whether a resource identifier stands for a server: the same origin, and its path or one above."""
    try:
        claimed, server = URL(resource, encoded=True), URL(server_url, encoded=True)
        if claimed.origin() != server.origin() or claimed.user is not None or "#" in resource:
            return False
    except ValueError:
        return False
    return f"{server.raw_path.rstrip('/')}/".startswith(f"{claimed.raw_path.rstrip('/')}/")


def _with_path(address: str, path: str) -> str:
    url = URL(address, encoded=True)
    return f"{url.scheme}://{url.raw_authority}{path}"


def _as_json(document: object) -> str:
    # Strict validation of Python objects would refuse lists for tuples.
    return json.dumps(document)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]

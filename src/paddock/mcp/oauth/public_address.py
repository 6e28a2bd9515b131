"""Where authorization servers and browsers find this server, and what it says of itself."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CLIENT_NAME = "Paddock"
CALLBACK_PATH = "/v1/mcp/oauth/callback"
CLIENT_DOCUMENT_PATH = "/v1/mcp/oauth/client.json"


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """The address under which browsers reach this server."""

    url: str

    @property
    def redirect_uri(self) -> str:
        return f"{self.url.rstrip('/')}{CALLBACK_PATH}"

    @property
    def client_document(self) -> str | None:
        """Address of the client's metadata document; None if no authorization server could fetch it."""
        if not self.url.startswith("https://") or _is_local(self.url):
            return None
        return f"{self.url.rstrip('/')}{CLIENT_DOCUMENT_PATH}"


def client_metadata(address: PublicAddress) -> dict[str, Any]:
    """Return what an authorization server should know of this client."""
    return {
        "client_name": CLIENT_NAME,
        "redirect_uris": [address.redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native" if _is_local(address.url) else "web",
    }


def client_document(address: PublicAddress) -> dict[str, Any] | None:
    """Return the client's metadata document. Its address is the client's id."""
    if address.client_document is None:
        return None
    return {"client_id": address.client_document, "client_uri": address.url, **client_metadata(address)}


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host

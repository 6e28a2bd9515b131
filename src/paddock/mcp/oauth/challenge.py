"""Read the header `WWW-Authenticate` of refused requests (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEADER = 8192
MAX_SCOPES = 100
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"  # noqa: S105
_PART = re.compile(
    rf'[\s,]*(?:(?P<name>{_TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]+))|(?P<scheme>{_TOKEN}))'
)


@dataclass(frozen=True, slots=True)
class BearerChallenge:
    """A server's requirements of a token."""

    resource_metadata: str | None = None
    """Address of the metadata of the protected resource."""
    scopes: tuple[str, ...] = ()
    error: str | None = None


def parse_bearer_challenge(header: str | None) -> BearerChallenge:
    """Return the challenge of the scheme `Bearer`; an empty one if there is none. Never fails."""
    fields: dict[str, str] = {}
    scheme, position, text = "", 0, (header or "")[:MAX_HEADER]
    while found := _PART.match(text, position):
        position = found.end()
        if found["scheme"] is not None:
            scheme = found["scheme"].lower()
        elif scheme == "bearer":
            value = found["plain"] if found["quoted"] is None else re.sub(r"\\(.)", r"\1", found["quoted"])
            fields.setdefault(found["name"].lower(), value)
    return BearerChallenge(
        resource_metadata=fields.get("resource_metadata") or None,
        scopes=parse_scopes(fields.get("scope")),
        error=fields.get("error") or None,
    )


def parse_scopes(text: object) -> tuple[str, ...]:
    """Return the scopes of a list separated by spaces, each once."""
    return tuple(dict.fromkeys(text.split()))[:MAX_SCOPES] if isinstance(text, str) else ()

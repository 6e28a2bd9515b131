"""Hints about a provider's settings, for errors of the provider."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from paddock.config.llm import ProviderConfig

_KEY_REFUSAL = re.compile(
    r"provider (?P<provider>\S+) refused the key it is configured with \(status \d+\); "
    r"check (?P<key_setting>\S+) and restart the server"
)


@dataclass(frozen=True)
class KeyRefusal:
    """A provider that refused its key, and the variable or setting that holds the key."""

    provider: str
    key_setting: str


def key_refusal_message(provider: str, status: int, advice: str) -> str:
    """Return the error of a refused key; `advice` is from `provider_key_advice`."""
    return f"provider {provider} refused the key it is configured with (status {status}); {advice}"


def parse_key_refusal(error: str) -> KeyRefusal | None:
    """Find the message of a refused key in an error, which may quote it."""
    found = _KEY_REFUSAL.search(error)
    return KeyRefusal(found["provider"], found["key_setting"]) if found else None


def provider_address_advice(settings: ProviderConfig) -> str:
    """Return a hint to check the configured address and its likely mistake; empty for the vendor's default address."""
    address = settings.base_url
    if address is None:
        return ""
    versioned = re.search(r"/v\d", urlsplit(address).path) is not None
    advice = f"; check its address {address}"
    if settings.kind == "openai" and not versioned:
        advice += ", which usually ends in /v1"
    elif settings.kind in ("anthropic", "gemini") and versioned:
        advice += ", which usually has no version at its end"
    return advice


def provider_key_advice(provider: str, found_in: str | None) -> str:
    """Return where to set the right key. `found_in` is the environment variable the provider was discovered by."""
    return f"check {found_in or f'llm.providers.{provider}.key'} and restart the server"

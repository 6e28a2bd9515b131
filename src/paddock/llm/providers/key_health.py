"""Track which providers have refused their configured key, and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime


class ProviderKeyHealth:
    """Acceptance and refusal of each provider's key, as seen in its responses."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._refused: dict[str, datetime] = {}
        self._refused_listing: dict[str, datetime] = {}
        self._accepted: set[str] = set()

    def record_refusal(self, provider: str, status: int) -> None:
        """Record a model request that was refused with 401 or 403.

        A 403 from a provider that has accepted its key before is about a single model.
        """
        if status != 403 or provider not in self._accepted:
            self._refused[provider] = self._now()

    def record_acceptance(self, provider: str) -> None:
        """Record an answer of a model, which proves the key."""
        if provider not in self._accepted or provider in self._refused or provider in self._refused_listing:
            self._refused.pop(provider, None)
            self._refused_listing.pop(provider, None)
            self._accepted.add(provider)

    def record_listing_refusal(self, provider: str) -> None:
        """Record a refusal to list models for this key."""
        self._refused_listing[provider] = self._now()

    def record_listing_success(self, provider: str) -> None:
        """Record a listing of models. Some providers list without a valid key, so a refused request still counts."""
        self._refused_listing.pop(provider, None)

    def refused_at(self, provider: str) -> datetime | None:
        """Return when the provider last refused its key, unless it has accepted it since."""
        return self._refused.get(provider) or self._refused_listing.get(provider)

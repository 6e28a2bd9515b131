"""Which providers have refused the key they are configured with, and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime


class KeyStates:
    """What the answers of each provider said about its key."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._refused: dict[str, datetime] = {}
        self._refused_listing: dict[str, datetime] = {}
        self._accepted: set[str] = set()

    def refused(self, provider: str, status: int) -> None:
        """A request to a model was refused with 401 or 403.

        A 403 from a provider that has accepted its key before is about a single model.
        """
        if status != 403 or provider not in self._accepted:
            self._refused[provider] = self._now()

    def accepted(self, provider: str) -> None:
        """A model answered, so the key is good."""
        if provider not in self._accepted or provider in self._refused or provider in self._refused_listing:
            self._refused.pop(provider, None)
            self._refused_listing.pop(provider, None)
            self._accepted.add(provider)

    def listing_refused(self, provider: str) -> None:
        """The provider refused to list its models for this key."""
        self._refused_listing[provider] = self._now()

    def listing_accepted(self, provider: str) -> None:
        """The provider listed its models. Some do so for everybody, so a refused request still counts."""
        self._refused_listing.pop(provider, None)

    def refused_at(self, provider: str) -> datetime | None:
        """When the provider last refused its key, unless it has accepted it since."""
        return self._refused.get(provider) or self._refused_listing.get(provider)

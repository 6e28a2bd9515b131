"""Makes providers of every kind, ours and those of plugins, from the entry points `paddock.providers`.

An entry point's name is the kind that `llm.providers` asks for; it leads to a function like those below.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError
from paddock.llm.providers.base import Provider
from paddock.llm.providers.http import make_http
from paddock.llm.providers.replay import Source, make_replay
from paddock.llm.providers.script import make_script
from paddock.llm.wire.client import Client

GROUP = "paddock.providers"


@dataclass(frozen=True)
class Around:
    """What providers may use."""

    client: Client
    """For requests over HTTP, with connections that are kept."""
    source: Source
    """Exchanges that were archived."""


def make_provider(name: str, settings: ProviderConfig, around: Around) -> Provider:
    """A provider of the configured kind. Raises `ConfigError`, which names the known kinds if there is no such one."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if settings.kind not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"llm.providers.{name}: there is no kind {settings.kind!r}; known are: {known}")
    try:
        make = found[settings.kind].load()
    except ImportError as error:
        raise ConfigError(f"llm.providers.{name}: the kind {settings.kind!r} cannot be loaded: {error}") from error
    provider: Provider = make(name, settings, around)
    return provider


def http(name: str, settings: ProviderConfig, around: Around) -> Provider:
    return make_http(name, settings, around.client)


def script(name: str, settings: ProviderConfig, around: Around) -> Provider:
    return make_script(name, settings)


def replay(name: str, settings: ProviderConfig, around: Around) -> Provider:
    return make_replay(name, settings, around.source)


def litellm(name: str, settings: ProviderConfig, around: Around) -> Provider:
    from paddock.llm.providers.litellm import LiteLLMProvider  # Its library takes seconds to import.

    return LiteLLMProvider(name, settings)

"""Create providers of every kind, bundled or from plugins, through the entry points `paddock.providers`.

An entry point's name is the `kind` in `llm.providers`; it refers to a function such as the ones below.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

from paddock.config.llm import ProviderConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import ConfigError
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.providers.base import Provider
from paddock.llm.providers.http_providers import new_http_provider
from paddock.llm.providers.replay_provider import RecordingSource, new_replay_provider
from paddock.llm.providers.script_provider import new_script_provider
from paddock.llm.wire.http_client import HttpClient

ENTRY_POINT_GROUP = "paddock.providers"


@dataclass(frozen=True)
class ProviderDependencies:
    """Shared objects that providers are created with."""

    client: HttpClient
    """HTTP client with a connection pool."""
    recordings: RecordingSource
    """Archived exchanges, for replay."""
    script_workers: OffloadWorkerPool | None = None
    """Processes that choose turns of scripts whose conditions take long."""
    proxies: OutgoingProxies = OutgoingProxies()
    """Proxies of the server's own connections."""


def make_provider(name: str, settings: ProviderConfig, dependencies: ProviderDependencies) -> Provider:
    """Create a provider of the configured kind. Raises `ConfigError`, which lists the known kinds."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if settings.kind not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"llm.providers.{name}: there is no kind {settings.kind!r}; known are: {known}")
    try:
        make = found[settings.kind].load()
    except ImportError as error:
        raise ConfigError(f"llm.providers.{name}: the kind {settings.kind!r} cannot be loaded: {error}") from error
    provider: Provider = make(name, settings, dependencies)
    return provider


def make_http_provider(name: str, settings: ProviderConfig, dependencies: ProviderDependencies) -> Provider:
    return new_http_provider(name, settings, dependencies.client, dependencies.proxies)


def make_script_provider(name: str, settings: ProviderConfig, dependencies: ProviderDependencies) -> Provider:
    return new_script_provider(name, settings, dependencies.script_workers)


def make_replay_provider(name: str, settings: ProviderConfig, dependencies: ProviderDependencies) -> Provider:
    return new_replay_provider(name, settings, dependencies.recordings)


def make_litellm_provider(name: str, settings: ProviderConfig, dependencies: ProviderDependencies) -> Provider:
    from paddock.llm.providers.litellm_provider import LiteLLMProvider  # LiteLLM takes seconds to import.

    return LiteLLMProvider(name, settings)

"""Builds the parts of a server from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from paddock.auth.api_keys import ApiKeys
from paddock.config.llm import LlmConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.config.schema import Config
from paddock.errors import ConfigError
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.archive.replay_source import ArchiveRecordingSource
from paddock.llm.gateway.gateway import ModelGateway
from paddock.llm.gateway.model_routes import ModelRoutes
from paddock.llm.metering.budgets import KeyBudgets
from paddock.llm.metering.key_authentication import KeyAuthenticator
from paddock.llm.metering.prices import PriceList
from paddock.llm.metering.rate_limits import RateLimits as ModelLimits
from paddock.llm.metering.span_export import make_span_exporter
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.providers.factory import ProviderDependencies, make_provider
from paddock.llm.wire.base import Handler, HttpRequest, ResponseWriter
from paddock.llm.wire.http_client import HttpClient
from paddock.mcp.declared_servers import SecretLookup
from paddock.model.sandbox import SandboxLimits
from paddock.sandbox.base import SandboxBackend
from paddock.sandbox.images import ImageStore, default_recipe_directories
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.store.database import Store
from paddock.telemetry.event_loop_monitor import EventLoopMonitor

BACKEND_ENTRY_POINTS = "paddock.backends"


async def open_model_gateway(
    settings: LlmConfig,
    store: Store,
    keys: ApiKeys,
    held: AsyncExitStack,
    *,
    default_model: str | None = None,
    secrets: Iterable[str] = (),
    proxies: OutgoingProxies | None = None,
) -> ModelGateway:
    """Open the LLM gateway; its resources are closed with `held`. `secrets` are redacted in the archive."""
    proxies = proxies or OutgoingProxies()
    client = HttpClient(ca_bundle=proxies.ca_bundle)
    held.push_async_callback(client.close)
    ledger = await UsageLedger.open(store)
    held.push_async_callback(ledger.close)
    workers = OffloadWorkerPool()
    held.push_async_callback(workers.close)
    archive = await ExchangeArchive.open(
        store,
        settings.archive,
        [*collect_provider_secrets(settings), *secrets],
        separate_process=True,
        workers=workers,
    )
    held.push_async_callback(archive.close)
    tracer = make_span_exporter(settings.tracing, settings.providers, proxies=proxies)
    if tracer is not None:
        held.push_async_callback(asyncio.to_thread, tracer.close)
    script_workers = OffloadWorkerPool(1)
    held.push_async_callback(script_workers.close)
    provider_dependencies = ProviderDependencies(client, ArchiveRecordingSource(archive), script_workers, proxies)
    providers = {name: make_provider(name, each, provider_dependencies) for name, each in settings.providers.items()}
    for provider in providers.values():
        held.push_async_callback(provider.close)
    gateway = ModelGateway(
        settings=settings,
        routes=ModelRoutes(settings, providers, script_workers),
        authenticator=KeyAuthenticator(keys),
        limits=ModelLimits(settings.tenant_limits),
        budgets=KeyBudgets(ledger),
        ledger=ledger,
        prices=PriceList.load(settings.prices),
        archive=archive,
        span_exporter=tracer,
        default_model=default_model,
        workers=workers,
    )
    held.push_async_callback(gateway.catalog.close)
    return gateway


def measure_event_loop_time(handler: Handler, loop: EventLoopMonitor) -> Handler:
    """Wrap a handler so that each of its steps is measured."""

    async def handle(request: HttpRequest, reply: ResponseWriter) -> None:
        await loop.measure(cast(Coroutine[Any, Any, None], handler(request, reply)), f"{request.method} {request.path}")

    return handle


def secret_lookup(config: Config) -> SecretLookup:
    """Return a function that finds a secret by name."""

    def find(name: str) -> str | None:
        found = config.runs.secrets.get(name)
        return None if found is None else found.get_secret_value()

    return find


def collect_provider_secrets(settings: LlmConfig) -> list[str]:
    """Return secrets that must never be stored or shown."""
    headers = [each.headers for each in settings.providers.values()] + [
        each.headers for each in settings.models.values()
    ]
    secrets = [value for some in headers for value in some.values()]
    secrets += [provider.key for provider in settings.providers.values() if provider.key is not None]
    return [text for secret in secrets if (text := secret.get_secret_value())]


def create_image_store(config: Config) -> ImageStore:
    settings = config.images
    recipes = default_recipe_directories(settings.recipes)
    return ImageStore(config.data / "images", recipes, settings.mirror, settings.aliases)


def create_sandbox_backend(config: Config) -> SandboxBackend:
    """Create the configured backend. Raises `ConfigError` naming the known ones if it is unknown."""
    found = {entry.name: entry for entry in entry_points(group=BACKEND_ENTRY_POINTS)}
    name = config.sandboxes.default_backend
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"sandboxes.default_backend: there is no backend {name!r}; known are: {known}")
    kind = _load_backend(found[name])
    if issubclass(kind, LocalBackend):
        return kind(local_backend_settings(config))
    backend: SandboxBackend = kind(config)
    return backend


def local_backend_settings(config: Config) -> LocalBackendSettings:
    local = config.local
    config.shared.mkdir(parents=True, exist_ok=True)
    return LocalBackendSettings(
        data=config.data,
        shared=config.shared,
        uid_base=local.uid_base,
        uid_count=local.uid_count,
        uid_ranges=local.uid_ranges,
        cgroup_parent=str(local.cgroup_parent) if local.cgroup_parent else None,
        start_timeout=config.sandboxes.start_timeout,
        defaults=SandboxLimits(**config.sandboxes.limits.model_dump()),
        filter_system_calls=not local.unsafe_disable_seccomp,
    )


def _load_backend(entry: EntryPoint) -> type[Any]:
    try:
        kind: type[Any] = entry.load()
    except ImportError as error:
        raise ConfigError(f"the backend {entry.name!r} cannot be loaded: {error}") from error
    return kind

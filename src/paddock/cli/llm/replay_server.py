"""A minimal model gateway that answers from one recording, without sandboxes or a data directory."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.output.errors import CliError

if TYPE_CHECKING:
    from paddock.config.llm import LlmConfig, ModelConfig
    from paddock.config.outgoing import OutgoingConfig
    from paddock.llm.gateway.gateway import ModelGateway
    from paddock.model.exchanges import ExchangeSummary

REPLAY_HOST = "127.0.0.1"
RECORDING_PROVIDER = "recording"
_LIVE_PROVIDER = "live"
_TENANT = "default"
_CONNECTIONS = 1000
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True)
class ReplayEndpoint:
    """Address and key of a running replay server."""

    url: str
    key: str
    gateway: ModelGateway

    async def summarize_requests(self) -> str:
        """Return a sentence with the numbers of replayed, live and unanswered requests."""
        from paddock.model.exchanges import ExchangeFilters

        replayed = live = misses = 0
        for row in await self.gateway.ledger.query(_TENANT, {"provider"}, None, None, {}):
            if row.provider == RECORDING_PROVIDER:
                replayed = row.tally.requests
            else:
                live += row.tally.requests
        await self.gateway.archive.flush()
        cursor: str | None = None
        while True:
            page, cursor = await self.gateway.archive.list_exchanges(
                _TENANT, ExchangeFilters(outcome="failed"), cursor=cursor, limit=500
            )
            misses += sum(_is_miss(summary) for summary in page)
            if cursor is None:
                break
        parts = [f"{replayed - misses:,} answered from the recording"]
        parts += [f"{live:,} sent to a model and recorded"] if live else []
        parts += [f"{misses:,} without an answer in the recording"] if misses else []
        return ", ".join(parts)


def build_replay_config(
    file: Path, *, match: str, timing: str, miss: str | None, configured: LlmConfig | None
) -> LlmConfig:
    """Return settings with which a recording answers for every model. Raises `CliError` if `miss` is unknown."""
    from paddock.config.llm import LlmConfig, ModelConfig, ProviderConfig

    recording: dict[str, Any] = {"kind": "replay", "file": file, "match": match, "timing": timing, "retries": 0}
    providers: dict[str, ProviderConfig] = {}
    models: dict[str, ModelConfig] = {"*": ModelConfig(provider=RECORDING_PROVIDER)}
    if miss is not None and configured is not None:
        live = _resolve_model(configured, miss)
        providers[_LIVE_PROVIDER] = configured.providers[live.provider]
        # Under a name that no client requests, so that all requests go to the recording first.
        name = f"{_LIVE_PROVIDER}:{miss}"
        models[name] = live.model_copy(update={"provider": _LIVE_PROVIDER, "fallbacks": ()})
        recording["miss"] = name
    providers[RECORDING_PROVIDER] = ProviderConfig.model_validate(recording)
    return LlmConfig(providers=providers, models=models)


def _resolve_model(settings: LlmConfig, requested: str) -> ModelConfig:
    """Return the configured model for a name, with the provider's own model name."""
    from paddock.config.llm import ModelConfig, match_model_pattern

    for name in sorted(settings.models, key=lambda name: (name != requested, -len(name))):
        model = settings.models[name]
        part = requested if name == requested else match_model_pattern(name, requested)
        if part is not None:
            return model.model_copy(update={"model": model.provider_model_name(requested, part)})
    provider, slash, rest = requested.partition("/")
    if slash and rest and provider in settings.providers:
        return ModelConfig(provider=provider, model=rest)
    known = ", ".join(settings.models) or "none"
    raise CliError(f"--miss: model {requested} is not configured; configured models: {known}")


@asynccontextmanager
async def serve_recording(
    settings: LlmConfig, port: int, on_failure: Callable[[str], None], outgoing: OutgoingConfig | None = None
) -> AsyncIterator[ReplayEndpoint]:
    """Serve on the loopback address. `on_failure` receives the reason of each unanswered request.

    `outgoing` applies to models that are asked for missing answers.
    """
    from paddock.app.components import open_model_gateway
    from paddock.app.listeners import listener_url, open_listener
    from paddock.auth.api_keys import ApiKeys
    from paddock.config.schema import LogConfig
    from paddock.errors import Unavailable
    from paddock.llm.wire.http_server import HttpServer
    from paddock.model.keys import Scope
    from paddock.store.database import Store
    from paddock.store.key_store import ApiKeyStore
    from paddock.telemetry.logging_setup import configure_logging

    configure_logging(LogConfig(level="error"))
    async with AsyncExitStack() as held:
        directory = held.enter_context(tempfile.TemporaryDirectory(prefix="paddock-replay-"))
        store = await held.enter_async_context(await Store.open(Path(directory) / "paddock.db"))
        keys = ApiKeys(ApiKeyStore(store))
        proxies = None if outgoing is None else outgoing.proxies(os.environ)
        gateway = await open_model_gateway(settings, store, keys, held, proxies=proxies)
        server = HttpServer(gateway, max_body=settings.max_body, max_connections=_CONNECTIONS)
        watch = asyncio.create_task(_report_failures(gateway, on_failure))
        held.push_async_callback(_finish_reporting, gateway, watch)
        held.push_async_callback(server.close, _CLOSE_SECONDS)
        try:
            listener = open_listener(REPLAY_HOST, port)
        except Unavailable:
            raise CliError(f"port {port} on {REPLAY_HOST} is in use", hint="choose another with --port") from None
        url = listener_url(listener, REPLAY_HOST)
        await server.listen(listener)
        _, secret = await keys.create("replay", _TENANT, [Scope.LLM_USE], None)
        yield ReplayEndpoint(url, secret, gateway)


async def _report_failures(gateway: ModelGateway, on_failure: Callable[[str], None]) -> None:
    async for summary in gateway.archive.follow_written(_TENANT, 0):
        # Errors that are part of the recording are not reported.
        if _is_miss(summary) or summary.outcome == "refused" or _failed_live(summary):
            on_failure(summary.error or f"{summary.model}: {summary.outcome} with status {summary.status}")


def _is_miss(summary: ExchangeSummary) -> bool:
    return summary.provider == RECORDING_PROVIDER and (summary.error or "").startswith(f"replay {RECORDING_PROVIDER}:")


def _failed_live(summary: ExchangeSummary) -> bool:
    return summary.provider == _LIVE_PROVIDER and summary.outcome in ("failed", "cut")


async def _finish_reporting(gateway: ModelGateway, watch: asyncio.Task[None]) -> None:
    """Report the last failures before the end."""
    await gateway.archive.flush()
    gateway.archive.stop_following()
    await watch

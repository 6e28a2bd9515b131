"""A small Paddock that has one recording and nothing else: no sandboxes, no data directory of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.failure import CliError

if TYPE_CHECKING:
    from paddock.config.llm import LlmConfig, ModelConfig
    from paddock.llm.gateway import Gateway
    from paddock.model.exchanges import Summary

HOST = "127.0.0.1"
RECORDING = "recording"
_LIVE = "live"
_TENANT = "default"
_CONNECTIONS = 1000
_GRACE = 1.0


@dataclass(frozen=True)
class Endpoint:
    """Where a recording answers, and with which key."""

    url: str
    key: str
    gateway: Gateway

    async def tally(self) -> str:
        """What was asked of it so far, in a sentence."""
        from paddock.model.exchanges import Filters

        told = live = missed = 0
        for row in await self.gateway.ledger.query(_TENANT, {"provider"}, None, None, {}):
            if row.provider == RECORDING:
                told = row.tally.requests
            else:
                live += row.tally.requests
        await self.gateway.archive.flush()
        cursor: str | None = None
        while True:
            page, cursor = await self.gateway.archive.list(_TENANT, Filters(outcome="failed"), cursor=cursor, limit=500)
            missed += sum(_is_miss(summary) for summary in page)
            if cursor is None:
                break
        said = [f"{told - missed:,} answered from the recording"]
        said += [f"{live:,} asked of a model and recorded"] if live else []
        said += [f"{missed:,} that it has no answer to"] if missed else []
        return ", ".join(said)


def settings_for(file: Path, *, match: str, timing: str, miss: str | None, configured: LlmConfig | None) -> LlmConfig:
    """Settings by which a recording answers for every model. Raises `CliError` for a `miss` that is not configured."""
    from paddock.config.llm import LlmConfig, ModelConfig, ProviderConfig

    recording: dict[str, Any] = {"kind": "replay", "file": file, "match": match, "timing": timing, "retries": 0}
    providers: dict[str, ProviderConfig] = {}
    models: dict[str, ModelConfig] = {"*": ModelConfig(provider=RECORDING)}
    if miss is not None and configured is not None:
        live = _resolve(configured, miss)
        providers[_LIVE] = configured.providers[live.provider]
        # Under a name that nobody asks for, so that all requests go to the recording first.
        name = f"{_LIVE}:{miss}"
        models[name] = live.model_copy(update={"provider": _LIVE, "fallbacks": ()})
        recording["miss"] = name
    providers[RECORDING] = ProviderConfig.model_validate(recording)
    return LlmConfig(providers=providers, models=models)


def _resolve(settings: LlmConfig, wanted: str) -> ModelConfig:
    """What stands behind a model's name, with the provider's own name for it."""
    from paddock.config.llm import ModelConfig, matched_part

    for name in sorted(settings.models, key=lambda name: (name != wanted, -len(name))):
        model = settings.models[name]
        part = wanted if name == wanted else matched_part(name, wanted)
        if part is not None:
            return model.model_copy(update={"model": model.provider_model(wanted, part)})
    provider, slash, rest = wanted.partition("/")
    if slash and rest and provider in settings.providers:
        return ModelConfig(provider=provider, model=rest)
    known = ", ".join(settings.models) or "none"
    raise CliError(f"--miss: there is no model {wanted} in the configuration; there is: {known}")


@asynccontextmanager
async def serve(settings: LlmConfig, port: int, on_failure: Callable[[str], None]) -> AsyncIterator[Endpoint]:
    """Serve on this machine's loopback address. `on_failure` is told why a request was not answered."""
    from paddock.app import address_of, listen, open_gateway
    from paddock.auth.keys import Keys
    from paddock.config.schema import LogConfig
    from paddock.errors import Unavailable
    from paddock.llm.wire.server import Door
    from paddock.model.keys import Scope
    from paddock.store.database import Store
    from paddock.store.keys import KeyStore
    from paddock.telemetry.logging import configure_logging

    configure_logging(LogConfig(level="error"))
    async with AsyncExitStack() as held:
        directory = held.enter_context(tempfile.TemporaryDirectory(prefix="paddock-replay-"))
        store = await held.enter_async_context(await Store.open(Path(directory) / "paddock.db"))
        keys = Keys(KeyStore(store))
        gateway = await open_gateway(settings, store, keys, held)
        door = Door(gateway, max_body=settings.max_body, max_connections=_CONNECTIONS)
        watch = asyncio.create_task(_watch(gateway, on_failure))
        held.push_async_callback(_ended, gateway, watch)
        held.push_async_callback(door.close, _GRACE)
        try:
            listener = listen(HOST, port)
        except Unavailable:
            raise CliError(f"port {port} of {HOST} is taken", hint="choose another with --port") from None
        url = address_of(listener, HOST)
        await door.listen(listener)
        _, secret = await keys.create("replay", _TENANT, [Scope.LLM_USE], None)
        yield Endpoint(url, secret, gateway)


async def _watch(gateway: Gateway, on_failure: Callable[[str], None]) -> None:
    async for summary in gateway.archive.follow(_TENANT, 0):
        # What failed when it was recorded fails again, and that is as it should be.
        if _is_miss(summary) or summary.outcome == "refused" or _failed_live(summary):
            on_failure(summary.error or f"{summary.model}: {summary.outcome} with status {summary.status}")


def _is_miss(summary: Summary) -> bool:
    return summary.provider == RECORDING and (summary.error or "").startswith(f"replay {RECORDING}:")


def _failed_live(summary: Summary) -> bool:
    return summary.provider == _LIVE and summary.outcome in ("failed", "cut")


async def _ended(gateway: Gateway, watch: asyncio.Task[None]) -> None:
    """Let the last failure be told before the end."""
    await gateway.archive.flush()
    gateway.archive.stop_following()
    await watch

"""Scripts that answer in place of a model, each for a single run.

A run without a model asks for `script-RUN`, where RUN is its id. Scripts are kept in memory only: the run manager adds
them again after a restart, before sandboxes send requests.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.config.llm import ModelConfig, ProviderConfig
from paddock.errors import ConfigError, InvalidInput
from paddock.llm.exchange import ModelCaller
from paddock.llm.providers.base import Provider, ProviderRequest
from paddock.llm.providers.circuit_breaker import CircuitBreaker
from paddock.llm.wire.base import UpstreamResponse

if TYPE_CHECKING:
    from paddock.llm.offload.worker_pool import OffloadWorkerPool
    from paddock.llm.providers.script_provider import ScriptProvider
    from paddock.llm.scripted_model.script_schema import ModelScript

SCRIPT_MODEL_PREFIX = "script-"
RUN_SCRIPT_PROVIDER = "script of a run"
"""Name of all run scripts as providers and in usage; one name per run would fill every list of models."""


def script_model_name(run_id: str) -> str:
    """Return the model name that is answered by the script of a run."""
    return SCRIPT_MODEL_PREFIX + run_id


class RunScriptProvider(Provider):
    """Answers one run. The script is parsed on the first request, because that can take long."""

    kind = "script"

    def __init__(self, text: str, workers: OffloadWorkerPool | None = None) -> None:
        from paddock.llm.formats.registry import FORMATS

        super().__init__(RUN_SCRIPT_PROVIDER, tuple(FORMATS))
        self.text = text
        self._workers = workers
        self._reading: asyncio.Future[ScriptProvider] | None = None

    async def send(self, request: ProviderRequest) -> UpstreamResponse:
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._make_provider))
        # A cancelled request must not cancel the parsing that other requests wait for.
        return await (await asyncio.shield(self._reading)).send(request)

    def _make_provider(self) -> ScriptProvider:
        from paddock.llm.providers.script_provider import ScriptProvider

        return ScriptProvider(RUN_SCRIPT_PROVIDER, _parse_script(self.text), workers=self._workers)


@dataclass(frozen=True, slots=True)
class ModelRunScript:
    """The script of one run, with the parts of a model route."""

    tenant: str | None
    provider: RunScriptProvider
    circuit: CircuitBreaker
    provider_settings: ProviderConfig
    settings: ModelConfig


class RunScripts:
    """The scripts of all active runs."""

    def __init__(self, workers: OffloadWorkerPool | None = None) -> None:
        self._scripts: dict[str, ModelRunScript] = {}
        self._workers = workers

    def add(self, run_id: str, text: str, tenant: str | None = None) -> None:
        """Add the script of a run. Cheap, and without effect if the same script is there already.

        With a tenant, keys of other tenants that name the run get no answer. The text is validated on first use.
        """
        known = self._scripts.get(run_id)
        if known is None or known.tenant != tenant or known.provider.text != text:
            settings = ProviderConfig(kind="script", file=Path(f"{script_model_name(run_id)}.yaml"))
            model = ModelConfig(provider=RUN_SCRIPT_PROVIDER)
            provider = RunScriptProvider(text, self._workers)
            self._scripts[run_id] = ModelRunScript(tenant, provider, CircuitBreaker(), settings, model)

    def remove(self, run_id: str) -> None:
        """Remove the script of a run; idempotent."""
        self._scripts.pop(run_id, None)

    def find(self, model: str, caller: ModelCaller | None) -> ModelRunScript | None:
        """Return the script with this model name, if the caller is its run."""
        if caller is None or caller.run is None or model != SCRIPT_MODEL_PREFIX + caller.run:
            return None
        script = self._scripts.get(caller.run)
        return script if script is not None and script.tenant in (None, caller.tenant) else None

    def is_run_script_pending(self, model: str, caller: ModelCaller | None) -> bool:
        """Return whether a run asks for its own script before it was added, as after a server start."""
        if caller is None or caller.run is None or model != SCRIPT_MODEL_PREFIX + caller.run:
            return False
        return caller.run not in self._scripts


def _parse_script(text: str) -> ModelScript:
    from paddock.llm.scripted_model.script_loader import parse_script

    try:
        return parse_script(text, Path("script"))
    except ConfigError as error:
        raise InvalidInput(error.message) from None

"""Resolve model names to providers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from paddock.config.llm import LlmConfig, ModelConfig, ProviderConfig, match_model_pattern
from paddock.config.provider_discovery import key_variable_for_model
from paddock.errors import InvalidInput, NotFound, Unavailable
from paddock.llm.demo import has_only_demo_model, is_demo_provider
from paddock.llm.exchange import ModelCaller
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.providers.base import Provider
from paddock.llm.providers.circuit_breaker import CircuitBreaker
from paddock.llm.providers.key_health import ProviderKeyHealth
from paddock.llm.providers.run_scripts import RUN_SCRIPT_PROVIDER, RunScripts, script_model_name
from paddock.llm.providers.troubleshooting import provider_key_advice
from paddock.llm.wire.base import Headers

_MAX_NAMED = 20
"""Maximum number of models listed in an error."""
_MAX_CIRCUITS = 1000
"""Upper bound, because patterns let clients invent model names."""


class ModelNotFound(NotFound):
    """There is no such model."""

    code = "MODEL_NOT_FOUND"


def pattern_model_error(name: str) -> InvalidInput:
    """Return the error for a request with a pattern as its model."""
    return InvalidInput(
        f"model: {name[:200]!r} is a pattern, not a model; use one of the models it matches (`paddock llm list`)"
    )


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The provider and settings of one name in `llm.models`."""

    name: str
    provider: Provider
    circuit: CircuitBreaker
    provider_settings: ProviderConfig
    settings: ModelConfig
    headers: Headers
    model: str
    """The provider's name of the model."""

    @property
    def passes_unchanged(self) -> bool:
        """True if no field of the request is set or removed."""
        return not (self.settings.defaults or self.settings.overrides)


class ModelRoutes:
    """All configured models, their providers and circuit breakers."""

    def __init__(
        self, settings: LlmConfig, providers: Mapping[str, Provider], script_workers: OffloadWorkerPool | None = None
    ) -> None:
        self._settings = settings
        self.providers = providers
        self.key_health = ProviderKeyHealth()
        self.answering_providers: set[str] = set()
        """Providers with an answer since they were last found unreachable."""
        self.run_scripts = RunScripts(script_workers)
        """Scripts that answer one run each."""
        self.list_names: Callable[[], Iterable[str]] = lambda: settings.models
        """Returns names for errors; the catalog replaces patterns with the models that providers list."""
        self._circuits: OrderedDict[tuple[str, str], CircuitBreaker] = OrderedDict()
        """By provider and model: a failing model must not block the other models of its provider."""
        self._exact_routes: dict[str, ModelRoute] = {}
        patterns = [name for name in settings.models if "*" in name]
        self._patterns = sorted(patterns, key=lambda name: (-len(name), name))
        for name, model in settings.models.items():
            if "*" not in name:
                self._exact_routes[name] = self._make_route(name, model, name, name)

    def find_run_script(self, caller: ModelCaller | None) -> str | None:
        """Return the model name of the script of the caller's run, if there is one."""
        own = script_model_name(caller.run) if caller is not None and caller.run is not None else None
        return own if own and self.run_scripts.find(own, caller) else None

    def resolve(self, requested: str, caller: ModelCaller | None = None) -> ModelRoute:
        """Resolve a name: exact, the script of the caller's run, the longest matching pattern, or `PROVIDER/MODEL`.

        The last form needs `llm.direct`.

        Raises `InvalidInput` for a name with a `*`, `ModelNotFound` with the known models, and `Unavailable` for a run
        script that was not added yet.
        """
        exact = self._exact_routes.get(requested)
        if exact is not None:
            return exact
        script = self.run_scripts.find(requested, caller)
        if script is not None:
            return ModelRoute(
                name=RUN_SCRIPT_PROVIDER,
                provider=script.provider,
                circuit=script.circuit,
                provider_settings=script.provider_settings,
                settings=script.settings,
                headers=[],
                model=requested,
            )
        if self.run_scripts.is_run_script_pending(requested, caller):
            raise Unavailable("The script of this run is not loaded yet; try again in a moment.")
        if "*" in requested:
            raise pattern_model_error(requested)
        for pattern in self._patterns:
            part = match_model_pattern(pattern, requested)
            if part is not None:
                return self._make_route(pattern, self._settings.models[pattern], requested, part)
        provider, slash, model = requested.partition("/")
        if self._settings.direct and slash and model and provider in self.providers:
            return self._make_route(requested, ModelConfig(provider=provider, model=model), requested, model)
        known = self.known_models()
        listed = known or f"none; {self.connect_advice(requested)}"
        params = {"model": requested[:200], "known": known}
        raise ModelNotFound(f"There is no model {requested[:200]!r}. Models: {listed}.", params=params)

    def known_models(self) -> str:
        """Return the names of models for errors, without the demo; empty if there are none."""
        names = self._suggested_names()
        return ", ".join(names[:_MAX_NAMED]) + (", …" if names[_MAX_NAMED:] else "")

    def _suggested_names(self) -> list[str]:
        """Return the names to suggest: all but the demo script, with configured names before names from patterns."""
        providers, models = self._settings.providers, self._settings.models
        demo = {name for name, model in models.items() if is_demo_provider(providers[model.provider])}
        names = (name for name in self.list_names() if name not in demo)
        return sorted(names, key=lambda name: (name not in self._exact_routes, name))

    def connect_advice(self, requested: str) -> str:
        """Return what to configure if there are no models at all."""
        if not has_only_demo_model(self._settings):
            return "set llm.models"
        key = key_variable_for_model(requested) or "a provider's key, such as ANTHROPIC_API_KEY,"
        return (
            f"set {key} before the server starts, or llm.providers and llm.models in its configuration "
            "('paddock llm list' shows how)"
        )

    def iter_fallbacks(self, route: ModelRoute) -> Iterator[ModelRoute]:
        """Yield the configured fallbacks of a route."""
        for name in route.settings.fallbacks:
            if name != route.name:
                yield self.resolve(name)

    def _make_route(self, name: str, model: ModelConfig, requested: str, part: str) -> ModelRoute:
        headers = [(key.lower().encode(), value.get_secret_value().encode()) for key, value in model.headers.items()]
        wanted = model.provider_model_name(requested, part)
        return ModelRoute(
            name=name,
            provider=self.providers[model.provider],
            circuit=self._circuit_for(model.provider, wanted),
            provider_settings=self._settings.providers[model.provider],
            settings=model,
            headers=headers,
            model=wanted,
        )

    def provider_key_advice(self, provider: str) -> str:
        """Return where to set the right key of a provider."""
        return provider_key_advice(provider, self._settings.discovered_providers.get(provider))

    def is_failing(self, provider: str) -> bool:
        """Return whether the circuit breaker of some model of a provider is open."""
        return any(circuit.is_open for (name, _), circuit in self._circuits.items() if name == provider)

    def open_circuits(self) -> Mapping[str, int]:
        """Return the number of models by provider that get no requests at present because they keep failing."""
        found = dict.fromkeys(self.providers, 0)
        for (name, _), circuit in self._circuits.items():
            found[name] += circuit.is_open
        return found

    def _circuit_for(self, provider: str, model: str) -> CircuitBreaker:
        circuit = self._circuits.get((provider, model))
        if circuit is None:
            # A recording cannot recover: recorded failures are replayed every time, so the circuit never opens.
            circuit = CircuitBreaker(within=-1.0) if self.providers[provider].kind == "replay" else CircuitBreaker()
            self._circuits[provider, model] = circuit
            if len(self._circuits) > _MAX_CIRCUITS:
                self._circuits.popitem(last=False)
        return circuit

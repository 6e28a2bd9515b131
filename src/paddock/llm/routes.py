"""Which provider answers for a model's name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from paddock.config.environment import key_for
from paddock.config.llm import LlmConfig, ModelConfig, ProviderConfig, matched_part
from paddock.errors import InvalidInput, NotFound, Unavailable
from paddock.llm.circuits import Circuit
from paddock.llm.demo import is_demo, only_demo
from paddock.llm.exchange import Caller
from paddock.llm.key_states import KeyStates
from paddock.llm.provider_advice import key_advice
from paddock.llm.providers.base import Provider
from paddock.llm.scripted import SCRIPT, Scripted, script_name
from paddock.llm.wire.base import Headers

_NAMED = 20
"""Models that an error names at most."""
_CIRCUITS = 1000
"""Patterns let clients make up names of models."""


class ModelNotFound(NotFound):
    """There is no such model."""

    code = "MODEL_NOT_FOUND"


def pattern_refused(name: str) -> InvalidInput:
    """The error for a request that names a pattern as its model."""
    return InvalidInput(
        f"model: {name[:200]!r} is a pattern, not a model; name one of the models it stands for (`paddock llm list`)"
    )


@dataclass(frozen=True, slots=True)
class Route:
    """What stands behind one name in `llm.models`."""

    name: str
    provider: Provider
    circuit: Circuit
    provider_settings: ProviderConfig
    settings: ModelConfig
    headers: Headers
    model: str
    """The provider's name for the model, once the name asked for is known."""

    @property
    def plain(self) -> bool:
        """Whether requests pass with no field set or taken out."""
        return not (self.settings.defaults or self.settings.overrides)


class Routes:
    """All models there are."""

    def __init__(self, settings: LlmConfig, providers: Mapping[str, Provider]) -> None:
        self._settings = settings
        self.providers = providers
        self.keys = KeyStates()
        self.answered: set[str] = set()
        """Providers of which a model answered since they were last found unreachable."""
        self.scripted = Scripted()
        """Models that are there for one run each."""
        self.listed: Callable[[], Iterable[str]] = lambda: settings.models
        """Names for errors; the catalog replaces patterns by the models that providers list."""
        self._circuits: OrderedDict[tuple[str, str], Circuit] = OrderedDict()
        """By provider and model: a model that fails must not take the others of its provider away from everybody."""
        self._known: dict[str, Route] = {}
        patterns = [name for name in settings.models if "*" in name]
        self._patterns = sorted(patterns, key=lambda name: (-len(name), name))
        for name, model in settings.models.items():
            if "*" not in name:
                self._known[name] = self._route(name, model, name, name)

    def own_script(self, caller: Caller | None) -> str | None:
        """The name of the script that answers the caller's run alone, if there is one."""
        own = script_name(caller.run) if caller is not None and caller.run is not None else None
        return own if own and self.scripted.find(own, caller) else None

    def resolve(self, asked: str, caller: Caller | None = None) -> Route:
        """What answers for a name: itself, the script of the run that asks, the longest pattern it fits, or
        `PROVIDER/MODEL` with `llm.direct`.

        Raises `InvalidInput` for a name with a `*`, `ModelNotFound`, which says what there is, and `Unavailable` for a
        script that is not there yet.
        """
        known = self._known.get(asked)
        if known is not None:
            return known
        script = self.scripted.find(asked, caller)
        if script is not None:
            return Route(
                name=SCRIPT,
                provider=script.provider,
                circuit=script.circuit,
                provider_settings=script.provider_settings,
                settings=script.settings,
                headers=[],
                model=asked,
            )
        if self.scripted.awaits(asked, caller):
            raise Unavailable("The script of this run is not there yet; ask again in a moment.")
        if "*" in asked:
            raise pattern_refused(asked)
        for pattern in self._patterns:
            part = matched_part(pattern, asked)
            if part is not None:
                return self._route(pattern, self._settings.models[pattern], asked, part)
        provider, slash, model = asked.partition("/")
        if self._settings.direct and slash and model and provider in self.providers:
            return self._route(asked, ModelConfig(provider=provider, model=model), asked, model)
        names = self._names()
        shown = ", ".join(names[:_NAMED]) + (", …" if names[_NAMED:] else "")
        there = shown or f"none; {self.how_to_connect(asked)}"
        params = {"model": asked[:200], "known": shown}
        raise ModelNotFound(f"There is no model {asked[:200]!r}. Models: {there}.", params=params)

    def _names(self) -> list[str]:
        """Return the names to suggest: all but the demo script."""
        providers, models = self._settings.providers, self._settings.models
        demo = {name for name, model in models.items() if is_demo(providers[model.provider])}
        return sorted(name for name in self.listed() if name not in demo)

    def how_to_connect(self, asked: str) -> str:
        """Return what to do where there are no models at all."""
        if not only_demo(self._settings):
            return "set llm.models"
        key = key_for(asked) or "a provider's key, such as ANTHROPIC_API_KEY,"
        return (
            f"set {key} before the server starts, or llm.providers and llm.models in its configuration "
            "(docs/how-to/connect-a-provider.md)"
        )

    def fallbacks(self, route: Route) -> Iterator[Route]:
        """What may answer instead, each once."""
        for name in route.settings.fallbacks:
            if name != route.name:
                yield self.resolve(name)

    def _route(self, name: str, model: ModelConfig, asked: str, part: str) -> Route:
        headers = [(key.lower().encode(), value.get_secret_value().encode()) for key, value in model.headers.items()]
        wanted = model.provider_model(asked, part)
        return Route(
            name=name,
            provider=self.providers[model.provider],
            circuit=self._circuit(model.provider, wanted),
            provider_settings=self._settings.providers[model.provider],
            settings=model,
            headers=headers,
            model=wanted,
        )

    def key_advice(self, provider: str) -> str:
        """Return where to put the right key of a provider."""
        return key_advice(provider, self._settings.found.get(provider))

    def failing(self, provider: str) -> bool:
        """Whether some model of a provider is left alone for a while."""
        return any(circuit.open for (name, _), circuit in self._circuits.items() if name == provider)

    def _circuit(self, provider: str, model: str) -> Circuit:
        circuit = self._circuits.get((provider, model))
        if circuit is None:
            # A recording cannot recover: what failed in it is told as it was, however often.
            circuit = Circuit(within=-1.0) if self.providers[provider].kind == "replay" else Circuit()
            self._circuits[provider, model] = circuit
            if len(self._circuits) > _CIRCUITS:
                self._circuits.popitem(last=False)
        return circuit

"""The catalog of usable model names: configured names, and the models that configured patterns match.

Providers' lists are fetched in the background when a list is requested, never during a model request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from paddock.config.llm import LlmConfig, match_model_pattern
from paddock.config.provider_discovery import model_patterns_of_provider
from paddock.llm.formats.model_list import ModelListEntry
from paddock.llm.gateway.chat_model_ranking import list_well_known_models, rank_chat_models
from paddock.llm.gateway.model_routes import ModelRoutes
from paddock.llm.providers.base import ModelListFailed, ProviderKeyRefused
from paddock.llm.providers.troubleshooting import provider_address_advice
from paddock.llm.wire.base import UpstreamError

MAX_MODELS = 1000
"""Maximum number of models per provider."""
LIST_TIMEOUT = 20.0
"""Seconds for all pages of a provider's list."""
FIRST_LIST_WAIT = 3.0
"""Seconds a reader waits for the first list of a provider."""
RETRY_SECONDS = 60.0
"""Seconds until a failed listing is tried again."""
_CLOSE_SECONDS = 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model that can be used by this name."""

    name: str
    provider: str
    model: str
    """The provider's name of the model."""
    pattern: str | None = None
    """The pattern of `llm.models` that the name matches."""
    listed: ModelListEntry | None = None
    """The provider's entry for the model."""
    well_known: bool = False
    """Whether the name is from the built-in list, because the provider has not listed its models."""


@dataclass(frozen=True, slots=True)
class ClientDefaultModels:
    """The default models of clients, by the API that they use."""

    general: str
    openai: str
    anthropic: str
    anthropic_small: str
    """For the small requests that Claude Code sends in the background."""
    gemini: str


@dataclass(slots=True)
class _ProviderList:
    """The known models of one provider, and the state of fetching them."""

    models: tuple[ModelListEntry, ...]
    well_known: bool = True
    """Whether `models` are from the built-in list, because the provider has not listed its own."""
    problem: str | None = None
    """Why the provider's own list is missing."""
    reached: bool = True
    """Whether the provider sent a list at the last attempt, even one without chat models."""
    fresh_until: float = 0.0
    fetch: asyncio.Task[None] | None = None
    first_fetch_done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first attempt to list models."""


class ModelCatalog:
    def __init__(
        self,
        settings: LlmConfig,
        routes: ModelRoutes,
        *,
        default: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._default = default
        self._clock = clock
        self._lists: dict[str, _ProviderList] = {}
        for name, provider in settings.providers.items():
            models = [model for model in settings.models.values() if model.provider == name]
            patterns = [key for key, model in settings.models.items() if "*" in key and model.provider == name]
            patterns += [model.model for model in models if model.model and "*" in model.model]
            if name in settings.discovered_providers:
                patterns += model_patterns_of_provider(name)
            self._lists[name] = _ProviderList(list_well_known_models(provider, patterns))
        routes.list_names = self.names

    async def refresh(self, wait: float = FIRST_LIST_WAIT) -> None:
        """Fetch missing and outdated lists, and wait a moment for providers that were never asked before."""
        if self._settings.list_models_every is None:
            return
        now = self._clock()
        waiting = []
        for name, known in self._lists.items():
            if known.fetch is None and now >= known.fresh_until:
                known.fetch = asyncio.create_task(self._fetch(name, known))
            if not known.first_fetch_done.is_set():
                waiting.append(asyncio.create_task(known.first_fetch_done.wait()))
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=wait)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """Cancel fetches in progress."""
        tasks = [known.fetch for known in self._lists.values() if known.fetch is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    def models(self) -> list[CatalogModel]:
        """Return all names in the order of the configuration; matches of a pattern in the provider's order."""
        found: dict[str, CatalogModel] = {}
        for name, model in self._settings.models.items():
            if "*" not in name:
                found[name] = CatalogModel(name, model.provider, model.provider_model_name(name, name))
        for pattern in self._patterns():
            for named in self._expand(pattern):
                found.setdefault(named.name, named)
        return list(found.values())

    def names(self) -> list[str]:
        """Return the names of all models, and the patterns of providers without known models."""
        models = self.models()
        listing = {each.provider for each in models if each.pattern is not None}
        used = {each.pattern for each in models}
        return [each.name for each in models] + [
            pattern
            for pattern in self._patterns()
            if pattern not in used and not (self._is_listable(pattern) and self._provider_of(pattern) in listing)
        ]

    def default(self) -> str | None:
        """Return the default model: the configured one, the first plain name, or the best model of the first usable
        provider."""
        return self._default if self._default is not None else self._best(self.models())

    def client_defaults(self, allows: Callable[[str], bool]) -> ClientDefaultModels | None:
        """Return the defaults of clients among the allowed models; `None` if there are none.

        A client of an API gets a model of a provider with that API if there is one.
        """
        models = [each for each in self.models() if allows(each.name)]
        general = self._default if self._default is not None and allows(self._default) else self._best(models)
        if general is None:
            return None
        by_kind: dict[str, list[CatalogModel]] = {"anthropic": [], "openai": [], "gemini": []}
        for each in models:
            by_kind.get(self._settings.providers[each.provider].kind, []).append(each)
        own = {
            kind: general if any(each.name == general for each in found) else self._best(found) or general
            for kind, found in by_kind.items()
        }
        small = self._best([each for each in by_kind["anthropic"] if "haiku" in each.name])
        return ClientDefaultModels(general, own["openai"], own["anthropic"], small or own["anthropic"], own["gemini"])

    def _best(self, models: Sequence[CatalogModel]) -> str | None:
        """Return the first plain name, or the best model of the first usable provider."""
        plain = next((each.name for each in models if each.pattern is None), None)
        if plain is not None or not models:
            return plain
        usable = [each for each in models if self._is_usable(each.provider)] or models
        provider = usable[0].provider
        order = {model.id: index for index, model in enumerate(self._lists[provider].models)}
        return min(
            (each for each in usable if each.provider == provider), key=lambda each: order.get(each.model, MAX_MODELS)
        ).name

    async def default_model(self) -> str | None:
        """Return the default model after giving providers a moment to list their models."""
        if self._default is None:
            await self.refresh()
        return self.default()

    def model_list_problem(self, provider: str) -> str | None:
        """Return why a provider's own list of models is missing, for people."""
        return self._lists[provider].problem

    def is_unreachable(self, provider: str) -> bool:
        """Return whether a provider could not list its models and has not answered since."""
        refused = self._routes.key_health.refused_at(provider) is not None
        return not (self._lists[provider].reached or refused or provider in self._routes.answering_providers)

    def _is_usable(self, provider: str) -> bool:
        return self._routes.key_health.refused_at(provider) is None and not self.is_unreachable(provider)

    def _patterns(self) -> Iterable[str]:
        return (name for name in self._settings.models if "*" in name)

    def _provider_of(self, pattern: str) -> str:
        return self._settings.models[pattern].provider

    def _is_listable(self, pattern: str) -> bool:
        """Return whether the names of a pattern follow from the provider's list."""
        return (self._settings.models[pattern].model or pattern).count("*") == 1

    def _expand(self, pattern: str) -> Iterable[CatalogModel]:
        """Yield the models that a pattern matches; none if they cannot be derived from names."""
        config = self._settings.models[pattern]
        wanted = config.model or pattern
        if not self._is_listable(pattern):
            return
        known = self._lists[config.provider]
        for listed in known.models:
            part = match_model_pattern(wanted, listed.id)
            if part is None:
                continue
            name = pattern.replace("*", part)
            if "*" not in name and self._routes.resolve(name).name == pattern:
                yield CatalogModel(
                    name, config.provider, listed.id, pattern, replace(listed, id=name), well_known=known.well_known
                )

    async def _fetch(self, name: str, known: _ProviderList) -> None:
        """Fetch a provider's list of models, or remember why that failed."""
        every = self._settings.list_models_every or RETRY_SECONDS
        reached = False
        try:
            async with asyncio.timeout(LIST_TIMEOUT):
                fetched = await self._routes.providers[name].list_models()
            known.reached = reached = True
            if fetched is not None:
                found = rank_chat_models(fetched, self._settings.providers[name].default_model)[:MAX_MODELS]
                if not found:
                    raise ModelListFailed("its list has no chat model")
                self._routes.key_health.record_listing_success(name)
                known.models, known.problem, known.well_known = found, None, False
            known.fresh_until = self._clock() + every
        except (ModelListFailed, UpstreamError, TimeoutError) as error:
            if isinstance(error, ProviderKeyRefused):
                self._routes.key_health.record_listing_refusal(name)
            problem = str(error) or "it took too long to list its models"
            if isinstance(error, (UpstreamError, TimeoutError)):
                self._routes.answering_providers.discard(name)
            known.reached = reached
            if not (reached or isinstance(error, ProviderKeyRefused)):
                problem += provider_address_advice(self._settings.providers[name])
            if problem != known.problem:
                log.warning("could not list models of provider", provider=name, problem=problem)
            # An outdated list is better than none.
            known.problem = problem
            known.fresh_until = self._clock() + min(RETRY_SECONDS, every)
        except Exception:
            log.exception("could not list models of provider", provider=name)
            known.fresh_until = self._clock() + RETRY_SECONDS
        finally:
            known.fetch = None
            known.first_fetch_done.set()


def to_model_list_entries(models: Sequence[CatalogModel]) -> list[ModelListEntry]:
    """Return models as entries of the list that clients get."""
    return [each.listed or ModelListEntry(each.name) for each in models]

"""The models that can be asked for by name: those of the configuration, and what its patterns stand for.

Providers are asked for their models in the background, when somebody wants a list, and never while a model is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from paddock.config.environment import patterns_of
from paddock.config.llm import LlmConfig, matched_part
from paddock.llm.chat_models import chat_models, well_known
from paddock.llm.formats.models import Listed
from paddock.llm.provider_advice import address_advice
from paddock.llm.providers.base import KeyRefused, ListFailed
from paddock.llm.routes import Routes
from paddock.llm.wire.base import UpstreamError

MOST = 1000
"""Models of one provider that are kept."""
FETCH_WITHIN = 20.0
"""Seconds for all pages of a list."""
WAIT = 3.0
"""Seconds a reader waits for the first list of a provider."""
AGAIN_AFTER = 60.0
"""Seconds until a provider that could not say its models is asked again."""
_CLOSING = 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that can be asked for by this name."""

    name: str
    provider: str
    model: str
    """The provider's name for it."""
    pattern: str | None = None
    """The pattern of `llm.models` that the name fits."""
    listed: Listed | None = None
    """What the provider says of it."""
    well_known: bool = False
    """Whether the name is a well-known one, offered because the provider has not listed its models."""


@dataclass(slots=True)
class _ProviderList:
    """What is known of the models of one provider."""

    models: tuple[Listed, ...]
    well_known: bool = True
    """Whether `models` are well-known names, because the provider has not listed its own."""
    problem: str | None = None
    """Why the provider's own list is not there."""
    reached: bool = True
    """Whether the provider sent a list when it was last asked, be it one without models that chat."""
    fresh_until: float = 0.0
    fetch: asyncio.Task[None] | None = None
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the provider has been asked once."""


class Catalog:
    def __init__(
        self,
        settings: LlmConfig,
        routes: Routes,
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
            if name in settings.found:
                patterns += patterns_of(name)
            self._lists[name] = _ProviderList(well_known(provider, patterns))
        routes.listed = self.names

    async def refresh(self, wait: float = WAIT) -> None:
        """Ask providers whose list is missing or old, and wait a moment for those that were never asked before."""
        if self._settings.list_models_every is None:
            return
        now = self._clock()
        waiting = []
        for name, known in self._lists.items():
            if known.fetch is None and now >= known.fresh_until:
                known.fetch = asyncio.create_task(self._fetch(name, known))
            if not known.first.is_set():
                waiting.append(asyncio.create_task(known.first.wait()))
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=wait)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """End the requests that are under way."""
        tasks = [known.fetch for known in self._lists.values() if known.fetch is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSING)

    def models(self) -> list[NamedModel]:
        """All names, in the order of the configuration; those of a pattern as the provider's list ranks them."""
        found: dict[str, NamedModel] = {}
        for name, model in self._settings.models.items():
            if "*" not in name:
                found[name] = NamedModel(name, model.provider, model.provider_model(name, name))
        for pattern in self._patterns():
            for named in self._expand(pattern):
                found.setdefault(named.name, named)
        return list(found.values())

    def names(self) -> list[str]:
        """Names of all models, and the patterns whose models are not known."""
        models = self.models()
        known = {each.pattern for each in models}
        return [each.name for each in models] + [pattern for pattern in self._patterns() if pattern not in known]

    def default(self) -> str | None:
        """The name of the model for chats that name none: the configured one, the first plain name, or the best model
        of the first provider that can be expected to answer."""
        if self._default is not None:
            return self._default
        models = self.models()
        plain = next((each.name for each in models if each.pattern is None), None)
        if plain is not None or not models:
            return plain
        usable = [each for each in models if self._usable(each.provider)] or models
        provider = usable[0].provider
        order = {model.id: place for place, model in enumerate(self._lists[provider].models)}
        return min(
            (each for each in usable if each.provider == provider), key=lambda each: order.get(each.model, MOST)
        ).name

    async def default_model(self) -> str | None:
        """The default, once providers have had a moment to list their models."""
        if self._default is None:
            await self.refresh()
        return self.default()

    def problem(self, provider: str) -> str | None:
        """Why a provider's own list of models is not there, for people."""
        return self._lists[provider].problem

    def unreached(self, provider: str) -> bool:
        """Whether a provider could not list its models and none of them has answered since."""
        refused = self._routes.keys.refused_at(provider) is not None
        return not (self._lists[provider].reached or refused or provider in self._routes.answered)

    def _usable(self, provider: str) -> bool:
        return self._routes.keys.refused_at(provider) is None and not self.unreached(provider)

    def _patterns(self) -> Iterable[str]:
        return (name for name in self._settings.models if "*" in name)

    def _expand(self, pattern: str) -> Iterable[NamedModel]:
        """What a pattern stands for. Nothing if its models cannot be told from its names."""
        config = self._settings.models[pattern]
        wanted = config.model or pattern
        if wanted.count("*") != 1:
            return
        known = self._lists[config.provider]
        for listed in known.models:
            part = matched_part(wanted, listed.id)
            if part is None:
                continue
            name = pattern.replace("*", part)
            if "*" not in name and self._routes.resolve(name).name == pattern:
                yield NamedModel(
                    name, config.provider, listed.id, pattern, replace(listed, id=name), well_known=known.well_known
                )

    async def _fetch(self, name: str, known: _ProviderList) -> None:
        """Replace what is known of a provider's models with what it says, or remember why it says nothing."""
        every = self._settings.list_models_every or AGAIN_AFTER
        reached = False
        try:
            async with asyncio.timeout(FETCH_WITHIN):
                told = await self._routes.providers[name].list_models()
            known.reached = reached = True
            if told is not None:
                found = chat_models(told, self._settings.providers[name].default_model)[:MOST]
                if not found:
                    raise ListFailed("its list has no model that chats")
                self._routes.keys.listing_accepted(name)
                known.models, known.problem, known.well_known = found, None, False
            known.fresh_until = self._clock() + every
        except (ListFailed, UpstreamError, TimeoutError) as error:
            if isinstance(error, KeyRefused):
                self._routes.keys.listing_refused(name)
            problem = str(error) or "it took too long to say its models"
            if isinstance(error, (UpstreamError, TimeoutError)):
                self._routes.answered.discard(name)
            known.reached = reached
            if not (reached or isinstance(error, KeyRefused)):
                problem += address_advice(self._settings.providers[name])
            if problem != known.problem:
                log.warning("could not list models of provider", provider=name, problem=problem)
            # A list that was there before is better than none.
            known.problem = problem
            known.fresh_until = self._clock() + min(AGAIN_AFTER, every)
        except Exception:
            log.exception("could not list models of provider", provider=name)
            known.fresh_until = self._clock() + AGAIN_AFTER
        finally:
            known.fetch = None
            known.first.set()


def listed_models(models: Sequence[NamedModel]) -> list[Listed]:
    """Models as clients are told of them."""
    return [each.listed or Listed(each.name) for each in models]

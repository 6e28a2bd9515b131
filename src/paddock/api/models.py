"""Which models there are, who answers for them, and how those are doing."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from pydantic import AwareDatetime

from paddock.api.access import LlmReader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.llm.callers import pattern_of
from paddock.model.keys import Principal


class ProviderSaid(Said):
    name: str
    kind: str
    base_url: str | None = None
    formats: list[str]
    """What it speaks; other formats are translated."""
    found_in: str | None = None
    """The variable of the environment that it was found by, where the configuration names no providers."""
    failing: bool
    """Whether it is left alone for a while because it kept failing."""
    key_refused_at: AwareDatetime | None = None
    """When the provider last refused its key, unless it has accepted it since."""
    unreached: bool
    """Whether its list of models could not be had and no model of it has answered since."""
    list_problem: str | None = None
    """Why the provider's own list of models is not known. Well-known names are offered instead."""


class ModelSaid(Said):
    name: str
    """A whole name, which can be asked for."""
    provider: str
    model: str
    """The provider's name for it."""
    pattern: str | None = None
    """The pattern of `llm.models` that the name fits, if it does not stand there itself."""
    well_known: bool = False
    """Whether the name is a well-known one, offered because the provider has not listed its models."""
    fallbacks: list[str] = []


class PatternSaid(Said):
    name: str
    """As in `llm.models`; the `*` stands for anything."""
    provider: str
    model: str
    fallbacks: list[str] = []


class ArchiveSaid(Said):
    enabled: bool
    durability: str
    waiting_bytes: int
    """What has not been written yet."""
    lost: int
    """Exchanges that could not be kept since the server started."""


class ModelsSaid(Said):
    providers: list[ProviderSaid]
    models: list[ModelSaid]
    """All names, those that patterns stand for included."""
    patterns: list[PatternSaid]
    """Any name that fits one can be asked for, also if it is not among `models`."""
    default: str | None = None
    """The model of chats that name none."""
    archive: ArchiveSaid


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/llm", tags=["Models"])
    gateway = services.gateway
    settings = gateway.settings

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def show_models(principal: LlmReader) -> ModelsSaid:
        """The models that can be asked for and the providers behind them. Keys are not shown."""
        routes, catalog = gateway.routes, gateway.catalog
        await catalog.refresh()
        allows = await models_allowed(services, principal)
        providers = [
            ProviderSaid(
                name=name,
                kind=provider.kind,
                base_url=settings.providers[name].base_url,
                formats=list(provider.formats),
                found_in=settings.found.get(name),
                failing=routes.failing(name),
                key_refused_at=routes.keys.refused_at(name),
                unreached=catalog.unreached(name),
                list_problem=catalog.problem(name),
            )
            for name, provider in routes.providers.items()
        ]
        models = [
            ModelSaid(
                name=each.name,
                provider=each.provider,
                model=each.model,
                pattern=each.pattern,
                well_known=each.well_known,
                fallbacks=list(settings.models[each.pattern or each.name].fallbacks),
            )
            for each in catalog.models()
            if allows(each.name)
        ]
        patterns = [
            PatternSaid(name=name, provider=model.provider, model=model.model or name, fallbacks=list(model.fallbacks))
            for name, model in settings.models.items()
            if "*" in name
        ]
        archive = ArchiveSaid(
            enabled=settings.archive.enabled,
            durability=settings.archive.durability,
            waiting_bytes=gateway.archive.waiting_bytes,
            lost=gateway.archive.lost,
        )
        return ModelsSaid(
            providers=providers, models=models, patterns=patterns, default=catalog.default(), archive=archive
        )

    return router


async def models_allowed(services: Services, principal: Principal) -> Callable[[str], bool]:
    """Tells the names of models that the key may ask for."""
    pattern = pattern_of((await services.keys.get(principal.key_id)).models)
    return lambda name: pattern is None or pattern.fullmatch(name) is not None

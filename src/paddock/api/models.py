"""Which models there are, who answers for them, and how those are doing."""

from __future__ import annotations

from fastapi import APIRouter

from paddock.api.access import LlmReader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said


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


class ModelSaid(Said):
    name: str
    """May hold a `*`, which stands for anything."""
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
    archive: ArchiveSaid


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/llm", tags=["Models"])
    gateway = services.gateway
    settings = gateway.settings

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def show_models(principal: LlmReader) -> ModelsSaid:
        """The models that can be asked for and the providers behind them. Keys are not shown."""
        routes = gateway.routes
        providers = [
            ProviderSaid(
                name=name,
                kind=provider.kind,
                base_url=settings.providers[name].base_url,
                formats=list(provider.formats),
                found_in=settings.found.get(name),
                failing=routes.failing(name),
            )
            for name, provider in routes.providers.items()
        ]
        models = [
            ModelSaid(name=name, provider=model.provider, model=model.model, fallbacks=list(model.fallbacks))
            for name, model in settings.models.items()
        ]
        archive = ArchiveSaid(
            enabled=settings.archive.enabled,
            durability=settings.archive.durability,
            waiting_bytes=gateway.archive.waiting_bytes,
            lost=gateway.archive.lost,
        )
        return ModelsSaid(providers=providers, models=models, archive=archive)

    return router

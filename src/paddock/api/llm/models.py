"""Route for models and providers: which exist, and whether they work."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from pydantic import AwareDatetime

from paddock.api.http.authorization import LlmReader
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.llm.metering.key_authentication import compile_model_pattern
from paddock.model.keys import Principal


class ProviderResponse(ResponseBody):
    name: str
    kind: str
    base_url: str | None = None
    formats: list[str]
    """API formats it supports; other formats are translated."""
    found_in: str | None = None
    """The environment variable it was found by, if the configuration names no providers."""
    failing: bool
    """Whether it is skipped for a while after repeated failures."""
    key_refused_at: AwareDatetime | None = None
    """When the provider last refused its key, unless it has accepted it since."""
    unreached: bool
    """Whether its model list could not be loaded and none of its models has answered since."""
    list_problem: str | None = None
    """Why the provider's model list is unknown. Well-known names are offered instead."""


class ModelResponse(ResponseBody):
    name: str
    """A complete name that requests can use."""
    provider: str
    model: str
    """The provider's name for it."""
    pattern: str | None = None
    """The pattern of `llm.models` that the name matches, unless it is listed itself."""
    well_known: bool = False
    """Whether the name is a well-known one, offered because the provider has not listed its models."""
    fallbacks: list[str] = []


class ModelPatternResponse(ResponseBody):
    name: str
    """As in `llm.models`; `*` matches any text."""
    provider: str
    model: str
    fallbacks: list[str] = []


class ArchiveStatusResponse(ResponseBody):
    enabled: bool
    durability: str
    waiting_bytes: int
    """Bytes not written yet."""
    lost: int
    """Exchanges that could not be stored since the server started."""


class ModelsResponse(ResponseBody):
    providers: list[ProviderResponse]
    models: list[ModelResponse]
    """All known names, including those that match patterns."""
    patterns: list[ModelPatternResponse]
    """Any matching name can be requested, even if it is not among `models`."""
    default: str | None = None
    """The model of chats that name none."""
    ignored_variables: list[str] = []
    """Environment variables with a provider's key that is not used, because the configuration names other providers."""
    archive: ArchiveStatusResponse


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/llm", tags=["Models"])
    gateway = services.gateway
    settings = gateway.settings

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def show_models(principal: LlmReader) -> ModelsResponse:
        """Return the available models and their providers. Keys are not shown."""
        routes, catalog = gateway.routes, gateway.catalog
        await catalog.refresh()
        allows = await allowed_models_filter(services, principal)
        providers = [
            ProviderResponse(
                name=name,
                kind=provider.kind,
                base_url=settings.providers[name].base_url,
                formats=list(provider.formats),
                found_in=settings.discovered_providers.get(name),
                failing=routes.is_failing(name),
                key_refused_at=routes.key_health.refused_at(name),
                unreached=catalog.is_unreachable(name),
                list_problem=catalog.model_list_problem(name),
            )
            for name, provider in routes.providers.items()
        ]
        models = [
            ModelResponse(
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
            ModelPatternResponse(
                name=name, provider=model.provider, model=model.model or name, fallbacks=list(model.fallbacks)
            )
            for name, model in settings.models.items()
            if "*" in name
        ]
        archive = ArchiveStatusResponse(
            enabled=settings.archive.enabled,
            durability=settings.archive.durability,
            waiting_bytes=gateway.archive.waiting_bytes,
            lost=gateway.archive.lost_count,
        )
        return ModelsResponse(
            providers=providers,
            models=models,
            patterns=patterns,
            default=catalog.default(),
            ignored_variables=list(settings.ignored_key_variables),
            archive=archive,
        )

    return router


async def allowed_models_filter(services: ApiServices, principal: Principal) -> Callable[[str], bool]:
    """Return a function that tells whether the key may use a model."""
    pattern = compile_model_pattern((await services.keys.get(principal.key_id)).models)
    return lambda name: pattern is None or pattern.fullmatch(name) is not None

"""Route that describes the server to the console: version, agents, models, disk, and the caller's permissions."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import AwareDatetime

import paddock
from paddock.agents.engines.registry import list_installed_engines
from paddock.agents.sessions.agent_choice import ACP_ENGINE, AGENT_PROGRAM_NAMES, list_agent_names
from paddock.api.admin.web_console import WebConsole
from paddock.api.http.authorization import AnyKey
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.llm.models import allowed_models_filter
from paddock.api.sandboxes.kind_routes import KindResponse, describe_sandbox_kinds, is_image_built
from paddock.api.services import ApiServices
from paddock.errors import PaddockError
from paddock.llm.demo import DEMO_MODEL, has_only_demo_model
from paddock.model.keys import Principal, Scope

_SCRIPTED_KINDS = ("script", "replay")


class AgentResponse(ResponseBody):
    name: str
    type: Literal["engine", "program"]
    """An engine runs in the server; a program runs in a sandbox of its own."""
    ready: bool
    """Whether it can be used now. A program's image is built on first use."""
    missing: str | None = None
    """How to make it usable."""
    image: str | None = None
    built: bool | None = None
    description: str = ""


class OfferedModelResponse(ResponseBody):
    name: str
    """A complete name that requests can use."""
    provider: str
    kind: str
    """Kind of the provider, such as `anthropic`."""
    script: bool
    """Whether a script or a recording answers instead of a model."""


class AgentsResponse(ResponseBody):
    chat: list[AgentResponse]
    default: str
    """The agent of chats that name none."""
    tasks: list[AgentResponse]


class OfferedModelsResponse(ResponseBody):
    items: list[OfferedModelResponse]
    patterns: list[str]
    """Each contains a `*`; any matching name can be requested, even if it is not among `items`."""
    default: str | None
    """The model of chats that name none."""
    real: bool
    """Whether there is any model besides scripts."""
    state: Literal["ready", "key_refused", "not_reached"]
    """`ready` if some provider neither refuses its key nor is unreachable, else the problem."""
    refused_keys: dict[str, str]
    """Providers that refused their key, with the variable or setting that holds it."""
    demo: bool
    """Whether only Paddock's demonstration script is available, because no provider is configured."""


class DiskResponse(ResponseBody):
    free: int
    total: int
    needed: int
    """No sandbox starts while less is free."""


class CapabilitiesResponse(ResponseBody):
    """The permissions of the key."""

    read_sandboxes: bool
    write_sandboxes: bool
    read_runs: bool
    write_runs: bool
    read_sessions: bool
    write_sessions: bool
    use_models: bool
    read_exchanges: bool
    manage_keys: bool
    admin: bool
    """Everything, in every tenant; also the log, metrics and image builds."""

    @classmethod
    def for_principal(cls, principal: Principal) -> CapabilitiesResponse:
        return cls(
            read_sandboxes=principal.allows(Scope.SANDBOXES_READ),
            write_sandboxes=principal.allows(Scope.SANDBOXES_WRITE),
            read_runs=principal.allows(Scope.RUNS_READ),
            write_runs=principal.allows(Scope.RUNS_WRITE),
            read_sessions=principal.allows(Scope.SESSIONS_READ),
            write_sessions=principal.allows(Scope.SESSIONS_WRITE),
            use_models=principal.allows(Scope.LLM_USE),
            read_exchanges=principal.allows(Scope.LLM_READ),
            manage_keys=principal.allows(Scope.KEYS_ADMIN),
            admin=principal.allows(Scope.ADMIN),
        )


class ServerResponse(ResponseBody):
    name: Literal["paddock"] = "paddock"
    version: str
    started_at: AwareDatetime
    now: AwareDatetime
    """The server's clock."""
    console: bool
    """Whether the console is built."""
    backends: list[str]
    agents: AgentsResponse
    models: OfferedModelsResponse
    kinds: list[KindResponse]
    default_kinds: list[str]
    """Kinds of chats that name none."""
    default_image: str
    default_timeout: float | None = None
    """Lifetime in seconds of sandboxes that name none; missing if it is unlimited."""
    disk: DiskResponse
    """Disk of the data directory."""
    sandboxes: dict[str, int]
    """Number of sandboxes by state: of the tenant, or of all tenants for `admin`."""
    tenant: str
    capabilities: CapabilitiesResponse


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/server", tags=["General"])
    config, started = services.config, datetime.now(UTC)

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def show_server(principal: AnyKey) -> ServerResponse:
        """Return the server's state and the key's permissions."""
        counts = await services.fleet.sandboxes.counts(None if principal.allows(Scope.ADMIN) else principal.tenant)
        states: Counter[str] = Counter()
        for (_, state), count in counts.items():
            states[state] += count
        agents, kinds, disk = await asyncio.gather(
            asyncio.to_thread(_list_agents, services),
            asyncio.to_thread(describe_sandbox_kinds, services),
            asyncio.to_thread(shutil.disk_usage, config.data),
        )
        return ServerResponse(
            version=paddock.__version__,
            started_at=started,
            now=datetime.now(UTC),
            console=WebConsole().is_built,
            backends=[config.sandboxes.default_backend],
            agents=agents,
            models=await list_offered_models(services, principal),
            kinds=kinds,
            default_kinds=list(config.chat.kinds),
            default_image=config.sandboxes.default_image,
            default_timeout=config.sandboxes.default_timeout,
            disk=DiskResponse(free=disk.free, total=disk.total, needed=config.sandboxes.min_free_disk),
            sandboxes=dict(states),
            tenant=principal.tenant,
            capabilities=CapabilitiesResponse.for_principal(principal),
        )

    return router


async def list_offered_models(services: ApiServices, principal: Principal) -> OfferedModelsResponse:
    settings, catalog = services.gateway.settings, services.gateway.catalog
    await catalog.refresh()
    allows = await allowed_models_filter(services, principal)
    kinds = {name: provider.kind for name, provider in settings.providers.items()}
    items = [
        OfferedModelResponse(
            name=each.name,
            provider=each.provider,
            kind=kinds[each.provider],
            script=kinds[each.provider] in _SCRIPTED_KINDS,
        )
        for each in catalog.models()
        if allows(each.name)
    ]
    return OfferedModelsResponse(
        items=items,
        patterns=[name for name in settings.models if "*" in name],
        default=catalog.default(),
        real=any(kinds[model.provider] not in _SCRIPTED_KINDS for model in settings.models.values()),
        state=_models_state(services),
        refused_keys={
            name: settings.discovered_providers.get(name) or f"llm.providers.{name}.key"
            for name in settings.providers
            if services.gateway.routes.key_health.refused_at(name) is not None
        },
        demo=has_only_demo_model(settings) and DEMO_MODEL in settings.models,
    )


def _models_state(services: ApiServices) -> Literal["ready", "key_refused", "not_reached"]:
    """Return the best state of the providers that have models."""
    settings, catalog, keys = services.gateway.settings, services.gateway.catalog, services.gateway.routes.key_health
    providers = {model.provider for model in settings.models.values()}
    providers = {name for name in providers if settings.providers[name].kind not in _SCRIPTED_KINDS}
    refused = {name for name in providers if keys.refused_at(name) is not None}
    unreached = {name for name in providers if catalog.is_unreachable(name)}
    if not providers or providers - refused - unreached:
        return "ready"
    return "key_refused" if refused else "not_reached"


def _list_agents(services: ApiServices) -> AgentsResponse:
    engines = list_installed_engines()
    chat = []
    for name in list_agent_names(engines):
        missing = engines[ACP_ENGINE if name in AGENT_PROGRAM_NAMES else name]
        if name in AGENT_PROGRAM_NAMES:
            chat.append(_describe_program(services, name, missing))
        else:
            chat.append(AgentResponse(name=name, type="engine", ready=missing is None, missing=missing))
    tasks = [_describe_program(services, name, None) for name in services.runs.dependencies.presets.names()]
    return AgentsResponse(chat=chat, default=services.config.chat.agent, tasks=tasks)


def _describe_program(services: ApiServices, name: str, missing: str | None) -> AgentResponse:
    try:
        preset = services.runs.dependencies.presets.get(name)
    except PaddockError as error:
        return AgentResponse(name=name, type="program", ready=False, missing=missing or error.message)
    built = is_image_built(services, preset.image) if preset.image else None
    return AgentResponse(
        name=name,
        type="program",
        ready=missing is None,
        missing=missing,
        image=preset.image,
        built=built,
        description=preset.description,
    )

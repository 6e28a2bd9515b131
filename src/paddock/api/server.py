"""What this server is, what it has and what whoever asks may do here: what a console shows first."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import AwareDatetime

import paddock
from paddock.agents.agents import ACP, PROGRAMS, known_agents
from paddock.agents.engines.registry import installed
from paddock.api.access import Anyone
from paddock.api.console import Console
from paddock.api.errors import documented
from paddock.api.kinds import KindItem, is_built, look
from paddock.api.models import models_allowed
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import PaddockError
from paddock.llm.demo import DEMO, only_demo
from paddock.model.keys import Principal, Scope

_SCRIPTED = ("script", "replay")


class AgentItem(Said):
    name: str
    type: Literal["engine", "program"]
    """An engine thinks in the server; a program works in a sandbox of its own."""
    ready: bool
    """Whether it can be used now. A program's image is built when it is first used."""
    missing: str | None = None
    """What to do if not."""
    image: str | None = None
    built: bool | None = None
    description: str = ""


class ModelItem(Said):
    name: str
    """A whole name, which can be asked for."""
    provider: str
    kind: str
    """What the provider is, such as `anthropic`."""
    script: bool
    """Whether no model stands behind it, but a script or a recording."""


class Agents(Said):
    chat: list[AgentItem]
    default: str
    """Who works in a chat that names nobody."""
    tasks: list[AgentItem]


class Models(Said):
    items: list[ModelItem]
    patterns: list[str]
    """With a `*` each; any name that fits one can be asked for, also if it is not among `items`."""
    default: str | None
    """The model of chats that name none."""
    real: bool
    """Whether there is a model at all, and not only scripts."""
    state: Literal["ready", "key_refused", "not_reached"]
    """`ready` if some provider is neither known to refuse its key nor to be out of reach, else what is wrong."""
    demo: bool
    """Whether only the script that Paddock brings is there, because no provider is set."""


class Disk(Said):
    free: int
    total: int
    needed: int
    """No sandbox starts while less is free."""


class Capabilities(Said):
    """What the key may do."""

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
    """Everything, in every tenant; the log, metrics and building images besides."""

    @classmethod
    def of(cls, principal: Principal) -> Capabilities:
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


class ServerSaid(Said):
    name: Literal["paddock"] = "paddock"
    version: str
    started_at: AwareDatetime
    now: AwareDatetime
    """The server's clock."""
    console: bool
    """Whether the console is built."""
    backends: list[str]
    agents: Agents
    models: Models
    kinds: list[KindItem]
    default_kinds: list[str]
    """Those of chats that name none."""
    default_image: str
    disk: Disk
    """Of the data directory."""
    sandboxes: dict[str, int]
    """How many there are by state: in the tenant, or in all for `admin`."""
    tenant: str
    capabilities: Capabilities


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/server", tags=["General"])
    config, started = services.config, datetime.now(UTC)

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def show_server(principal: Anyone) -> ServerSaid:
        """What this server is, what it has, and what the key may do."""
        counts = await services.fleet.sandboxes.counts(None if principal.allows(Scope.ADMIN) else principal.tenant)
        states: Counter[str] = Counter()
        for (_, state), count in counts.items():
            states[state] += count
        agents, kinds, disk = await asyncio.gather(
            asyncio.to_thread(_agents, services),
            asyncio.to_thread(look, services),
            asyncio.to_thread(shutil.disk_usage, config.data),
        )
        return ServerSaid(
            version=paddock.__version__,
            started_at=started,
            now=datetime.now(UTC),
            console=Console().built,
            backends=[config.sandboxes.default_backend],
            agents=agents,
            models=await models_of(services, principal),
            kinds=kinds,
            default_kinds=list(config.chat.kinds),
            default_image=config.sandboxes.default_image,
            disk=Disk(free=disk.free, total=disk.total, needed=config.sandboxes.min_free_disk),
            sandboxes=dict(states),
            tenant=principal.tenant,
            capabilities=Capabilities.of(principal),
        )

    return router


async def models_of(services: Services, principal: Principal) -> Models:
    settings, catalog = services.gateway.settings, services.gateway.catalog
    await catalog.refresh()
    allows = await models_allowed(services, principal)
    kinds = {name: provider.kind for name, provider in settings.providers.items()}
    items = [
        ModelItem(
            name=each.name, provider=each.provider, kind=kinds[each.provider], script=kinds[each.provider] in _SCRIPTED
        )
        for each in catalog.models()
        if allows(each.name)
    ]
    return Models(
        items=items,
        patterns=[name for name in settings.models if "*" in name],
        default=catalog.default(),
        real=any(kinds[model.provider] not in _SCRIPTED for model in settings.models.values()),
        state=_state_of_models(services),
        demo=only_demo(settings) and DEMO in settings.models,
    )


def _state_of_models(services: Services) -> Literal["ready", "key_refused", "not_reached"]:
    """Return the best state of the providers that have models."""
    settings, catalog, keys = services.gateway.settings, services.gateway.catalog, services.gateway.routes.keys
    providers = {model.provider for model in settings.models.values()}
    providers = {name for name in providers if settings.providers[name].kind not in _SCRIPTED}
    refused = {name for name in providers if keys.refused_at(name) is not None}
    unreached = {name for name in providers if catalog.unreached(name)}
    if not providers or providers - refused - unreached:
        return "ready"
    return "key_refused" if refused else "not_reached"


def _agents(services: Services) -> Agents:
    engines = installed()
    chat = []
    for name in known_agents(engines):
        missing = engines[ACP if name in PROGRAMS else name]
        if name in PROGRAMS:
            chat.append(_program(services, name, missing))
        else:
            chat.append(AgentItem(name=name, type="engine", ready=missing is None, missing=missing))
    tasks = [_program(services, name, None) for name in services.runs.means.presets.names()]
    return Agents(chat=chat, default=services.config.chat.agent, tasks=tasks)


def _program(services: Services, name: str, missing: str | None) -> AgentItem:
    try:
        preset = services.runs.means.presets.get(name)
    except PaddockError as error:
        return AgentItem(name=name, type="program", ready=False, missing=missing or error.message)
    built = is_built(services, preset.image) if preset.image else None
    return AgentItem(
        name=name,
        type="program",
        ready=missing is None,
        missing=missing,
        image=preset.image,
        built=built,
        description=preset.description,
    )

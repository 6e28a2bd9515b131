"""Choice of a session's agent, model and sandbox kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from paddock.config.schema import Config
from paddock.errors import InvalidInput
from paddock.fleet.kinds import SandboxKinds
from paddock.llm.gateway.model_routes import pattern_model_error

DefaultModel: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns the model of sessions that name none."""
ACP_ENGINE = "acp"
AGENT_PROGRAM_NAMES = ("claude-code", "gemini-cli", "opencode", "qwen-code", "codex")
"""Agent programs, which run in their own sandbox and speak the Agent Client Protocol."""


def list_agent_names(engines: Collection[str]) -> Sequence[str]:
    """Return all agent names that a session may use."""
    programs = AGENT_PROGRAM_NAMES if ACP_ENGINE in engines else ()
    return [*sorted(name for name in engines if name != ACP_ENGINE), *programs]


def engine_for_agent(agent: str, engines: Collection[str]) -> str:
    """Return the engine of an agent. Raises `InvalidInput`, which lists the agents."""
    known = list_agent_names(engines)
    if agent not in known:
        raise InvalidInput(f"there is no agent {agent[:80]!r}; there are {', '.join(known) or 'none'}")
    return ACP_ENGINE if agent in AGENT_PROGRAM_NAMES else agent


def resolve_model(config: Config, name: str | None) -> str:
    """Return the name if the model is served. Raises `InvalidInput`, also for None."""
    models = ", ".join(config.llm.models)
    if name is None:
        hint = f"name one that fits {models}" if models else "set llm.providers and llm.models"
        raise InvalidInput(f"there is no default model; {hint}")
    if "*" in name:
        raise pattern_model_error(name)
    if not config.llm.has_model(name):
        raise InvalidInput(f"there is no model {name[:200]!r}; there are {models or 'none: set llm.models'}")
    return name


def resolve_sandbox_kinds(config: Config, requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested sandbox kinds without duplicates, or the configured ones. Raises `InvalidInput`."""
    known = SandboxKinds.load_installed(config)
    names = config.chat.kinds if requested is None else requested
    return tuple(dict.fromkeys(known.get(name).name for name in names))

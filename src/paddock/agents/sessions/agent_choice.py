"""Choice of a session's agent, model and sandbox kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from paddock.config.schema import Config
from paddock.errors import InvalidInput, NotFound
from paddock.fleet.kinds import SandboxKinds
from paddock.llm.gateway.model_routes import ModelNotFound, ModelRoutes

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
    agents = list_agent_names(engines)
    if agent not in agents:
        raise InvalidInput(f"there is no agent {agent[:80]!r}; there are {', '.join(agents) or 'none'}")
    return ACP_ENGINE if agent in AGENT_PROGRAM_NAMES else agent


class UnknownSessionModel(InvalidInput):
    """A session cannot use this model, because there is none of this name."""

    # As in the gateway, but a wrong field of a session does not mean that the session is missing.
    code = ModelNotFound.code


class NoDefaultModel(InvalidInput):
    """There is no default model."""

    code = "NO_DEFAULT_MODEL"


@dataclass(frozen=True)
class AvailableModels:
    """The models that sessions may use."""

    routes: ModelRoutes
    default: DefaultModel

    def resolve(self, name: str | None) -> str:
        """Return the name if the model is served.

        Raises `UnknownSessionModel`, `InvalidInput` for a pattern, `NoDefaultModel` for None.
        """
        if name is None:
            known_models = self.routes.known_models()
            advice = f"choose one of these: {known_models}" if known_models else self.routes.connect_advice("")
            raise NoDefaultModel(f"There is no default model; {advice}.", params={"known": known_models})
        try:
            self.routes.resolve(name)
        except ModelNotFound as error:
            raise UnknownSessionModel(error.message, params=error.params) from None
        return name

    def has(self, name: str) -> bool:
        """Return whether a model is served."""
        try:
            self.routes.resolve(name)
        except (NotFound, InvalidInput):
            return False
        return True


def resolve_sandbox_kinds(config: Config, requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested sandbox kinds without duplicates, or the configured ones. Raises `InvalidInput`."""
    known = SandboxKinds.load_installed(config)
    names = config.chat.kinds if requested is None else requested
    return tuple(dict.fromkeys(known.get(name).name for name in names))

"""Who can work in a session, with which model and in which sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from paddock.config.schema import Config
from paddock.errors import InvalidInput
from paddock.fleet.kinds import Kinds
from paddock.llm.routes import pattern_refused

DefaultModel: TypeAlias = Callable[[], Awaitable[str | None]]
"""Finds the model of sessions that name none."""
ACP = "acp"
PROGRAMS = ("claude-code", "gemini-cli", "opencode", "qwen-code", "codex")
"""Agent programs, which speak the Agent Client Protocol in a sandbox of their own."""


def known_agents(engines: Collection[str]) -> Sequence[str]:
    """All names that a session may have as its agent."""
    programs = PROGRAMS if ACP in engines else ()
    return [*sorted(name for name in engines if name != ACP), *programs]


def engine_of(agent: str, engines: Collection[str]) -> str:
    """Which engine makes an agent work. Raises `InvalidInput` that tells which agents there are."""
    known = known_agents(engines)
    if agent not in known:
        raise InvalidInput(f"there is no agent {agent[:80]!r}; there are {', '.join(known) or 'none'}")
    return ACP if agent in PROGRAMS else agent


def model_for(config: Config, name: str | None) -> str:
    """The name of a model that answers. Raises `InvalidInput`, also if there is no name."""
    models = ", ".join(config.llm.models)
    if name is None:
        hint = f"name one that fits {models}" if models else "set llm.providers and llm.models"
        raise InvalidInput(f"there is no model to talk to; {hint}")
    if "*" in name:
        raise pattern_refused(name)
    if not config.llm.serves(name):
        raise InvalidInput(f"there is no model {name[:200]!r}; there are {models or 'none: set llm.models'}")
    return name


def kinds_for(config: Config, asked: Sequence[str] | None) -> tuple[str, ...]:
    """The kinds of sandbox that are asked for, each once, or those of the configuration. Raises `InvalidInput`."""
    known = Kinds.load(config)
    wanted = config.chat.kinds if asked is None else asked
    return tuple(dict.fromkeys(known.get(name).name for name in wanted))

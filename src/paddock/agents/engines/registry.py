"""Finds engines by name: those of Paddock and those of plugins, through the same door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Self

from paddock.agents.engines.base import Engine
from paddock.auth.keys import Keys
from paddock.config.schema import Config
from paddock.errors import ConfigError, InvalidInput
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.live import Live
from paddock.sandbox.images import ImageStore
from paddock.store.database import Store

ENGINES = "paddock.engines"
_EXTRAS = {"agentscope": "agentscope"}
"""Engines that need an extra of the package: the name of engine and extra, and the module it brings."""


def installed() -> Mapping[str, str | None]:
    """The engines there are, each with what to do if it cannot be used; nothing is loaded, which may take seconds."""
    missing = {name: _how_to_install(name) for name, module in _EXTRAS.items() if not find_spec(module)}
    return {entry.name: missing.get(entry.name) for entry in sorted(entry_points(group=ENGINES))}


def _how_to_install(engine: str) -> str:
    return f"pip install 'paddock[{engine}]'" if engine in _EXTRAS else "pip install --force-reinstall paddock"


@dataclass(frozen=True)
class Means:
    """What an engine is made with."""

    config: Config
    store: Store
    events: EventLog
    fleet: Fleet
    live: Live
    keys: Keys
    images: ImageStore


class Engines:
    """All engines that are installed; each is made when it is first asked for."""

    def __init__(self, means: Means, found: Mapping[str, EntryPoint]) -> None:
        self._means = means
        self._found = found
        self._made: dict[str, Engine] = {}

    @classmethod
    def load(cls, means: Means) -> Self:
        return cls(means, {entry.name: entry for entry in entry_points(group=ENGINES)})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._found))

    def get(self, name: str) -> Engine:
        """Raises `InvalidInput` for a name that is unknown, `ConfigError` for an engine whose packages are missing."""
        if name not in self._made:
            if name not in self._found:
                raise InvalidInput(f"there is no engine {name[:100]!r}; there are {', '.join(self.names)}")
            try:
                kind: type[Engine] = self._found[name].load()
                self._made[name] = kind(self._means)  # type: ignore[call-arg]
            except ImportError as error:
                raise ConfigError(
                    f"the engine {name} cannot be loaded ({error}); install it: {_how_to_install(name)}"
                ) from error
        return self._made[name]

    async def close(self) -> None:
        while self._made:
            await self._made.popitem()[1].close()

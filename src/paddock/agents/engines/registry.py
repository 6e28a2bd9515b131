"""Registry of engines: finds built-in engines and plugins by entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Self

from paddock.agents.engines.base import Engine
from paddock.auth.api_keys import ApiKeys
from paddock.config.schema import Config
from paddock.errors import ConfigError, InvalidInput, PaddockError
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.services import LiveServices
from paddock.mcp.gateway.chat_tools import ChatTools
from paddock.sandbox.images import ImageStore
from paddock.store.database import Store

ENTRY_POINT_GROUP = "paddock.engines"
_EXTRAS = {"agentscope": "agentscope"}
"""Engines that need an extra of the package, with the module that the extra installs."""


def list_installed_engines() -> Mapping[str, str | None]:
    """List engines, each with the install command if its packages are missing. Loads no engine, which is slow."""
    missing = {name: _install_command(name) for name, module in _EXTRAS.items() if not find_spec(module)}
    return {entry.name: missing.get(entry.name) for entry in sorted(entry_points(group=ENTRY_POINT_GROUP))}


def _install_command(engine: str) -> str:
    return f"pip install 'paddock[{engine}]'" if engine in _EXTRAS else "pip install --force-reinstall paddock"


@dataclass(frozen=True)
class EngineDependencies:
    """Dependencies handed to every engine."""

    config: Config
    store: Store
    events: EventLog
    fleet: Fleet
    live: LiveServices
    keys: ApiKeys
    images: ImageStore
    mcp: ChatTools | None = None


class EngineRegistry:
    """All installed engines; each is created on first use."""

    def __init__(self, dependencies: EngineDependencies, entry_points_by_name: Mapping[str, EntryPoint]) -> None:
        self._dependencies = dependencies
        self._entry_points = entry_points_by_name
        self._engines: dict[str, Engine] = {}

    @classmethod
    def load(cls, dependencies: EngineDependencies) -> Self:
        return cls(dependencies, {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entry_points))

    def get(self, name: str) -> Engine:
        """Raises `InvalidInput` for a name that is unknown, `ConfigError` for an engine that cannot be loaded."""
        if name not in self._engines:
            if name not in self._entry_points:
                raise InvalidInput(f"there is no engine {name[:100]!r}; there are {', '.join(self.names)}")
            try:
                engine_class: type[Engine] = self._entry_points[name].load()
                self._engines[name] = engine_class(self._dependencies)  # type: ignore[call-arg]
            except ImportError as error:
                raise ConfigError(
                    f"the engine {name} cannot be loaded ({error}); install it: {_install_command(name)}"
                ) from error
            except PaddockError:
                raise
            except Exception as error:
                # Packages can fail in any way while they are imported.
                raise ConfigError(
                    f"the engine {name} cannot be loaded ({type(error).__name__}: {error}); "
                    "correct the cause and restart the server"
                ) from error
        return self._engines[name]

    async def close(self) -> None:
        while self._engines:
            await self._engines.popitem()[1].close()

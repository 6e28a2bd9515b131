"""Everything live in one hand, for those who serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet


@dataclass
class Live:
    """What the API is handed; each part closes with it."""

    fleet: Fleet

    @classmethod
    async def open(cls, fleet: Fleet, events: EventLog, config: Config) -> Self:
        return cls(fleet=fleet)

    async def close(self) -> None:
        """Let viewers go. Boxes, their desktops and terminals go on."""

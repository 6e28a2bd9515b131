"""Everything live in one hand, for those who serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from paddock.auth.tickets import Tickets
from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.desktops import Desktops
from paddock.live.displays import Displays
from paddock.live.hands import Hands
from paddock.live.leases import Leases
from paddock.live.recordings import Recordings
from paddock.live.screens import Screens
from paddock.live.terminals import Terminals
from paddock.live.updates import Updates


@dataclass
class Live:
    """What the API is handed; each part closes with it."""

    fleet: Fleet
    leases: Leases
    tickets: Tickets
    desktops: Desktops
    updates: Updates
    displays: Displays
    hands: Hands
    terminals: Terminals
    screens: Screens
    recordings: Recordings

    @classmethod
    async def open(cls, fleet: Fleet, events: EventLog, config: Config) -> Self:
        leases = Leases(fleet, events)
        updates = Updates(events)
        displays = Displays(fleet, updates)
        recordings = Recordings(fleet, config.data / "recordings", config.live)
        await recordings.open()
        return cls(
            fleet=fleet,
            leases=leases,
            tickets=Tickets(),
            desktops=Desktops(fleet, leases, config.live),
            updates=updates,
            displays=displays,
            hands=Hands(fleet, leases, updates),
            terminals=Terminals(fleet, leases, leases.deeds),
            screens=Screens(fleet, updates, most=config.live.wall_rate),
            recordings=recordings,
        )

    def stop(self) -> None:
        """Ask viewers to leave, because the server does."""
        self.desktops.stop()

    async def close(self) -> None:
        """Let viewers go. Boxes, their desktops and terminals go on."""
        await self.terminals.close()
        await self.screens.close()
        await self.recordings.close()
        await self.displays.close()
        await self.leases.close()
        await self.updates.close()

"""Builds and closes the live services: viewers, leases, tools, terminals and recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from paddock.auth.tickets import OneTimeTickets
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.desktop.display_watcher import DisplayWatcher
from paddock.live.desktop.screen_streams import ScreenStreams
from paddock.live.desktop.viewers import DesktopViewers
from paddock.live.input_leases import InputLeases
from paddock.live.recording.manager import RecordingManager
from paddock.live.terminal.registry import TerminalRegistry
from paddock.live.throttled_events import ThrottledEvents
from paddock.live.tools.tool_caller import ToolCaller


@dataclass
class LiveServices:
    """The live services that the API uses."""

    fleet: Fleet
    leases: InputLeases
    tickets: OneTimeTickets
    desktops: DesktopViewers
    throttled_events: ThrottledEvents
    display_watcher: DisplayWatcher
    tools: ToolCaller
    terminals: TerminalRegistry
    screens: ScreenStreams
    recordings: RecordingManager

    @classmethod
    async def open(cls, fleet: Fleet, events: EventLog, config: Config) -> Self:
        leases = InputLeases(fleet, events)
        throttled_events = ThrottledEvents(events)
        display_watcher = DisplayWatcher(fleet, throttled_events)
        recordings = RecordingManager(fleet, config.data / "recordings", config.live)
        await recordings.open()
        return cls(
            fleet=fleet,
            leases=leases,
            tickets=OneTimeTickets(),
            desktops=DesktopViewers(fleet, leases, config.live),
            throttled_events=throttled_events,
            display_watcher=display_watcher,
            tools=ToolCaller(fleet, leases, throttled_events),
            terminals=TerminalRegistry(fleet, leases, leases.takeovers),
            screens=ScreenStreams(fleet, throttled_events, max_rate=config.live.wall_rate),
            recordings=recordings,
        )

    def stop(self) -> None:
        """Disconnect desktop viewers because the server is stopping."""
        self.desktops.stop()

    async def close(self) -> None:
        """Disconnect viewers and close all services. Sandboxes keep running."""
        await self.terminals.close()
        await self.screens.close()
        await self.recordings.close()
        await self.display_watcher.close()
        await self.leases.close()
        await self.throttled_events.close()

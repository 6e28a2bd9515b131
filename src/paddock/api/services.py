"""What the routes are handed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.telemetry.exposition import Traffic
from paddock.telemetry.logs import LogRing
from paddock.telemetry.loop import LoopMonitor

if TYPE_CHECKING:
    from paddock.agents.sessions import Sessions
    from paddock.auth.keys import Keys
    from paddock.auth.logins import Logins
    from paddock.config.schema import Config
    from paddock.events.log import EventLog
    from paddock.fleet.fleet import Fleet
    from paddock.live.live import Live
    from paddock.llm.archive.archive import Archive
    from paddock.llm.budgets import Budgets
    from paddock.llm.gateway import Gateway
    from paddock.llm.usage import Ledger
    from paddock.runs.runs import Runs
    from paddock.sandbox.images import BuildJobs, ImageStore
    from paddock.store.counts import Counts
    from paddock.store.series import SeriesStore


@dataclass(frozen=True)
class Services:
    config: Config
    fleet: Fleet
    keys: Keys
    logins: Logins
    images: ImageStore
    builds: BuildJobs
    events: EventLog
    gateway: Gateway
    runs: Runs
    live: Live
    sessions: Sessions
    counts: Counts
    series: SeriesStore
    ready: Callable[[], Awaitable[None]]
    """Raises `Unavailable` while the database cannot be read and written."""
    log: LogRing = field(default_factory=LogRing)
    traffic: Traffic = field(default_factory=Traffic)
    loop: LoopMonitor = field(default_factory=LoopMonitor)

    @property
    def archive(self) -> Archive:
        return self.gateway.archive

    @property
    def ledger(self) -> Ledger:
        return self.gateway.ledger

    @property
    def budgets(self) -> Budgets:
        return self.gateway.budgets

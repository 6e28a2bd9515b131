"""What the routes are handed."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.auth.keys import Keys
from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.sandbox.images import ImageStore


@dataclass(frozen=True)
class Services:
    config: Config
    fleet: Fleet
    keys: Keys
    images: ImageStore
    events: EventLog

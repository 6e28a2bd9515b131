"""The append-only log of everything that happens."""

from paddock.events.log import EventLog

__all__ = ["EventLog"]

"""Log lines for what operators follow: sandboxes, runs and sessions that begin, change state and end."""

from __future__ import annotations

from typing import Any

import structlog

from paddock.model.events import Event, EventType

LOGGED = frozenset(
    {
        EventType.SANDBOX_CREATED,
        EventType.SANDBOX_RUNNING,
        EventType.SANDBOX_PAUSED,
        EventType.SANDBOX_RESUMED,
        EventType.SANDBOX_ADOPTED,
        EventType.SANDBOX_ENDED,
        EventType.SNAPSHOT_READY,
        EventType.POOL_CREATED,
        EventType.POOL_DELETED,
        EventType.INPUT_TAKEN,
        EventType.INPUT_RELEASED,
        EventType.RUN_QUEUED,
        EventType.RUN_STARTED,
        EventType.RUN_SANDBOX,
        EventType.RUN_ENDED,
        EventType.SESSION_CREATED,
        EventType.SESSION_DELETED,
        EventType.TURN_STARTED,
        EventType.TURN_ENDED,
        EventType.APPROVAL_REQUIRED,
        EventType.APPROVAL_DECIDED,
    }
)
FAILURES = frozenset(
    {
        EventType.SANDBOX_FAILED,
        EventType.SNAPSHOT_FAILED,
        EventType.DISK_FULL,
        EventType.OUT_OF_MEMORY,
        EventType.RUN_RETRYING,
        EventType.TURN_ERROR,
    }
)
_FIELDS = ("image", "kind", "model", "attempt", "sandbox_id", "state", "ended_by", "code")
_REASONED = ("run", "sandbox", "snapshot")
"""Streams whose reasons are the server's own words. What agents and people write is never logged."""
_LONGEST = 200
log = structlog.get_logger()


def log_event(event: Event) -> None:
    """Write the log line of an event, if operators follow events of its type."""
    if event.type not in LOGGED and event.type not in FAILURES:
        return
    subject, _, identity = event.stream.partition("/")
    fields: dict[str, Any] = {subject: identity, "tenant": event.tenant}
    for name in (*_FIELDS, "reason") if subject in _REASONED else _FIELDS:
        value = event.data.get(name)
        if isinstance(value, str):
            fields[name] = value[:_LONGEST]
        elif isinstance(value, int | float):
            fields[name] = value
    if event.type in FAILURES:
        log.warning(event.type.value, **fields)
    else:
        log.info(event.type.value, **fields)

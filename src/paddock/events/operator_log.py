"""Writes log lines for events that operators follow: state changes of sandboxes, runs and sessions."""

from __future__ import annotations

from typing import Any

import structlog

from paddock.model.events import EventRecord, EventType

LOGGED_TYPES = frozenset(
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
FAILURE_TYPES = frozenset(
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
_STREAMS_WITH_REASON = ("run", "sandbox", "snapshot")
"""Streams whose reasons are server text. Text of agents and people is never logged."""
_MAX_FIELD_LENGTH = 200
log = structlog.get_logger()


def log_operator_event(event: EventRecord) -> None:
    """Write the log line of an event if its type is one that operators follow."""
    if event.type not in LOGGED_TYPES and event.type not in FAILURE_TYPES:
        return
    subject, _, identity = event.stream.partition("/")
    fields: dict[str, Any] = {subject: identity, "tenant": event.tenant}
    for name in (*_FIELDS, "reason") if subject in _STREAMS_WITH_REASON else _FIELDS:
        value = event.data.get(name)
        if isinstance(value, str):
            fields[name] = value[:_MAX_FIELD_LENGTH]
        elif isinstance(value, int | float):
            fields[name] = value
    if event.type in FAILURE_TYPES:
        log.warning(event.type.value, **fields)
    else:
        log.info(event.type.value, **fields)

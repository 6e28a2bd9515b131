"""Event log entries of sessions."""

from __future__ import annotations

from datetime import datetime

from paddock.model.session_events import SessionEvent
from paddock.model.sessions import Session
from paddock.store.event_store import NewEvent


def session_stream_name(session_id: str) -> str:
    """Return the name of a session's event stream."""
    return f"session/{session_id}"


def session_log_entries(session: Session, *events: SessionEvent, at: datetime | None = None) -> list[NewEvent]:
    """Return event log entries of a session."""
    stream = session_stream_name(session.id)
    return [NewEvent(stream, event.event, event.data(), session.tenant, at) for event in events]

"""What happens in a session, as the log takes it."""

from __future__ import annotations

from datetime import datetime

from paddock.model.session_events import SessionEvent
from paddock.model.sessions import Session
from paddock.store.events import Happening


def stream_of(session_id: str) -> str:
    """The name of the stream in which a session's events are told."""
    return f"session/{session_id}"


def happening(session: Session, *events: SessionEvent, at: datetime | None = None) -> list[Happening]:
    """Events of a session, as the log takes them."""
    stream = stream_of(session.id)
    return [Happening(stream, event.event, event.data(), session.tenant, at) for event in events]

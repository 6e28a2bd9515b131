"""Forks: new sessions that start with a part of another session's messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.errors import NotFound
from paddock.fleet.fleet_requests import new_id
from paddock.model.sessions import Session, SessionMessage, SessionOrigin, SessionState, SessionUsage


def messages_up_to(messages: Sequence[SessionMessage], message_id: str) -> list[SessionMessage]:
    """Return messages up to one, including the results of its calls. Raises `NotFound`."""
    index = next((index for index, each in enumerate(messages) if each.id == message_id), None)
    if index is None:
        raise NotFound(f"The session has no message {message_id[:80]!r}.")
    end = index + 1
    if messages[index].role in ("assistant", "tool"):
        while end < len(messages) and messages[end].role == "tool":
            end += 1
    return list(messages[:end])


def build_forked_session(
    source: Session, messages: Sequence[SessionMessage], message: str | None, title: str | None, by: str | None
) -> Session:
    """Build a session like `source`, with only these messages."""
    now = datetime.now(UTC)
    changes: dict[str, Any] = {
        "id": new_id("ses"),
        "title": (title or source.title).strip(),
        "state": SessionState.IDLE,
        "error": None,
        "turn": max((each.turn for each in messages), default=0),
        "plan": source.plan if message is None else (),
        "usage": SessionUsage(),
        "sandboxes": {},
        "origin": SessionOrigin(session=source.id, message=message),
        "created_by": by,
        "created_at": now,
        "changed_at": now,
    }
    return source.model_copy(update=changes)

"""Which part of a session a fork begins with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.errors import NotFound
from paddock.fleet.requests import new_id
from paddock.model.sessions import Message, Origin, Session, SessionState, SessionUsage


def up_to(said: Sequence[Message], message_id: str) -> list[Message]:
    """Messages up to one; of a step of the agent, with the results of all its calls. Raises `NotFound`."""
    place = next((place for place, each in enumerate(said) if each.id == message_id), None)
    if place is None:
        raise NotFound(f"The session has no message {message_id[:80]!r}.")
    end = place + 1
    if said[place].role in ("assistant", "tool"):
        while end < len(said) and said[end].role == "tool":
            end += 1
    return list(said[:end])


def forked(source: Session, said: Sequence[Message], message: str | None, title: str | None, by: str | None) -> Session:
    """A session like another, in which so far only this was said."""
    now = datetime.now(UTC)
    changes: dict[str, Any] = {
        "id": new_id("ses"),
        "title": (title or source.title).strip(),
        "state": SessionState.IDLE,
        "error": None,
        "turn": max((each.turn for each in said), default=0),
        "plan": source.plan if message is None else (),
        "usage": SessionUsage(),
        "sandboxes": {},
        "origin": Origin(session=source.id, message=message),
        "created_by": by,
        "created_at": now,
        "changed_at": now,
    }
    return source.model_copy(update=changes)

"""Cache of session messages. Messages never change, so only new ones are read from the store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from paddock.model.sessions import SessionMessage
from paddock.store.chat_sessions.session_store import SessionStore

MAX_CACHED_MESSAGES = 20_000
"""Messages cached over all sessions; the least recently used sessions are evicted first."""


class SessionMessageCache:
    """Least-recently-used cache of session messages."""

    def __init__(self, session_store: SessionStore, max_messages: int = MAX_CACHED_MESSAGES) -> None:
        self._session_store = session_store
        self._max_messages = max_messages
        self._cached: OrderedDict[str, tuple[SessionMessage, ...]] = OrderedDict()

    async def get_messages(self, session_id: str) -> Sequence[SessionMessage]:
        """Return all messages of a session, in order."""
        cached = self._cached.get(session_id, ())
        new_messages = await self._session_store.list_messages(session_id, after=cached[-1].number if cached else 0)
        messages = (*cached, *new_messages)
        self._cached[session_id] = messages
        self._cached.move_to_end(session_id)
        while sum(map(len, self._cached.values())) > self._max_messages and len(self._cached) > 1:
            self._cached.popitem(last=False)
        return messages

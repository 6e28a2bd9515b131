"""What was said in sessions that are talked in. Messages never change, so only those that are new are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from paddock.model.sessions import Message
from paddock.store.sessions import SessionStore

MOST = 20_000
"""Messages that are held of all sessions together; those of the sessions that were quiet longest go first."""


class Memory:
    """The messages of sessions, of which the latest are held."""

    def __init__(self, book: SessionStore, most: int = MOST) -> None:
        self._book = book
        self._most = most
        self._held: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def messages(self, session_id: str) -> Sequence[Message]:
        """All messages of a session, in order."""
        held = self._held.get(session_id, ())
        fresh = await self._book.messages(session_id, after=held[-1].number if held else 0)
        said = (*held, *fresh)
        self._held[session_id] = said
        self._held.move_to_end(session_id)
        while sum(map(len, self._held.values())) > self._most and len(self._held) > 1:
            self._held.popitem(last=False)
        return said

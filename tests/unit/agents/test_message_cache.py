from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.agents.turns.message_cache import SessionMessageCache
from paddock.model.sessions import Session, SessionMessage, TextContent
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class CountingSessionStore(SessionStore):
    """Counts the messages that are read."""

    read = 0

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.store = store

    async def list_messages(
        self, session_id: str, *, after: int = 0, limit: int | None = None, turn: int | None = None
    ) -> list[SessionMessage]:
        found = await super().list_messages(session_id, after=after, limit=limit, turn=turn)
        self.read += len(found)
        return found


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[CountingSessionStore]:
    async with await Store.open(tmp_path / "paddock.db") as store:
        yield CountingSessionStore(store)


async def create_session(session_store: CountingSessionStore, session: str) -> None:
    defaults = {"id": session, "tenant": "me", "agent": "langgraph", "engine": "langgraph", "model": "m"}
    new_session = Session(**defaults, created_at=NOW, changed_at=NOW)
    await session_store.store.write(lambda connection: SessionStore.insert_session(connection, new_session))


async def store_text(session_store: CountingSessionStore, session: str, text: str) -> None:
    content = (TextContent(text=text),)
    message = SessionMessage(id=f"{session}-{text}", session=session, turn=1, role="user", content=content, at=NOW)
    await session_store.store.write(lambda connection: SessionStore.store_message(connection, message))


async def test_only_new_messages_are_read(book: CountingSessionStore) -> None:
    cache = SessionMessageCache(book)
    await create_session(book, "ses-1")
    for number in range(5):
        await store_text(book, "ses-1", str(number))
    assert [message.text for message in await cache.get_messages("ses-1")] == list("01234")
    await store_text(book, "ses-1", "5")
    assert [message.text for message in await cache.get_messages("ses-1")] == list("012345")
    assert book.read == 6


async def test_least_recently_used_sessions_are_evicted(book: CountingSessionStore) -> None:
    cache = SessionMessageCache(book, max_messages=3)
    for session in ("ses-1", "ses-2"):
        await create_session(book, session)
        await store_text(book, session, "a")
        await store_text(book, session, "b")
        await cache.get_messages(session)
    book.read = 0
    await cache.get_messages("ses-2")
    assert book.read == 0
    assert [message.text for message in await cache.get_messages("ses-1")] == ["a", "b"]
    assert book.read == 2

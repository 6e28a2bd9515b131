from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.agents.turns.message_cache import MessageCache
from paddock.model.sessions import Session, SessionMessage, TextContent
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Counting(SessionStore):
    """Counts the messages that are read."""

    read = 0

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.store = store

    async def messages(
        self, session_id: str, *, after: int = 0, limit: int | None = None, turn: int | None = None
    ) -> list[SessionMessage]:
        found = await super().messages(session_id, after=after, limit=limit, turn=turn)
        self.read += len(found)
        return found


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Counting]:
    async with await Store.open(tmp_path / "paddock.db") as store:
        yield Counting(store)


async def begin(book: Counting, session: str) -> None:
    about = {"id": session, "tenant": "me", "agent": "langgraph", "engine": "langgraph", "model": "m"}
    made = Session(**about, created_at=NOW, changed_at=NOW)
    await book.store.write(lambda connection: SessionStore.begin(connection, made))


async def say(book: Counting, session: str, text: str) -> None:
    content = (TextContent(text=text),)
    said = SessionMessage(id=f"{session}-{text}", session=session, turn=1, role="user", content=content, at=NOW)
    await book.store.write(lambda connection: SessionStore.keep(connection, said))


async def test_only_what_is_new_is_read(book: Counting) -> None:
    memory = MessageCache(book)
    await begin(book, "ses-1")
    for number in range(5):
        await say(book, "ses-1", str(number))
    assert [message.text for message in await memory.get_messages("ses-1")] == list("01234")
    await say(book, "ses-1", "5")
    assert [message.text for message in await memory.get_messages("ses-1")] == list("012345")
    assert book.read == 6


async def test_sessions_that_were_quiet_longest_are_let_go(book: Counting) -> None:
    memory = MessageCache(book, max_messages=3)
    for session in ("ses-1", "ses-2"):
        await begin(book, session)
        await say(book, session, "a")
        await say(book, session, "b")
        await memory.get_messages(session)
    book.read = 0
    await memory.get_messages("ses-2")
    assert book.read == 0
    assert [message.text for message in await memory.get_messages("ses-1")] == ["a", "b"]
    assert book.read == 2

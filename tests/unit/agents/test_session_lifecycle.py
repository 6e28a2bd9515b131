"""Sessions are created, changed, listed, copied and deleted."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.agents.engines.base import Engine, Turn, TurnDone, TurnInput, TurnOutcome
from paddock.agents.sessions import maintenance
from paddock.agents.sessions.agent_choice import UnknownSessionModel
from paddock.agents.sessions.service import CreateSessionRequest, MessageRequest, UpdateSessionRequest, session_cursor
from paddock.errors import InvalidInput, NotFound, QuotaExceeded, SessionNotFound
from paddock.model.events import EventRecord
from paddock.model.sessions import (
    LARGEST_MESSAGE,
    FileContent,
    ToolCall,
)
from paddock.store.chat_sessions.session_store import SessionStore
from tests.unit.agents.session_harness import (
    PNG,
    TENANT,
    ScriptedEngine,
    SessionHarness,
    open_session_harness,
    reply_done,
    write_reply,
)

pytestmark = pytest.mark.anyio


async def forever(turn: Turn, given: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    await asyncio.Event().wait()
    raise AssertionError


async def test_what_cannot_be_is_said_in_words(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done), sessions=2, file_size=1024) as at:
        for settings, words in (
            ({"agent": "nobody"}, "planned, claude-code, gemini-cli"),
            ({"model": "huge"}, "small"),
            ({"kinds": ("cod",)}, "did you mean code"),
        ):
            with pytest.raises(InvalidInput, match=words):
                await at.begin(**settings)
        session = await at.begin(model="large-one", agent="codex", kinds=("code", "code"))
        assert (session.engine, session.kinds) == ("acp", ("code",))
        for written, words in (
            (MessageRequest(text="x" * (LARGEST_MESSAGE + 1)), "characters"),
            (MessageRequest(text=" \n"), "empty"),
            (MessageRequest(), "empty"),
            (MessageRequest.model_validate({"content": [{"type": "file", "data": "?"}]}), "Base64"),
            (
                MessageRequest.model_validate({"content": [{"type": "file", "data": "A" * 2000, "name": "b"}]}),
                "b is too",
            ),
            (MessageRequest.model_validate({"content": [{"type": "file", "data": "AAAA"}] * 21}), "20 files"),
        ):
            with pytest.raises(InvalidInput, match=words):
                await at.sessions.send_message(TENANT, session.id, written, "ann")
        assert await at.sessions.list_messages(TENANT, session.id) == [] and (await at.now(session)).turn == 0
        await at.begin()
        with pytest.raises(QuotaExceeded):
            await at.begin()
        for ask in (at.sessions.get, at.sessions.list_messages, at.sessions.delete):
            with pytest.raises(SessionNotFound):
                await ask("other", session.id)
        with pytest.raises(SessionNotFound):
            await at.sessions.send_message("other", session.id, MessageRequest(text="hi"), "eve")
        with pytest.raises(SessionNotFound):
            await at.sessions.cancel_turn("other", session.id, "eve")


async def test_files_of_a_message_are_kept_and_found(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        session = await at.begin()
        parts = [
            {"type": "text", "text": "look"},
            {"type": "file", "name": "../a/shot", "data": base64.b64encode(PNG).decode()},
            {"type": "image", "name": "t.csv", "mime": "text/csv", "data": base64.b64encode(b"a,b").decode()},
        ]
        sent = await at.sessions.send_message(
            TENANT, session.id, MessageRequest.model_validate({"content": parts}), "ann"
        )
        _, picture, table = sent.message.content
        assert isinstance(picture, FileContent) and isinstance(table, FileContent)
        assert (picture.type, picture.name, picture.mime) == ("image", "shot", "image/png")
        assert (table.type, table.name, table.mime, table.size) == ("file", "t.csv", "text/csv", 3)
        path, found = await at.sessions.find_attachment(TENANT, session.id, table.file)
        assert path.read_bytes() == b"a,b" and found == table and path.stat().st_mode & 0o777 == 0o600
        assert (await at.sessions.find_attachment(TENANT, session.id, picture.file))[1].mime == "image/png"
        for name in ("0" * 64, "../../paddock.db"):
            with pytest.raises(NotFound):
                await at.sessions.find_attachment(TENANT, session.id, name)


async def test_changing_a_session(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        session = await at.begin(budget=1000)
        patch = UpdateSessionRequest(title="Better", kinds=("linux",), budget=None)
        changed = await at.sessions.update(TENANT, session.id, patch, "ann")
        assert (changed.title, changed.kinds, changed.budget, changed.model) == ("Better", ("linux",), None, "small")
        assert (await at.told(session))[-1].data == {"title": "Better", "kinds": ["linux"], "by": "ann"}
        with pytest.raises(UnknownSessionModel, match=r"There is no model 'huge'\. Models: .*small") as caught:
            await at.sessions.update(TENANT, session.id, UpdateSessionRequest(model="huge"), "ann")
        assert caught.value.params["model"] == "huge"
        with pytest.raises(InvalidInput, match="is a pattern"):
            await at.sessions.update(TENANT, session.id, UpdateSessionRequest(model="large-*"), "ann")
        assert await at.sessions.update(TENANT, session.id, UpdateSessionRequest(), "ann") == changed


async def test_a_fork_has_what_was_said_up_to_a_message(tmp_path: Path) -> None:
    calls = (ToolCall(id="call-1", name="code_look"), ToolCall(id="call-2", name="code_look", arguments={"n": 1}))

    async def works(turn: Turn, given: TurnInput) -> TurnOutcome:
        await write_reply(turn, "I look", calls)
        for call in calls:
            await turn.call_tool(call)
        await write_reply(turn, "It is fine")
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(works, reply_done)) as at:
        session = await at.begin(title="First")
        picture = {"type": "file", "data": base64.b64encode(PNG).decode()}
        content = MessageRequest.model_validate({"content": [{"type": "text", "text": "look"}, picture]})
        await at.sessions.send_message(TENANT, session.id, content, "ann")
        await at.ended(session)
        said = await at.sessions.list_messages(TENANT, session.id)
        assert [message.role for message in said] == ["user", "assistant", "tool", "tool", "assistant"]
        forks = [
            await at.sessions.fork(TENANT, session.id, message=message, title=None, by="bob")
            for message in (said[0].id, said[1].id, said[2].id, None)
        ]
        counts = [len(await at.sessions.list_messages(TENANT, fork.id)) for fork in forks]
        assert counts == [1, 4, 4, 5]
        assert [fork.origin.message for fork in forks if fork.origin] == [said[0].id, said[1].id, said[2].id, None]
        whole = await at.sessions.list_messages(TENANT, forks[-1].id)
        assert [m.model_copy(update={"session": session.id}) for m in whole] == said
        await at.sessions.delete(TENANT, session.id)
        shas = [part.file for part in said[0].content if isinstance(part, FileContent)]
        assert await at.files.read_file(forks[0].id, shas[0]) == PNG
        await at.say(forks[0], "on")
        await at.ended(forks[0], turn=2)
        with pytest.raises(NotFound):
            await at.sessions.fork(TENANT, forks[0].id, message="nothing", title=None, by="bob")


async def told_so_far(at: SessionHarness, sequence: int) -> AsyncIterator[EventRecord]:
    """Return the events that a follower of all sessions gets."""
    async for event in at.events.follow(after=0):
        yield event
        if event.sequence >= sequence:
            return


async def test_who_follows_a_session_is_told_its_end(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        session = await at.begin()
        end = await at.events.newest_number(f"session/{session.id}")
        followed = asyncio.create_task(at.until(session, lambda event: event.number > end))
        await at.sessions.delete(TENANT, session.id)
        assert (await followed).type == "session.deleted"


async def test_deleting_leaves_nothing_but_that_it_was_deleted(tmp_path: Path) -> None:
    engine = ScriptedEngine(forever)
    async with open_session_harness(tmp_path, engine) as at:
        session, other = await at.begin(), await at.begin()
        await at.sessions.send_message(
            TENANT, session.id, MessageRequest.model_validate({"content": [{"type": "file", "data": "AAAA"}]}), "ann"
        )
        await at.say(session, "pelican")
        await at.say(other, "pelican")
        await at.sessions.delete(TENANT, session.id)
        with pytest.raises(SessionNotFound):
            await at.now(session)
        with pytest.raises(SessionNotFound):
            await at.say(session, "hello?")
        assert [hit.session for hit in await at.sessions.search_messages(TENANT, "pelican")] == [other.id]
        assert not (at.config.data / "sessions" / session.id).exists()
        (last,) = await at.told(session)
        assert last.type == "session.deleted" and last.number > 5 and last.data == {}
        everything = [event async for event in told_so_far(at, last.sequence)]
        assert {event.type.value for event in everything if event.stream == last.stream} == {"session.deleted"}
        assert any("pelican" in event.model_dump_json() for event in everything if event.stream != last.stream)
        assert at.toolbox.forgotten == [session.id]
        assert engine.released == at.session_model.forgotten == [session.id]


async def test_sandboxes_of_idle_sessions_are_released(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(forever), idle_time=1) as at:
        idle, busy, bare = [await at.begin() for _ in range(3)]
        await at.say(busy, "work")
        for session in (idle, busy):
            now = datetime.now(UTC)
            await at.store.write(
                lambda connection, id=session.id, now=now: SessionStore.alter(  # type: ignore[misc]
                    connection, id, {"sandboxes": {"code": "sb-1"}}, now
                )
            )
        async with asyncio.timeout(10):
            while not at.toolbox.released:
                await asyncio.sleep(0.01)
        assert set(at.toolbox.released) == {(idle.id, "idle")} and bare.sandboxes == {}


async def test_sandboxes_that_somebody_watches_are_kept_and_waiting_ones_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "WAITING_IDLE_FACTOR", 3)
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done), idle_time=1) as at:
        watched, waiting = [await at.begin() for _ in range(2)]
        at.toolbox.attending.add(watched.id)
        begun = datetime.now(UTC)
        for session, state in ((watched, "idle"), (waiting, "waiting")):
            changes = {"sandboxes": {"code": "sb-1"}, "state": state}
            await at.store.write(
                lambda connection, id=session.id, changes=changes: SessionStore.alter(  # type: ignore[misc]
                    connection, id, changes, begun
                )
            )
        async with asyncio.timeout(15):
            while not at.toolbox.released:
                await asyncio.sleep(0.01)
        assert at.toolbox.released[0] == (waiting.id, "idle")
        assert (datetime.now(UTC) - begun).total_seconds() >= 3
        at.toolbox.attending.clear()
        async with asyncio.timeout(15):
            while (watched.id, "idle") not in at.toolbox.released:
                await asyncio.sleep(0.01)


async def test_sessions_are_listed_by_their_last_change(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        some = [await at.begin(title=f"number 1{number}%") for number in range(5)]
        await at.sessions.create("other", CreateSessionRequest(), "eve")
        await at.sessions.update(TENANT, some[0].id, UpdateSessionRequest(title="first"), "ann")
        first = await at.sessions.list(TENANT, limit=2)
        assert [each.id for each in first] == [some[0].id, some[4].id]
        for place in (first[-1].id, session_cursor(first[-1])):
            rest = await at.sessions.list(TENANT, before=place)
            assert [each.id for each in rest] == [some[3].id, some[2].id, some[1].id]
        assert [each.id for each in await at.sessions.list(TENANT, query="14%")] == [some[4].id]
        assert await at.sessions.list(TENANT, query="1%2") == []
        with pytest.raises(InvalidInput):
            await at.sessions.list(TENANT, before="soon_ses-1")


async def test_an_engine_is_loaded_when_its_first_session_begins(tmp_path: Path) -> None:
    """So that the first message does not wait for it."""
    loaded = asyncio.Event()
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        loop = asyncio.get_running_loop()

        def get(name: str) -> Engine:
            loop.call_soon_threadsafe(loaded.set)
            return at.engine

        at.engines.get = get  # type: ignore[method-assign]
        await at.begin()
        async with asyncio.timeout(10):
            await loaded.wait()

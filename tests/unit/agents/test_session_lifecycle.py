"""Sessions are created, changed, listed, copied and deleted."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.agents.engines.base import Engine, Turn, TurnDone, TurnInput, TurnOutcome
from paddock.agents.sessions import session_maintenance
from paddock.agents.sessions.agent_choice import UnknownSessionModel
from paddock.agents.sessions.session_service import (
    CreateSessionRequest,
    MessageRequest,
    UpdateSessionRequest,
    session_cursor,
)
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


async def run_until_cancelled(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    await asyncio.Event().wait()
    raise AssertionError


async def test_network_of_a_session_is_changed_in_its_sandboxes(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        assert (await harness.create_session()).network is None
        session = await harness.create_session(network="packages")
        assert session.network == ("allow packages",)
        update, by = harness.sessions.update, "me"
        changed = await update(TENANT, session.id, UpdateSessionRequest(network=["b.org", {"deny": "a.org"}]), by)
        assert changed.network == ("allow b.org", "deny a.org")
        assert (await update(TENANT, session.id, UpdateSessionRequest(title="other"), by)).network == changed.network
        assert (await update(TENANT, session.id, UpdateSessionRequest(network="none"), by)).network == ()
        assert harness.toolbox.networks == [changed.network, ()]
        restored = await update(TENANT, session.id, UpdateSessionRequest(network=None), by)
        assert restored.network is None and (await harness.sessions.get(TENANT, session.id)).network is None
        assert harness.toolbox.networks[2:] == [None]
        events = [event.data for event in await harness.list_events(session) if event.type == "session.changed"]
        assert events[-1]["default_network"] is True and "network" not in events[-1]
        await update(TENANT, session.id, UpdateSessionRequest(network="none"), by)
        harness.toolbox.refused_network = ("allow open",)
        with pytest.raises(InvalidInput, match="have no network"):
            await harness.create_session(network="open")
        with pytest.raises(InvalidInput, match="have no network"):
            await update(TENANT, session.id, UpdateSessionRequest(network="open"), by)
        assert (await harness.sessions.get(TENANT, session.id)).network == ()


async def test_invalid_requests_have_clear_errors(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done), sessions=2, file_size=1024) as harness:
        for settings, expected_text in (
            ({"agent": "nobody"}, "planned, claude-code, gemini-cli"),
            ({"model": "huge"}, "small"),
            ({"kinds": ("cod",)}, "did you mean code"),
        ):
            with pytest.raises(InvalidInput, match=expected_text):
                await harness.create_session(**settings)
        session = await harness.create_session(model="large-one", agent="codex", kinds=("code", "code"))
        assert (session.engine, session.kinds) == ("acp", ("code",))
        for message_request, expected_text in (
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
            with pytest.raises(InvalidInput, match=expected_text):
                await harness.sessions.send_message(TENANT, session.id, message_request, "ann")
        assert (
            await harness.sessions.list_messages(TENANT, session.id) == []
            and (await harness.load_session(session)).turn == 0
        )
        await harness.create_session()
        with pytest.raises(QuotaExceeded):
            await harness.create_session()
        for method in (harness.sessions.get, harness.sessions.list_messages, harness.sessions.delete):
            with pytest.raises(SessionNotFound):
                await method("other", session.id)
        with pytest.raises(SessionNotFound):
            await harness.sessions.send_message("other", session.id, MessageRequest(text="hi"), "eve")
        with pytest.raises(SessionNotFound):
            await harness.sessions.cancel_turn("other", session.id, "eve")


async def test_message_files_are_stored_and_found(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        session = await harness.create_session()
        parts = [
            {"type": "text", "text": "look"},
            {"type": "file", "name": "../a/shot", "data": base64.b64encode(PNG).decode()},
            {"type": "image", "name": "t.csv", "mime": "text/csv", "data": base64.b64encode(b"a,b").decode()},
        ]
        sent = await harness.sessions.send_message(
            TENANT, session.id, MessageRequest.model_validate({"content": parts}), "ann"
        )
        _, picture, table = sent.message.content
        assert isinstance(picture, FileContent) and isinstance(table, FileContent)
        assert (picture.type, picture.name, picture.mime) == ("image", "shot", "image/png")
        assert (table.type, table.name, table.mime, table.size) == ("file", "t.csv", "text/csv", 3)
        path, found = await harness.sessions.find_attachment(TENANT, session.id, table.file)
        assert path.read_bytes() == b"a,b" and found == table and path.stat().st_mode & 0o777 == 0o600
        assert (await harness.sessions.find_attachment(TENANT, session.id, picture.file))[1].mime == "image/png"
        for name in ("0" * 64, "../../paddock.db"):
            with pytest.raises(NotFound):
                await harness.sessions.find_attachment(TENANT, session.id, name)


async def test_update_changes_session_settings(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        session = await harness.create_session(budget=1000)
        patch = UpdateSessionRequest(title="Better", kinds=("linux",), budget=None)
        changed = await harness.sessions.update(TENANT, session.id, patch, "ann")
        assert (changed.title, changed.kinds, changed.budget, changed.model) == ("Better", ("linux",), None, "small")
        assert (await harness.list_events(session))[-1].data == {"title": "Better", "kinds": ["linux"], "by": "ann"}
        with pytest.raises(UnknownSessionModel, match=r"There is no model 'huge'\. Models: .*small") as raised:
            await harness.sessions.update(TENANT, session.id, UpdateSessionRequest(model="huge"), "ann")
        assert raised.value.params["model"] == "huge"
        with pytest.raises(InvalidInput, match="is a pattern"):
            await harness.sessions.update(TENANT, session.id, UpdateSessionRequest(model="large-*"), "ann")
        assert await harness.sessions.update(TENANT, session.id, UpdateSessionRequest(), "ann") == changed


async def test_fork_has_messages_up_to_a_message(tmp_path: Path) -> None:
    calls = (ToolCall(id="call-1", name="code_look"), ToolCall(id="call-2", name="code_look", arguments={"n": 1}))

    async def reply_with_calls(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        await write_reply(turn, "I look", calls)
        for call in calls:
            await turn.call_tool(call)
        await write_reply(turn, "It is fine")
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(reply_with_calls, reply_done)) as harness:
        session = await harness.create_session(title="First")
        picture = {"type": "file", "data": base64.b64encode(PNG).decode()}
        content = MessageRequest.model_validate({"content": [{"type": "text", "text": "look"}, picture]})
        await harness.sessions.send_message(TENANT, session.id, content, "ann")
        await harness.wait_for_turn_end(session)
        messages = await harness.sessions.list_messages(TENANT, session.id)
        assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
        forks = [
            await harness.sessions.fork(TENANT, session.id, message=message, title=None, by="bob")
            for message in (messages[0].id, messages[1].id, messages[2].id, None)
        ]
        counts = [len(await harness.sessions.list_messages(TENANT, fork.id)) for fork in forks]
        assert counts == [1, 4, 4, 5]
        assert [fork.origin.message for fork in forks if fork.origin] == [
            messages[0].id,
            messages[1].id,
            messages[2].id,
            None,
        ]
        copied = await harness.sessions.list_messages(TENANT, forks[-1].id)
        assert [m.model_copy(update={"session": session.id}) for m in copied] == messages
        await harness.sessions.delete(TENANT, session.id)
        shas = [part.file for part in messages[0].content if isinstance(part, FileContent)]
        assert await harness.files.read_file(forks[0].id, shas[0]) == PNG
        await harness.send_message(forks[0], "on")
        await harness.wait_for_turn_end(forks[0], turn=2)
        with pytest.raises(NotFound):
            await harness.sessions.fork(TENANT, forks[0].id, message="nothing", title=None, by="bob")


async def events_up_to(harness: SessionHarness, sequence: int) -> AsyncIterator[EventRecord]:
    """Return the events that a follower of all sessions gets."""
    async for event in harness.events.follow(after=0):
        yield event
        if event.sequence >= sequence:
            return


async def test_follower_of_session_gets_its_deletion(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        session = await harness.create_session()
        end = await harness.events.newest_number(f"session/{session.id}")
        followed = asyncio.create_task(harness.wait_for_event(session, lambda event: event.number > end))
        await harness.sessions.delete(TENANT, session.id)
        assert (await followed).type == "session.deleted"


async def test_deletion_leaves_only_the_deletion_event(tmp_path: Path) -> None:
    engine = ScriptedEngine(run_until_cancelled)
    async with open_session_harness(tmp_path, engine) as harness:
        session, other = await harness.create_session(), await harness.create_session()
        await harness.sessions.send_message(
            TENANT, session.id, MessageRequest.model_validate({"content": [{"type": "file", "data": "AAAA"}]}), "ann"
        )
        await harness.send_message(session, "pelican")
        await harness.send_message(other, "pelican")
        await harness.sessions.delete(TENANT, session.id)
        with pytest.raises(SessionNotFound):
            await harness.load_session(session)
        with pytest.raises(SessionNotFound):
            await harness.send_message(session, "hello?")
        assert [hit.session for hit in await harness.sessions.search_messages(TENANT, "pelican")] == [other.id]
        assert not (harness.config.data / "sessions" / session.id).exists()
        (last,) = await harness.list_events(session)
        assert last.type == "session.deleted" and last.number > 5 and last.data == {}
        everything = [event async for event in events_up_to(harness, last.sequence)]
        assert {event.type.value for event in everything if event.stream == last.stream} == {"session.deleted"}
        assert any("pelican" in event.model_dump_json() for event in everything if event.stream != last.stream)
        assert harness.toolbox.deleted_sessions == [session.id]
        assert engine.released == harness.session_model.revoked_keys == [session.id]


async def test_sandboxes_of_idle_sessions_are_released(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(run_until_cancelled), idle_time=1) as harness:
        idle, busy, bare = [await harness.create_session() for _ in range(3)]
        await harness.send_message(busy, "work")
        for session in (idle, busy):
            now = datetime.now(UTC)
            await harness.store.write(
                lambda connection, id=session.id, now=now: SessionStore.update_session(  # type: ignore[misc]
                    connection, id, {"sandboxes": {"code": "sb-1"}}, now
                )
            )
        async with asyncio.timeout(10):
            while not harness.toolbox.released_sandboxes:
                await asyncio.sleep(0.01)
        assert set(harness.toolbox.released_sandboxes) == {(idle.id, "idle")} and bare.sandboxes == {}


async def test_watched_sandboxes_stay_and_waiting_ones_are_kept_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_maintenance, "WAITING_IDLE_FACTOR", 3)
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done), idle_time=1) as harness:
        watched, waiting = [await harness.create_session() for _ in range(2)]
        harness.toolbox.attended_sessions.add(watched.id)
        start_time = datetime.now(UTC)
        for session, state in ((watched, "idle"), (waiting, "waiting")):
            changes = {"sandboxes": {"code": "sb-1"}, "state": state}
            await harness.store.write(
                lambda connection, id=session.id, changes=changes: SessionStore.update_session(  # type: ignore[misc]
                    connection, id, changes, start_time
                )
            )
        async with asyncio.timeout(15):
            while not harness.toolbox.released_sandboxes:
                await asyncio.sleep(0.01)
        assert harness.toolbox.released_sandboxes[0] == (waiting.id, "idle")
        assert (datetime.now(UTC) - start_time).total_seconds() >= 3
        harness.toolbox.attended_sessions.clear()
        async with asyncio.timeout(15):
            while (watched.id, "idle") not in harness.toolbox.released_sandboxes:
                await asyncio.sleep(0.01)


async def test_sessions_are_listed_by_last_change(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        sessions = [await harness.create_session(title=f"number 1{number}%") for number in range(5)]
        await harness.sessions.create("other", CreateSessionRequest(), "eve")
        await harness.sessions.update(TENANT, sessions[0].id, UpdateSessionRequest(title="first"), "ann")
        first = await harness.sessions.list(TENANT, limit=2)
        assert [each.id for each in first] == [sessions[0].id, sessions[4].id]
        for cursor in (first[-1].id, session_cursor(first[-1])):
            rest = await harness.sessions.list(TENANT, before=cursor)
            assert [each.id for each in rest] == [sessions[3].id, sessions[2].id, sessions[1].id]
        assert [each.id for each in await harness.sessions.list(TENANT, query="14%")] == [sessions[4].id]
        assert await harness.sessions.list(TENANT, query="1%2") == []
        with pytest.raises(InvalidInput):
            await harness.sessions.list(TENANT, before="soon_ses-1")


async def test_engine_is_loaded_when_first_session_is_created(tmp_path: Path) -> None:
    """So that the first message does not wait for it."""
    loaded = asyncio.Event()
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        loop = asyncio.get_running_loop()

        def get(name: str) -> Engine:
            loop.call_soon_threadsafe(loaded.set)
            return harness.engine

        harness.engines.get = get  # type: ignore[method-assign]
        await harness.create_session()
        async with asyncio.timeout(10):
            await loaded.wait()

"""Streaming messages while the disk is slow, full or missing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.base import stream_reply_after_save
from paddock.errors import SessionNotFound, Unavailable
from paddock.store.chat_sessions.reply_store import ModelReplyStore
from paddock.store.chat_sessions.session_store import SessionStore
from tests.integration.agents.model_harness import ModelHarness, open_model_harness, user_message

pytestmark = pytest.mark.anyio
SAY = {"turns": [{"say": "Hello there."}]}
SLOW = {"pace": "30ms", "turns": [{"say": "one two three four five six seven eight nine ten " * 20}]}


@contextmanager
def blocked_writes(harness: ModelHarness) -> Iterator[None]:
    """Block all writes within the context."""
    unblock = threading.Event()
    harness.store.submit(lambda _: unblock.wait(20))
    try:
        yield
    finally:
        unblock.set()


async def test_writer_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        pieces = [f"{number:04}" + "." * 96 for number in range(400)]
        async with harness.session_model.start_message(session, 1) as writer:
            with blocked_writes(harness):
                async with asyncio.timeout(5):
                    for piece in pieces:
                        await writer.write_text(piece)
            stored = await writer.finish()
        assert stored.text == "".join(pieces)
        deltas = [each.data["text"] for each in await harness.list_events(session) if each.type == "message.delta"]
        assert "".join(deltas) == stored.text
        assert len(deltas) < 20, "pending text is batched"


async def test_unwritten_text_is_bounded(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        async with harness.session_model.start_message(session, 1) as writer:
            with blocked_writes(harness):
                for _ in range(8):
                    write_task = asyncio.create_task(writer.write_text("x" * 20_000))
                    if write_task not in (await asyncio.wait([write_task], timeout=0.3))[0]:
                        break
                assert not write_task.done(), "the writer accepted more than its buffer holds"
            async with asyncio.timeout(5):
                await write_task
            await writer.finish()


async def test_message_cancelled_during_store_is_stored_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        await harness.ask_model(session, [user_message("Make a key.")])
        store_started = asyncio.Event()
        message_work = harness.session_model._journal.message_work

        def signal_and_store(*arguments: Any) -> Any:
            store_started.set()
            return message_work(*arguments)

        monkeypatch.setattr(harness.session_model._journal, "message_work", signal_and_store)

        async with asyncio.timeout(10):
            with blocked_writes(harness):
                task = asyncio.create_task(harness.ask_model(session, [user_message("Hi.")]))
                await store_started.wait()
                task.cancel()
                assert not (await asyncio.wait([task], timeout=0.05))[0], (
                    "cancellation waits until the message is stored"
                )
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        stored = (await harness.session_store.list_messages(session.id))[-1]
        assert (stored.number, stored.text, stored.cut) == (2, "Hello there.", None)
        assert (await harness.event_types(session)).count("message.ended") == 2
        assert (await harness.ask_for_reply(session, [user_message("Hi.")])).from_records


async def test_deleted_session_ends_the_reply(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as harness:
        session = await harness.create_session("m")
        pieces = harness.session_model.ask_model(session, 1, [user_message("Hi.")])
        await anext(pieces)
        await harness.store.write(lambda connection: SessionStore.delete_session(connection, session.id))
        with pytest.raises(SessionNotFound):
            _ = [piece async for piece in pieces]
        assert await harness.session_store.list_messages(session.id) == []


async def test_closed_database_ends_the_reply(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as harness:
        session = await harness.create_session("m")
        pieces = harness.session_model.ask_model(session, 1, [user_message("Hi.")])
        await anext(pieces)
        await harness.store.close()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                _ = [piece async for piece in pieces]


async def test_reply_cancelled_during_state_save_is_ended(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as harness:
        session = await harness.create_session("m")
        may_save = asyncio.Event()

        async def save() -> None:
            await may_save.wait()

        async def receive() -> None:
            async for _ in stream_reply_after_save(
                save(), harness.session_model.ask_model(session, 1, [user_message("Hi.")])
            ):
                raise AssertionError("a piece was seen before the state was saved")

        async with asyncio.timeout(10):
            task = asyncio.create_task(receive())
            while "message.delta" not in await harness.event_types(session):
                await asyncio.sleep(0.01)
            task.cancel()
            while "message.ended" not in await harness.event_types(session):
                await asyncio.sleep(0.01)
            assert not task.done(), "the state is still saved"
            may_save.set()
            await asyncio.wait([task])
        assert task.cancelled()
        assert (await harness.session_store.list_messages(session.id))[-1].cut == "cancelled"


async def test_no_reply_piece_is_seen_if_state_save_fails(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")

        async def save() -> None:
            raise Unavailable("the disk is full")

        with pytest.raises(Unavailable):
            await anext(
                stream_reply_after_save(save(), harness.session_model.ask_model(session, 1, [user_message("Hi.")]))
            )
        assert (await harness.event_types(session)).count("message.ended") == 1
        assert (await harness.session_store.list_messages(session.id))[-1].cut == "cancelled"


@pytest.mark.parametrize("problem", [Unavailable("the disk is full"), ValueError("nobody thought of this")])
async def test_message_that_cannot_be_stored_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")

        def refuse(*_: Any) -> None:
            raise problem

        monkeypatch.setattr(ModelReplyStore, "record_reply", refuse)
        with pytest.raises(type(problem)):
            await harness.ask_model(session, [user_message("Hi.")])
        event_types = await harness.event_types(session)
        assert event_types.count("message.started") == event_types.count("message.ended") == 1
        assert (await harness.session_store.list_messages(session.id))[-1].cut == f"error: {type(problem).__name__}"

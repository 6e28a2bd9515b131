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
from paddock.store.chat_sessions.reply_store import ReplyStore
from paddock.store.chat_sessions.session_store import SessionStore
from tests.integration.agents.model_harness import ModelHarness, open_model_harness, user_message

pytestmark = pytest.mark.anyio
SAY = {"turns": [{"say": "Hello there."}]}
SLOW = {"pace": "30ms", "turns": [{"say": "one two three four five six seven eight nine ten " * 20}]}


@contextmanager
def stuck(here: ModelHarness) -> Iterator[None]:
    """Block all writes within the context."""
    go_on = threading.Event()
    here.store.submit(lambda _: go_on.wait(20))
    try:
        yield
    finally:
        go_on.set()


async def test_whoever_speaks_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        pieces = [f"{number:04}" + "." * 96 for number in range(400)]
        async with here.voice.start_message(session, 1) as speech:
            with stuck(here):
                async with asyncio.timeout(5):
                    for piece in pieces:
                        await speech.write_text(piece)
            kept = await speech.finish()
        assert kept.text == "".join(pieces)
        deltas = [each.data["text"] for each in await here.told(session) if each.type == "message.delta"]
        assert "".join(deltas) == kept.text
        assert len(deltas) < 20, "what waits is told together"


async def test_but_not_without_bounds(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        async with here.voice.start_message(session, 1) as speech:
            with stuck(here):
                for _ in range(8):
                    told = asyncio.create_task(speech.write_text("x" * 20_000))
                    if told not in (await asyncio.wait([told], timeout=0.3))[0]:
                        break
                assert not told.done(), "it took more than there should be room for"
            async with asyncio.timeout(5):
                await told
            await speech.finish()


async def test_cancelled_while_it_is_being_kept_it_is_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        await here.ask(session, [user_message("Make a key.")])
        ending = asyncio.Event()
        keeping = here.voice._journal.message_work

        def noticed(*arguments: Any) -> Any:
            ending.set()
            return keeping(*arguments)

        monkeypatch.setattr(here.voice._journal, "message_work", noticed)

        async with asyncio.timeout(10):
            with stuck(here):
                task = asyncio.create_task(here.ask(session, [user_message("Hi.")]))
                await ending.wait()
                task.cancel()
                assert not (await asyncio.wait([task], timeout=0.05))[0], "it waits until all is kept"
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        kept = (await here.book.list_messages(session.id))[-1]
        assert (kept.number, kept.text, kept.cut) == (2, "Hello there.", None)
        assert (await here.kinds(session)).count("message.ended") == 2
        assert (await here.reply(session, [user_message("Hi.")])).from_records


async def test_a_session_that_is_gone_ends_the_answer(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as here:
        session = await here.session("m")
        asking = here.voice.ask_model(session, 1, [user_message("Hi.")])
        await anext(asking)
        await here.store.write(lambda connection: SessionStore.delete_session(connection, session.id))
        with pytest.raises(SessionNotFound):
            _ = [piece async for piece in asking]
        assert await here.book.list_messages(session.id) == []


async def test_a_database_that_is_gone_ends_the_answer(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as here:
        session = await here.session("m")
        asking = here.voice.ask_model(session, 1, [user_message("Hi.")])
        await anext(asking)
        await here.store.close()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                _ = [piece async for piece in asking]


async def test_cancelled_while_the_engine_keeps_its_place_the_answer_has_an_end(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as here:
        session = await here.session("m")
        kept = asyncio.Event()

        async def save() -> None:
            await kept.wait()

        async def listen() -> None:
            async for _ in stream_reply_after_save(save(), here.voice.ask_model(session, 1, [user_message("Hi.")])):
                raise AssertionError("nothing is seen before the place is kept")

        async with asyncio.timeout(10):
            task = asyncio.create_task(listen())
            while "message.delta" not in await here.kinds(session):
                await asyncio.sleep(0.01)
            task.cancel()
            while "message.ended" not in await here.kinds(session):
                await asyncio.sleep(0.01)
            assert not task.done(), "the place is kept all the same"
            kept.set()
            await asyncio.wait([task])
        assert task.cancelled()
        assert (await here.book.list_messages(session.id))[-1].cut == "cancelled"


async def test_nothing_is_seen_of_an_answer_whose_place_could_not_be_kept(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")

        async def save() -> None:
            raise Unavailable("the disk is full")

        with pytest.raises(Unavailable):
            await anext(stream_reply_after_save(save(), here.voice.ask_model(session, 1, [user_message("Hi.")])))
        assert (await here.kinds(session)).count("message.ended") == 1
        assert (await here.book.list_messages(session.id))[-1].cut == "cancelled"


@pytest.mark.parametrize("problem", [Unavailable("the disk is full"), ValueError("nobody thought of this")])
async def test_what_could_not_be_kept_has_an_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")

        def refuse(*_: Any) -> None:
            raise problem

        monkeypatch.setattr(ReplyStore, "record_reply", refuse)
        with pytest.raises(type(problem)):
            await here.ask(session, [user_message("Hi.")])
        told = await here.kinds(session)
        assert told.count("message.started") == told.count("message.ended") == 1
        assert (await here.book.list_messages(session.id))[-1].cut == f"error: {type(problem).__name__}"

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from paddock.events.event_log import EventLog
from paddock.events.recent_events import RecentEvents
from paddock.model.events import EventRecord, EventType
from paddock.store.database import Store
from paddock.store.event_store import NewEvent, StoredEventPage

pytestmark = pytest.mark.anyio
KIND = EventType.SANDBOX_RENEWED


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


async def test_events_are_numbered_per_stream_and_globally(store: Store) -> None:
    log = await EventLog.open(store)
    made = [await log.append(stream, KIND, {"a": [1]}, tenant="t") for stream in ("x", "y", "x", "x")]
    assert [event.number for event in made] == [1, 1, 2, 3]
    assert [event.sequence for event in made] == [1, 2, 3, 4]
    assert await log.read("x") == [made[0], made[2], made[3]]
    assert await log.read("x", after=1, limit=1) == [made[2]]
    assert await log.read(after=2) == made[2:]
    assert await log.read(tenant="other") == []


async def test_tenant_reads_only_its_own_events(store: Store) -> None:
    log = await EventLog.open(store)
    await log.append("x", KIND, tenant="one")
    mine = await log.append("y", KIND, tenant="two")
    follower = log.follow(tenant="two")
    assert await anext(follower) == mine
    assert await log.read("x", tenant="two") == []
    await log.append("x", KIND, tenant="one")
    later = await log.append("y", KIND, tenant="two")
    assert await anext(follower) == later


async def test_follower_gets_past_and_then_live_events(store: Store) -> None:
    log = await EventLog.open(store)
    for _ in range(3):
        await log.append("x", KIND, tenant="t")
    follower = log.follow("x", after=1)
    assert [(await anext(follower)).number for _ in range(2)] == [2, 3]
    waiting = asyncio.ensure_future(anext(follower))
    await log.append("other", KIND, tenant="t")
    await log.append("x", KIND, tenant="t")
    assert (await asyncio.wait_for(waiting, 5)).number == 4


async def test_cursor_ahead_of_stream_waits_for_later_events(store: Store) -> None:
    log = await EventLog.open(store)
    waiting = asyncio.ensure_future(anext(log.follow("x", after=2)))
    for _ in range(4):
        await log.append("x", KIND, tenant="t")
    assert (await asyncio.wait_for(waiting, 5)).number == 3


async def test_close_ends_followers_after_recorded_events(store: Store) -> None:
    log = await EventLog.open(store)

    async def numbers() -> list[int]:
        return [event.number async for event in log.follow("x")]

    following = asyncio.ensure_future(numbers())
    for _ in range(5):
        await log.append("x", KIND, tenant="t")
    log.close()
    assert await asyncio.wait_for(following, 5) == [1, 2, 3, 4, 5]
    assert await asyncio.wait_for(numbers(), 5) == [1, 2, 3, 4, 5]


async def test_cancelled_append_is_published_or_not_recorded(store: Store) -> None:
    log = await EventLog.open(store)
    follower = log.follow()
    first = await log.append("x", KIND, tenant="t")
    assert await anext(follower) == first
    for _ in range(20):
        append = asyncio.ensure_future(log.append("x", KIND, tenant="t"))
        await asyncio.sleep(0)
        append.cancel()
        await asyncio.wait([append])
    end = await log.append("x", KIND, tenant="t")
    seen = [first]
    while seen[-1] != end:
        seen.append(await asyncio.wait_for(anext(follower), 5))
    assert seen == await log.read(limit=1000)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.integers(0, 12),
    appends=st.lists(st.sampled_from("xyz"), max_size=60),
    cursors=st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 8), st.integers(0, 3)), max_size=6),
    remember=st.sampled_from([1, 2, 5, 1000]),
    writers=st.integers(1, 8),
)
async def test_followers_get_each_event_exactly_once(
    before: int, appends: list[str], cursors: list[tuple[str | None, int, int]], remember: int, writers: int
) -> None:
    with TemporaryDirectory() as directory:
        async with await Store.open(Path(directory) / "p.db") as store:
            log = await EventLog.open(store)
            for index in range(before):
                await log.append("xy"[index % 2], KIND, tenant="t")
            log = await EventLog.open(store, window_size=remember)

            async def collect(stream: str | None, after: int, pace: int) -> list[EventRecord]:
                found = []
                async for event in log.follow(stream, after):
                    found.append(event)
                    for _ in range(pace):
                        await asyncio.sleep(0)
                return found

            async def write(mine: list[str]) -> None:
                for stream in mine:
                    await log.append(stream, KIND, tenant="t")

            followers = [asyncio.ensure_future(collect(*cursor)) for cursor in cursors]
            await asyncio.gather(*(write(appends[index::writers]) for index in range(writers)))
            log.close()
            for (stream, after, _), found in zip(cursors, await asyncio.gather(*followers), strict=True):
                assert found == await log.read(stream, after, 1000)
            everything = await log.read(limit=1000)
            assert all(one.sequence < other.sequence for one, other in pairwise(everything))
            for stream in "xyz":
                numbers = [event.number for event in everything if event.stream == stream]
                assert numbers == list(range(1, len(numbers) + 1))


async def test_slow_follower_gets_all_events_without_memory_growth(store: Store) -> None:
    log = await EventLog.open(store, window_size=4)
    follower = log.follow("x")
    await log.append("x", KIND, tenant="t")
    assert (await anext(follower)).number == 1
    await asyncio.gather(*(log.append("x", KIND, tenant="t") for _ in range(600)))
    assert len(log._recent._events) == 4
    assert [(await anext(follower)).number for _ in range(600)] == list(range(2, 602))


async def test_signals_without_followers_are_dropped() -> None:
    window = RecentEvents(0, 10)
    signal = window.next_event_signal("x")
    assert window.next_event_signal("x") is signal
    del signal
    gc.collect()
    assert len(window._signals) == 0


async def test_erased_stream_keeps_only_its_last_event(store: Store) -> None:
    log = await EventLog.open(store)
    for stream in ("s/1", "s/2", "s/1"):
        await log.append(stream, EventType.SANDBOX_CREATED, {"secret": stream}, tenant="t")
    everything = log.follow()
    first = await anext(everything)
    last = NewEvent("s/1", EventType.SANDBOX_ENDED, {}, "t")
    await log.write_with_events(lambda _: None, lambda _: [last], erased_stream="s/1")
    assert first.sequence == 1
    left = await log.read()
    assert [(event.stream, event.number, event.data) for event in left] == [
        ("s/2", 1, {"secret": "s/2"}),
        ("s/1", 3, {}),
    ]
    fresh = log.follow(after=1)
    assert [await anext(fresh) for _ in range(2)] == left
    held = log._recent.events_after(log._recent.floor, None, None)
    assert held == left


async def test_event_numbers_continue_after_pruning(store: Store) -> None:
    log = await EventLog.open(store)
    for _ in range(3):
        await log.append("alive", KIND, tenant="t")
    await log.append("dead", KIND, tenant="t")
    await log.append("dead", EventType.SANDBOX_ENDED, tenant="t")
    assert await log.prune(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert await log.prune(datetime.now(UTC) + timedelta(hours=1)) == 4
    assert [event.number for event in await log.read("alive")] == [3]
    assert await log.read("dead") == []
    assert (await log.append("alive", KIND, tenant="t")).number == 4


async def test_follower_starts_after_all_events_were_pruned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await EventLog.open(store)
    await log.append("dead", EventType.SANDBOX_ENDED, tenant="t")
    reopened = await EventLog.open(store)
    await reopened.prune(datetime.now(UTC) + timedelta(hours=1))
    reads = 0
    read = reopened._events.read

    async def counted(stream: str | None, after: int, limit: int, tenant: str | None = None) -> StoredEventPage:
        nonlocal reads
        reads += 1
        return await read(stream, after, limit, tenant)

    monkeypatch.setattr(reopened._events, "read", counted)
    waiting = asyncio.ensure_future(anext(reopened.follow()))
    for _ in range(10):
        await reopened.read("x")
    assert reads == 11, "the follower should wait, not ask again and again"
    new = await reopened.append("x", KIND, tenant="t")
    assert new.sequence == 2
    assert await asyncio.wait_for(waiting, 5) == new


async def test_logged_events_contain_no_user_text(store: Store) -> None:
    log = await EventLog.open(store)
    with capture_logs() as lines:
        await log.append("run/r1", EventType.RUN_ENDED, {"state": "failed", "reason": "exit code 1"}, tenant="t")
        await log.append("run/r1", EventType.RUN_TEXT, {"text": "secret"}, tenant="t")
        await log.append("session/s1", EventType.TURN_ERROR, {"code": "X", "reason": "secret"}, tenant="t")
        await asyncio.sleep(0)
    ended = {"event": "run.ended", "log_level": "info", "run": "r1", "tenant": "t", "state": "failed"}
    error = {"event": "turn.error", "log_level": "warning", "session": "s1", "tenant": "t", "code": "X"}
    assert lines == [{**ended, "reason": "exit code 1"}, error]

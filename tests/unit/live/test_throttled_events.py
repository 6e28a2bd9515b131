"""Events of screens and tools come at a bounded rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddock.events.event_log import EventLog
from paddock.live import throttled_events
from paddock.live.throttled_events import CALL_BURST, MAX_PATHS, ThrottledEvents
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.store.database import Store

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
SANDBOX = Sandbox(
    id="sb-1",
    tenant="t",
    backend="local",
    image="desktop",
    state=SandboxState.RUNNING,
    created_at=NOW,
    changed_at=NOW,
)
OTHER = SANDBOX.model_copy(update={"id": "sb-2"})


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    async with await Store.open(tmp_path / "p.db") as store:
        yield await EventLog.open(store)


async def published_events(log: EventLog, kind: EventType) -> list[dict[str, Any]]:
    found = await log.read(limit=1000, tenant="t")
    return [dict(event.data) for event in found if event.type is kind]


async def test_tool_call_event_has_no_arguments(log: EventLog) -> None:
    throttled = ThrottledEvents(log)
    throttled.publish_tool_call(SANDBOX, "click", 0.01234, failed=False)
    await throttled.close()
    assert await published_events(log, EventType.TOOL_CALLED) == [{"name": "click", "seconds": 0.0123, "failed": False}]


async def test_calls_above_the_rate_limit_are_only_counted(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = ThrottledEvents(log)
    for _ in range(1000):
        throttled.publish_tool_call(SANDBOX, "click", 0.001, failed=False)
    throttled.publish_tool_call(OTHER, "look", 0.001, failed=True)
    monkeypatch.setattr(throttled_events, "CALLS_PER_SECOND", 1e9)
    throttled.publish_tool_call(SANDBOX, "click", 0.001, failed=False)
    await throttled.close()
    events = await published_events(log, EventType.TOOL_CALLED)
    mine = [event for event in events if event["name"] == "click"]
    assert CALL_BURST <= len(mine) < CALL_BURST + 10
    assert len(mine) + mine[-1]["left_out"] == 1001
    assert [event["failed"] for event in events if event["name"] == "look"] == [True]


async def test_last_screen_change_is_published_at_most_once_a_second(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttled_events, "SCREEN_INTERVAL", 0.05)
    throttled = ThrottledEvents(log)
    for number in range(20):
        throttled.publish_screen_change(SANDBOX, "click", etag=f'"{number}"')
    throttled.publish_screen_change(OTHER, "timer", etag='"x"', width=800, height=600)
    async with asyncio.timeout(10):
        async for event in log.follow("sandbox/sb-1"):
            if event.data["etag"] == '"19"':
                break
    await throttled.close()
    events = await published_events(log, EventType.SCREENSHOT_UPDATE)
    assert [event["etag"] for event in events if event["cause"] == "click"] == ['"0"', '"19"']
    assert {"etag": '"x"', "width": 800, "height": 600, "cause": "timer"} in events


async def test_no_screen_event_follows_the_end_of_a_sandbox(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttled_events, "SCREEN_INTERVAL", 0.02)
    throttled = ThrottledEvents(log)
    throttled.publish_screen_change(SANDBOX, "click", etag='"1"')
    throttled.publish_screen_change(SANDBOX, "click", etag='"2"')
    throttled.forget_sandbox(SANDBOX.id)
    await asyncio.sleep(0.05)
    await throttled.close()
    assert [event["etag"] for event in await published_events(log, EventType.SCREENSHOT_UPDATE)] == ['"1"']


async def test_paths_are_bounded(log: EventLog) -> None:
    throttled = ThrottledEvents(log)
    throttled.publish_file_changes(SANDBOX, "write_file", [])
    throttled.publish_file_changes(SANDBOX, "write_file", ["/x"] * 1000)
    throttled.publish_file_changes(SANDBOX, "write_file", ["/" + "x" * 10_000] * 1000)
    await throttled.close()
    many, long = await published_events(log, EventType.FILE_CHANGED)
    assert len(many["paths"]) == MAX_PATHS
    assert list(map(len, long["paths"])) == [throttled_events.MAX_PATH_LENGTH] * 2


async def test_desktop_start_and_stop_are_published(log: EventLog) -> None:
    throttled = ThrottledEvents(log)
    throttled.publish_desktop_state(SANDBOX, up=True)
    throttled.publish_desktop_state(SANDBOX, up=False, reason="died")
    await throttled.close()
    assert await published_events(log, EventType.DESKTOP_STARTED) == [{}]
    assert await published_events(log, EventType.DESKTOP_STOPPED) == [{"reason": "died"}]

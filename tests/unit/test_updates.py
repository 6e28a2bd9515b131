"""Events of screens and tools come at a bounded rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddock.events.log import EventLog
from paddock.live import updates
from paddock.live.updates import CALLS_AT_ONCE, MOST_PATHS, Updates
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.store.database import Store

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
BOX = Sandbox(
    id="sb-1",
    tenant="t",
    backend="local",
    image="desktop",
    state=SandboxState.RUNNING,
    created_at=NOW,
    changed_at=NOW,
)
OTHER = BOX.model_copy(update={"id": "sb-2"})


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    async with await Store.open(tmp_path / "p.db") as store:
        yield await EventLog.open(store)


async def told(log: EventLog, kind: EventType) -> list[dict[str, Any]]:
    found = await log.read(limit=1000, tenant="t")
    return [dict(event.data) for event in found if event.type is kind]


async def test_a_call_is_told_without_its_arguments(log: EventLog) -> None:
    telling = Updates(log)
    telling.called(BOX, "click", 0.01234, failed=False)
    await telling.close()
    assert await told(log, EventType.TOOL_CALLED) == [{"name": "click", "seconds": 0.0123, "failed": False}]


async def test_of_a_flood_of_calls_some_are_told_and_the_others_counted(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling = Updates(log)
    for _ in range(1000):
        telling.called(BOX, "click", 0.001, failed=False)
    telling.called(OTHER, "look", 0.001, failed=True)
    monkeypatch.setattr(updates, "CALLS_A_SECOND", 1e9)
    telling.called(BOX, "click", 0.001, failed=False)
    await telling.close()
    events = await told(log, EventType.TOOL_CALLED)
    mine = [event for event in events if event["name"] == "click"]
    assert CALLS_AT_ONCE <= len(mine) < CALLS_AT_ONCE + 10
    assert len(mine) + mine[-1]["left_out"] == 1001
    assert [event["failed"] for event in events if event["name"] == "look"] == [True]


async def test_a_screen_is_told_of_at_once_and_then_once_a_second_with_the_last_change(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "SCREEN_EVERY", 0.05)
    telling = Updates(log)
    for number in range(20):
        telling.screen(BOX, "click", etag=f'"{number}"')
    telling.screen(OTHER, "timer", etag='"x"', width=800, height=600)
    async with asyncio.timeout(10):
        async for event in log.follow("sandbox/sb-1"):
            if event.data["etag"] == '"19"':
                break
    await telling.close()
    events = await told(log, EventType.SCREENSHOT_UPDATE)
    assert [event["etag"] for event in events if event["cause"] == "click"] == ['"0"', '"19"']
    assert {"etag": '"x"', "width": 800, "height": 600, "cause": "timer"} in events


async def test_a_sandbox_that_has_ended_is_told_of_no_more(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "SCREEN_EVERY", 0.02)
    telling = Updates(log)
    telling.screen(BOX, "click", etag='"1"')
    telling.screen(BOX, "click", etag='"2"')
    telling.forget(BOX.id)
    await asyncio.sleep(0.05)
    await telling.close()
    assert [event["etag"] for event in await told(log, EventType.SCREENSHOT_UPDATE)] == ['"1"']


async def test_paths_are_bounded(log: EventLog) -> None:
    telling = Updates(log)
    telling.wrote(BOX, "write_file", [])
    telling.wrote(BOX, "write_file", ["/x"] * 1000)
    telling.wrote(BOX, "write_file", ["/" + "x" * 10_000] * 1000)
    await telling.close()
    many, long = await told(log, EventType.FILE_CHANGED)
    assert len(many["paths"]) == MOST_PATHS
    assert list(map(len, long["paths"])) == [updates.LONGEST_PATH] * 2


async def test_desktops_come_and_go(log: EventLog) -> None:
    telling = Updates(log)
    telling.desktop(BOX, up=True)
    telling.desktop(BOX, up=False, reason="died")
    await telling.close()
    assert await told(log, EventType.DESKTOP_STARTED) == [{}]
    assert await told(log, EventType.DESKTOP_STOPPED) == [{"reason": "died"}]

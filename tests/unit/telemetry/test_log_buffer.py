"""The newest lines of the log."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import structlog

from paddock.telemetry.log_buffer import LogBuffer

pytestmark = pytest.mark.anyio


def put(ring: LogBuffer, event: str, level: str = "info", **fields: Any) -> None:
    ring.capture(None, level, {"event": event, "level": level, "timestamp": "2026-01-01T00:00:00Z", **fields})


def test_newest_lines_are_kept() -> None:
    ring = LogBuffer(3)
    for number in range(5):
        put(ring, f"line {number}")
    assert [(line.number, line.event) for line in ring.read()] == [(3, "line 2"), (4, "line 3"), (5, "line 4")]
    assert [line.event for line in ring.read(after=3, limit=1)] == ["line 4"]


def test_lines_are_filtered_by_words_and_level() -> None:
    ring = LogBuffer()
    put(ring, "a Sandbox ended", sandbox="sb-1")
    put(ring, "a sandbox ended", "error", sandbox="sb-2")
    assert [line.fields["sandbox"] for line in ring.read(words="BOX sb-1")] == ["sb-1"]
    assert [line.fields["sandbox"] for line in ring.read(level="warning")] == ["sb-2"]


def test_traceback_contains_no_local_variables() -> None:
    ring = LogBuffer()
    structlog.configure(processors=[structlog.stdlib.add_log_level, ring.capture, _drop])
    secret = "pdk_in_a_variable"
    try:
        raise ValueError("oh")
    except ValueError:
        structlog.get_logger().exception("it failed", wanted=[1, {"a": object}], size=3)
    finally:
        structlog.reset_defaults()
    (line,) = ring.read()
    assert line.level == "error" and line.fields["size"] == 3 and isinstance(line.fields["wanted"], str)
    assert "ValueError: oh" in line.fields["exception"] and secret not in str(line.fields)


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


async def test_followers_get_lines_from_any_thread_until_close() -> None:
    ring = LogBuffer()
    put(ring, "before")
    received: list[str] = []

    async def follow() -> None:
        async for line in ring.follow(words="e"):
            received.append(line.event)
            if len(received) == 2:
                ring.close()

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    thread = threading.Thread(target=put, args=(ring, "elsewhere"))
    thread.start()
    thread.join()
    async with asyncio.timeout(5):
        await following
    assert received == ["before", "elsewhere"]

"""Workers for large requests: they are replaced when they die, bounded, and gone when the server stops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import InvalidInput, TooLarge
from paddock.llm.calls import GENERATE, Call
from paddock.llm.offload import pool as pools
from paddock.llm.offload.pool import Busy, WorkerPool
from paddock.llm.offload.tasks import Plan, make

CALL = Call("openai-chat", GENERATE, "m", False)
PLAN = Plan(CALL, "anthropic", "other", translates=True, exchange="x-1")


def body(count: int) -> bytes:
    tools = [{"type": "function", "function": {"name": "a.b", "parameters": {"type": "object"}}}]
    messages = [{"role": "user", "content": "a, b and [c]"}] * count
    return json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()


def children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == os.getpid() and b"paddock.llm.offload.process" in words:
                found.append(int(entry.name))
    return found


def test_a_worker_says_what_the_server_would() -> None:
    async def scenario() -> None:
        workers = WorkerPool(1)
        try:
            here = make(PLAN, body(50))
            made, said = await workers.run("make", PLAN, body(50))
            assert said == here.body
            assert here.request is not None
            assert made.request.tools == here.request.tools and made.request.exchange == "x-1"
            assert made.request.messages == []
            with pytest.raises(InvalidInput):
                await workers.run("make", PLAN, b'{"model": "m", "messages": 7}')
            with pytest.raises(TooLarge, match="values"):
                await workers.run("check", None, b"[" + b"1," * 500_000 + b"1]")
            assert len(children()) == 1
        finally:
            await workers.close()
        assert children() == []

    asyncio.run(scenario())


def test_one_that_dies_is_replaced_and_its_work_done_once_more() -> None:
    async def scenario() -> None:
        workers = WorkerPool(1)
        try:
            await workers.run("check", None, b"{}")
            (first,) = children()
            os.kill(first, signal.SIGKILL)
            await workers.run("check", None, b"{}")
            (second,) = children()
            assert second != first
        finally:
            await workers.close()

    asyncio.run(scenario())


def test_who_leaves_takes_nothing_of_anybody_else() -> None:
    """The answer to a cancelled request must not be the next one's."""

    async def scenario() -> None:
        workers = WorkerPool(1)
        try:
            leaving = asyncio.create_task(workers.run("make", PLAN, body(20_000)))
            while not children():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            _, said = await workers.run("make", PLAN, body(1))
            assert said == make(PLAN, body(1)).body
        finally:
            await workers.close()
        assert children() == []

    asyncio.run(scenario())


def test_more_than_can_wait_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MOST_WAITING", 2)

    async def scenario() -> None:
        workers = WorkerPool(1)
        try:
            asked: list[Any] = [asyncio.create_task(workers.run("make", PLAN, body(5000))) for _ in range(6)]
            results = await asyncio.gather(*asked, return_exceptions=True)
            refused = [each for each in results if isinstance(each, Busy)]
            assert refused and len(refused) < 6
            assert all(isinstance(each, tuple | Busy) for each in results), results
            assert refused[0].retry_after > 0
        finally:
            await workers.close()

    asyncio.run(scenario())


def test_those_without_work_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "IDLE", 0.05)

    async def scenario() -> None:
        workers = WorkerPool(1)
        try:
            await workers.run("check", None, b"{}")
            async with asyncio.timeout(20):
                while children():
                    await asyncio.sleep(0.01)
        finally:
            await workers.close()

    asyncio.run(scenario())

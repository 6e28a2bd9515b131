"""Workers for large requests are replaced when they die, bounded in number, and stopped with the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import InvalidInput, TooLarge
from paddock.llm.offload import worker_pool as pools
from paddock.llm.offload.worker_pool import OffloadWorkerPool, WorkersBusy
from paddock.llm.offload.worker_tasks import RequestBuildPlan, build_provider_request
from paddock.llm.request_kind import GENERATE_OPERATION, ModelCall

CALL = ModelCall("openai-chat", GENERATE_OPERATION, "m", False)
PLAN = RequestBuildPlan(CALL, "anthropic", "other", translates=True, exchange="x-1")


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
            if parent == os.getpid() and b"paddock.llm.offload.worker_process" in words:
                found.append(int(entry.name))
    return found


def test_worker_and_server_results_are_equal() -> None:
    async def scenario() -> None:
        workers = OffloadWorkerPool(1)
        try:
            here = build_provider_request(PLAN, body(50))
            made, built_body = await workers.run_task("make", PLAN, body(50))
            assert built_body == here.body
            assert here.request is not None
            assert made.request.tools == here.request.tools and made.request.exchange == "x-1"
            assert made.request.messages == []
            with pytest.raises(InvalidInput):
                await workers.run_task("make", PLAN, b'{"model": "m", "messages": 7}')
            with pytest.raises(TooLarge, match="values"):
                await workers.run_task("check", None, b"[" + b"1," * 500_000 + b"1]")
            assert len(children()) == 1
        finally:
            await workers.close()
        assert children() == []

    asyncio.run(scenario())


def test_dead_worker_is_replaced_and_its_task_retried() -> None:
    async def scenario() -> None:
        workers = OffloadWorkerPool(1)
        try:
            await workers.run_task("check", None, b"{}")
            (first,) = children()
            os.kill(first, signal.SIGKILL)
            await workers.run_task("check", None, b"{}")
            (second,) = children()
            assert second != first
        finally:
            await workers.close()

    asyncio.run(scenario())


def test_cancelled_request_does_not_affect_others() -> None:
    """The answer to a cancelled request must not be the next one's."""

    async def scenario() -> None:
        workers = OffloadWorkerPool(1)
        try:
            leaving = asyncio.create_task(workers.run_task("make", PLAN, body(20_000)))
            while not children():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            _, built_body = await workers.run_task("make", PLAN, body(1))
            assert built_body == build_provider_request(PLAN, body(1)).body
        finally:
            await workers.close()
        assert children() == []

    asyncio.run(scenario())


def test_full_queue_refuses_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_WAITING", 2)

    async def scenario() -> None:
        workers = OffloadWorkerPool(1)
        try:
            tasks: list[Any] = [asyncio.create_task(workers.run_task("make", PLAN, body(5000))) for _ in range(6)]
            results = await asyncio.gather(*tasks, return_exceptions=True)
            refused = [each for each in results if isinstance(each, WorkersBusy)]
            assert refused and len(refused) < 6
            assert all(isinstance(each, tuple | WorkersBusy) for each in results), results
            assert refused[0].retry_after > 0
        finally:
            await workers.close()

    asyncio.run(scenario())


def test_idle_workers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.05)

    async def scenario() -> None:
        workers = OffloadWorkerPool(1)
        try:
            await workers.run_task("check", None, b"{}")
            async with asyncio.timeout(20):
                while children():
                    await asyncio.sleep(0.01)
        finally:
            await workers.close()

    asyncio.run(scenario())

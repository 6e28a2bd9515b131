"""A real fleet: real sandboxes on the host image, a real database, one data directory per test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.reconciler import Reconciler
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.store.database import Store


@dataclass
class Running:
    fleet: Fleet
    reconciler: Reconciler
    backend: LocalBackend


@asynccontextmanager
async def running(data: Path, **settings: Any) -> AsyncIterator[Running]:
    """A fleet at work on a data directory, as a server has it."""
    sandboxes = {"default_image": "host", "min_free_disk": 0, "reconcile_every": 0.2, **settings.pop("sandboxes", {})}
    config = Config.model_validate({"data": data, "sandboxes": sandboxes, **settings})
    backend = LocalBackend(LocalBackendSettings(data=data))
    store = await Store.open(data / "paddock.db")
    events = await EventLog.open(store)
    fleet = Fleet(backend=backend, images=ImageStore(data / "images"), store=store, events=events, config=config)
    reconciler = Reconciler(fleet)
    await reconciler.open()
    try:
        yield Running(fleet, reconciler, backend)
    finally:
        await reconciler.close()
        await fleet.close()
        events.close()
        await store.close()
        await backend.close()


async def until(condition: Callable[[], Awaitable[bool]], timeout: float = 20.0) -> None:
    """Wait for something to become true, for a bounded time."""
    async with asyncio.timeout(timeout):
        while not await condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def data(tmp_path: Path) -> AsyncIterator[Path]:
    """A data directory of which nothing may be left on the machine afterwards."""
    yield tmp_path
    async with running(tmp_path) as machine:
        listed, _ = await machine.fleet.sandboxes.list(page_size=1000)
        for sandbox in listed:
            await machine.fleet.end_sandbox(sandbox, "test over", keep=False)
        await until(lambda: _nothing_left(machine.backend))


async def _nothing_left(backend: LocalBackend) -> bool:
    return not await backend.leftovers()

"""A box with a screen is ready when its screen is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.errors import BoxStartError
from paddock.fleet.displays import wait_until_shown
from paddock.model.sandbox import BoxSpec, Service
from paddock.sandbox.client import Inside
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalSettings

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def box(data: Path, *services: Service) -> AsyncIterator[Inside]:
    """A box whose image has these services."""
    image = ImageStore(data / "images").resolve("host").model_copy(update={"services": services})
    backend = LocalBackend(LocalSettings(data=data))
    record = await backend.start(BoxSpec(id="shown", image=image, token="secret"))
    try:
        async with Inside(backend.address(record)) as client:
            yield client
    finally:
        await backend.remove("shown")
        await backend.close()


def display(command: str) -> Service:
    return Service(name="display", command=command, ready="/tmp/display")


async def test_a_display_that_comes_up_is_waited_for(tmp_path: Path) -> None:
    async with box(tmp_path, display("sleep 0.2; touch /tmp/display; sleep 60")) as client:
        await wait_until_shown(client)
        assert (await client.run("test -e /tmp/display")).exit_code == 0


async def test_what_belongs_on_the_screen_is_waited_for_too(tmp_path: Path) -> None:
    panel = Service(name="panel", command="sleep 0.2; touch /tmp/p; sleep 60", after=("display",), ready="/tmp/p")
    async with box(tmp_path, display("touch /tmp/display; sleep 60"), panel) as client:
        await wait_until_shown(client)
        assert (await client.run("test -e /tmp/p")).exit_code == 0


async def test_a_screen_without_its_furniture_is_a_screen_too(tmp_path: Path) -> None:
    panel = Service(name="panel", command="sleep 60", after=("display",), ready="/tmp/never")
    async with box(tmp_path, display("touch /tmp/display; sleep 60"), panel) as client:
        await wait_until_shown(client, furnishing=0.2)


async def test_a_display_that_never_comes_up_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    async with box(tmp_path, display("sleep 60")) as client:
        began = time.monotonic()
        with pytest.raises(BoxStartError, match="did not come up"):
            await wait_until_shown(client, patience=0.3)
        assert time.monotonic() - began < 5

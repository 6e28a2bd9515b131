"""A sandbox with a screen is ready when its screen is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.errors import SandboxStartError
from paddock.fleet.display_ready import wait_for_display
from paddock.model.sandbox import ImageService, SandboxSpec
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def sandbox(data: Path, *services: ImageService) -> AsyncIterator[DaemonClient]:
    """Start a sandbox with these services in its image."""
    image = ImageStore(data / "images").resolve("host").model_copy(update={"services": services})
    backend = LocalBackend(LocalBackendSettings(data=data))
    record = await backend.start(SandboxSpec(id="shown", image=image, token="secret"))
    try:
        async with DaemonClient(backend.daemon_address(record)) as client:
            yield client
    finally:
        await backend.remove("shown")
        await backend.close()


def display(command: str) -> ImageService:
    return ImageService(name="display", command=command, ready="/tmp/display")


async def test_start_waits_for_display(tmp_path: Path) -> None:
    async with sandbox(tmp_path, display("sleep 0.2; touch /tmp/display; sleep 60")) as client:
        await wait_for_display(client)
        assert (await client.run("test -e /tmp/display")).exit_code == 0


async def test_start_waits_for_desktop_services(tmp_path: Path) -> None:
    panel = ImageService(name="panel", command="sleep 0.2; touch /tmp/p; sleep 60", after=("display",), ready="/tmp/p")
    async with sandbox(tmp_path, display("touch /tmp/display; sleep 60"), panel) as client:
        await wait_for_display(client)
        assert (await client.run("test -e /tmp/p")).exit_code == 0


async def test_display_without_desktop_services_is_ready(tmp_path: Path) -> None:
    panel = ImageService(name="panel", command="sleep 60", after=("display",), ready="/tmp/never")
    async with sandbox(tmp_path, display("touch /tmp/display; sleep 60"), panel) as client:
        await wait_for_display(client, extra_timeout=0.2)


async def test_wait_for_missing_display_times_out(tmp_path: Path) -> None:
    async with sandbox(tmp_path, display("sleep 60")) as client:
        began = time.monotonic()
        with pytest.raises(SandboxStartError, match="did not come up"):
            await wait_for_display(client, timeout=0.3)
        assert time.monotonic() - began < 5

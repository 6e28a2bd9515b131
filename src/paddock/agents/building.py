"""Images that a session's sandboxes need and nobody has built yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from paddock.errors import ImageNotFound
from paddock.model.session_events import Building
from paddock.sandbox.images.console import Progress
from paddock.sandbox.images.store import ImageStore

EVERY = 2.0
"""Seconds between two words of how far a build is."""
log = structlog.get_logger()


async def have_image(images: ImageStore, name: str, tell: Callable[[Building], Awaitable[object]]) -> None:
    """Build an image if only its recipe is there, and tell how far that is. Raises `ImageNotFound`, `BuildError`."""
    try:
        await images.resolve_async(name)
    except ImageNotFound:
        if images.library.find(name) is None:
            raise
    else:
        return
    log.info("building an image", image=name)
    newest = Progress("starting", None)

    def note(now: Progress) -> None:
        nonlocal newest
        newest = now

    async def keep_telling() -> None:
        told: Building | None = None
        while True:
            fraction = None if newest.fraction is None else round(newest.fraction, 2)
            if (now := Building(image=name, step=newest.step, fraction=fraction)) != told:
                await tell(now)
                told = now
            await asyncio.sleep(EVERY)

    telling = asyncio.create_task(keep_telling(), name=f"how far {name} is")
    try:
        await images.build_async(name, note)
    finally:
        telling.cancel()
        await asyncio.wait([telling])

"""Builds of images that a session's sandboxes need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from paddock.errors import ImageNotFound
from paddock.model.session_events import ImageBuildProgress
from paddock.sandbox.images.build_command_runner import BuildProgress
from paddock.sandbox.images.image_store import ImageStore

PROGRESS_INTERVAL = 2.0
"""Seconds between progress events of a build."""
log = structlog.get_logger()


async def ensure_image_built(
    images: ImageStore, name: str, emit: Callable[[ImageBuildProgress], Awaitable[object]]
) -> None:
    """Build an image if only its recipe exists, and emit progress. Raises `ImageNotFound`, `BuildError`."""
    try:
        await images.resolve_async(name)
    except ImageNotFound:
        if images.library.find(name) is None:
            raise
    else:
        return
    log.info("building an image", image=name)
    newest = BuildProgress("starting", None)

    def update(progress: BuildProgress) -> None:
        nonlocal newest
        newest = progress

    async def emit_progress() -> None:
        last_emitted: ImageBuildProgress | None = None
        while True:
            fraction = None if newest.fraction is None else round(newest.fraction, 2)
            progress = ImageBuildProgress(
                image=name,
                step=newest.step,
                fraction=fraction,
                step_number=newest.step_number,
                step_count=newest.step_count,
            )
            if progress != last_emitted:
                await emit(progress)
                last_emitted = progress
            await asyncio.sleep(PROGRESS_INTERVAL)

    progress_task = asyncio.create_task(emit_progress(), name=f"progress of image {name}")
    try:
        await images.build_async(name, update)
    finally:
        progress_task.cancel()
        await asyncio.wait([progress_task])

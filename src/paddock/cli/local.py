"""Works on a data directory without a server: its images, its keys, what its database says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.sandbox.images import ImageStore
    from paddock.store.database import Store

DATABASE = "paddock.db"


def image_store(config: Config) -> ImageStore:
    """The images of a data directory."""
    from paddock.sandbox.images import ImageStore, default_recipe_directories

    settings = config.images
    return ImageStore(
        config.data / "images",
        default_recipe_directories(settings.recipes),
        mirror=settings.mirror,
        aliases=settings.aliases,
    )


@asynccontextmanager
async def open_store(data: Path) -> AsyncIterator[Store]:
    """The database, made if there is none yet."""
    from paddock.store.database import Store

    await asyncio.to_thread(data.mkdir, 0o700, parents=True, exist_ok=True)
    async with await Store.open(data / DATABASE) as store:
        yield store


@asynccontextmanager
async def open_to_read(data: Path) -> AsyncIterator[Store]:
    """The database, read-only; an empty one elsewhere if there is none yet, so that nothing is left behind."""
    import tempfile

    from paddock.store.database import Store

    with tempfile.TemporaryDirectory(prefix="paddock-empty-") as empty:
        path = data / DATABASE
        found = path if path.exists() else Path(empty) / DATABASE
        async with await Store.open_to_read(found) as store:
            yield store


async def digests_in_use(config: Config, images: ImageStore) -> frozenset[str]:
    """Digests of every image that a sandbox or snapshot may still need; rather one too many than one too few."""
    if not (config.data / DATABASE).exists():
        return frozenset()
    from paddock.model.sandbox import SandboxState
    from paddock.store.sandboxes import SandboxStore
    from paddock.store.snapshots import SnapshotStore

    async with open_store(config.data) as store:
        alive = [state for state in SandboxState if state.alive]
        sandboxes, _ = await SandboxStore(store).list(states=alive, page_size=1_000_000)
        snapshots, _ = await SnapshotStore(store).list(page_size=1_000_000)
    names = {sandbox.image for sandbox in sandboxes} | {snapshot.image for snapshot in snapshots}
    return frozenset(info.manifest.digest for info in images.list() if info.manifest.name in names)

"""Opens images and the database of a data directory without a server."""

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

DATABASE_NAME = "paddock.db"


def create_data_directory(data: Path) -> None:
    """Create the data directory if missing, accessible only to its owner."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_image_store(config: Config) -> ImageStore:
    """Return the image store of a data directory."""
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
    """Open the database, creating it if missing."""
    from paddock.store.database import Store

    await asyncio.to_thread(create_data_directory, data)
    async with await Store.open(data / DATABASE_NAME) as store:
        yield store


@asynccontextmanager
async def open_store_read_only(data: Path) -> AsyncIterator[Store]:
    """Open the database read-only; if there is none, an empty temporary one."""
    import tempfile

    from paddock.store.database import Store

    with tempfile.TemporaryDirectory(prefix="paddock-empty-") as empty:
        path = data / DATABASE_NAME
        found = path if path.exists() else Path(empty) / DATABASE_NAME
        async with await Store.open_to_read(found) as store:
            yield store


async def find_image_digests_in_use(config: Config, images: ImageStore) -> frozenset[str]:
    """Return digests of all images that sandboxes or snapshots may need; in doubt, an image counts as needed."""
    if not (config.data / DATABASE_NAME).exists():
        return frozenset()
    from paddock.model.sandbox import SandboxState
    from paddock.store.sandbox_store import SandboxStore
    from paddock.store.snapshot_store import SnapshotStore

    async with open_store(config.data) as store:
        alive = [state for state in SandboxState if state.alive]
        sandboxes, _ = await SandboxStore(store).list(states=alive, page_size=1_000_000)
        snapshots, _ = await SnapshotStore(store).list(page_size=1_000_000)
    names = {sandbox.image for sandbox in sandboxes} | {snapshot.image for snapshot in snapshots}
    return frozenset(info.manifest.digest for info in images.list() if info.manifest.name in names)

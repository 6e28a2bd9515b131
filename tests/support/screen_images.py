"""The images with a screen, built once on a machine and kept, and sandboxes of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.model.sandbox import Image
from paddock.sandbox.images import BuildProgress, ImageStore
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, local_backend

ROOT = Path(__file__).parents[2]
KEPT = Path(os.environ.get("TEST_IMAGES") or Path.home() / ".paddock/images")
"""Where images stay from one session to the next: with those of `make run`, unless said otherwise."""
BASE, IMAGES = "screen-base", ("browser", "windows", "desktop", "mobile")
AT_A_TIME = 2


def screen_image(name: str) -> Image:
    """The image `desktop`, `browser`, `windows` or `mobile`, built if it is not there yet."""
    missing = [name for name in ("mmdebstrap", "bwrap", "unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"images cannot be built without {', '.join(missing)}")
    return ImageStore(KEPT, [ROOT / "images"]).build(name)


def share_screens(data: Path, *names: str) -> None:
    """Let the data directory of a server, which has not started yet, have these images."""
    for name in names:
        screen_image(name)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "images").symlink_to(KEPT, target_is_directory=True)


@contextmanager
def screen_backend(directory: Path, name: str) -> Iterator[LocalBackendHarness]:
    """A place for sandboxes of an image, without a server."""
    with local_backend(directory, screen_image(name)) as made:
        yield made


@contextmanager
def screen_sandbox(directory: Path, name: str, **changes: Any) -> Iterator[RunningSandbox]:
    """One sandbox of an image, without a server; its services start with it."""
    with screen_backend(directory, name) as place, place.sandbox(**changes) as sandbox:
        yield sandbox


def build_all() -> None:
    """Build what is missing, so that no test waits for it longer than a test may take."""
    store, began = ImageStore(KEPT, [ROOT / "images"]), time.monotonic()

    def build(name: str) -> None:
        steps: list[str] = []

        def tell(now: BuildProgress) -> None:
            if now.step not in steps:
                steps.append(now.step)
                print(f"{time.monotonic() - began:4.0f} s  {name}: {now.step}", flush=True)  # noqa: T201

        store.build(name, tell)

    build(BASE)
    with ThreadPoolExecutor(AT_A_TIME) as builders:
        list(builders.map(build, IMAGES))


if __name__ == "__main__":
    build_all()

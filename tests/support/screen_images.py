"""Images of shipped recipes, built once per machine, and sandboxes of them."""

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
IMAGE_DIRECTORY = Path(os.environ.get("TEST_IMAGES") or Path.home() / ".paddock/images")
"""Images survive test sessions: those of `make run` unless `TEST_IMAGES` is set."""
BASE_IMAGE, SCREEN_IMAGES = "screen-base", ("browser", "windows", "desktop", "mobile")
CODE_IMAGES = ("code", "code-interpreter")
"""Images without a screen that tests need as they are shipped; the second is based on the first."""
PARALLEL_BUILDS = 2


def build_screen_image(name: str) -> Image:
    """Return an image of a recipe that Paddock ships; build it if it is missing."""
    missing = [name for name in ("mmdebstrap", "bwrap", "unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"images cannot be built without {', '.join(missing)}")
    return ImageStore(IMAGE_DIRECTORY, [ROOT / "images"]).build(name)


def share_screen_images(data: Path, *names: str) -> None:
    """Link the images into the data directory of a server that has not started yet."""
    for name in names:
        build_screen_image(name)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "images").symlink_to(IMAGE_DIRECTORY, target_is_directory=True)


@contextmanager
def run_screen_backend(directory: Path, name: str) -> Iterator[LocalBackendHarness]:
    """Run a backend for sandboxes of an image, without a server."""
    with local_backend(directory, build_screen_image(name)) as harness:
        yield harness


@contextmanager
def run_screen_sandbox(directory: Path, name: str, **changes: Any) -> Iterator[RunningSandbox]:
    """Run a sandbox of an image with its services, without a server."""
    with run_screen_backend(directory, name) as harness, harness.sandbox(**changes) as sandbox:
        yield sandbox


def build_screen_images() -> None:
    """Build missing images before the tests, so that no test times out while it waits for one."""
    store, started = ImageStore(IMAGE_DIRECTORY, [ROOT / "images"]), time.monotonic()

    def build(name: str) -> None:
        steps: list[str] = []

        def print_progress(progress: BuildProgress) -> None:
            if progress.step not in steps:
                steps.append(progress.step)
                print(f"{time.monotonic() - started:4.0f} s  {name}: {progress.step}", flush=True)  # noqa: T201

        store.build(name, print_progress)

    with ThreadPoolExecutor(PARALLEL_BUILDS) as builders:
        list(builders.map(build, (BASE_IMAGE, CODE_IMAGES[-1])))
        list(builders.map(build, SCREEN_IMAGES))


if __name__ == "__main__":
    build_screen_images()

"""One tiny Debian image, built once, that the other images of the tests are layered on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from paddock.model.sandbox import Image
from paddock.sandbox.images import ImageStore

WriteRecipe: TypeAlias = Callable[[str, str], Path]

TINY = "description: A Debian with Python and nothing else.\nbase: debian:bookworm\napt: [python3]\n"


class Workshop:
    """A store with a built `tiny`, and a place to write more recipes."""

    def __init__(self, directory: Path) -> None:
        self.recipes = directory / "recipes"
        self.images = directory / "images"
        self.recipes.mkdir(parents=True)
        self.write("tiny", TINY)

    def write(self, name: str, text: str) -> Path:
        path = self.recipes / f"{name}.yaml"
        path.write_text(text)
        return path

    def store(self) -> ImageStore:
        """A store of its own, as another process would have."""
        return ImageStore(self.images, [self.recipes])

    def workspaces(self) -> list[Path]:
        return list(self.images.glob(".building-*"))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    missing = [name for name in ("mmdebstrap", "bwrap", "unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"images cannot be built without {', '.join(missing)}")
    return Workshop(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def tiny(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Built once for all processes that test at the same time: the others wait for it, and take a copy."""
    own = tmp_path_factory.getbasetemp()
    together = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "tiny"
    built = ImageStore(together, [workshop.recipes]).build("tiny")
    workshop.images.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", "--reflink=auto", built.root.parent, workshop.images], check=True)
    return workshop.store().build("tiny")

"""Boxes that tests try to break out of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends.support import Pen, Yard, host_image, yard

from paddock.model.sandbox import Image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return host_image(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, image: Image) -> Iterator[Yard]:
    """Where this module's boxes are; when the module ends nothing of them may be left."""
    with yard(tmp_path_factory.mktemp("data"), image) as made:
        yield made


@pytest.fixture(scope="module")
def pen(place: Yard) -> Iterator[Pen]:
    with place.box() as box:
        yield box


@pytest.fixture(scope="module")
def neighbour(place: Yard) -> Iterator[Pen]:
    """A second box beside the first."""
    with place.box() as box:
        yield box


@pytest.fixture(scope="module")
def nested(place: Yard, image: Image) -> Iterator[Pen]:
    """A box whose programs may make namespaces of their own, as browsers do."""
    with place.box(image=image.model_copy(update={"nested_namespaces": True})) as box:
        yield box


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    directory = tmp_path / "volume"
    directory.mkdir()
    return directory

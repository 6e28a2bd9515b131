"""Sandboxes that tests try to break out of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, host_image, local_backend

from paddock.model.sandbox import Image


@pytest.fixture(scope="session", params=[False, True], ids=["user", "root"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The `host` image, for sandboxes of its user and for sandboxes in root mode."""
    return host_image(tmp_path_factory.mktemp("images")).model_copy(update={"root_mode": request.param})


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory, image: Image) -> Iterator[LocalBackendHarness]:
    """Where this module's sandboxes are; when the module ends nothing of them may be left."""
    with local_backend(tmp_path_factory.mktemp("data"), image) as made:
        yield made


@pytest.fixture(scope="module")
def running_sandbox(harness: LocalBackendHarness) -> Iterator[RunningSandbox]:
    with harness.sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def neighbour(harness: LocalBackendHarness) -> Iterator[RunningSandbox]:
    """A second sandbox beside the first."""
    with harness.sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def nested(harness: LocalBackendHarness, image: Image) -> Iterator[RunningSandbox]:
    """A sandbox with nested namespaces, as for browsers."""
    with harness.sandbox(image=image.model_copy(update={"nested_namespaces": True})) as sandbox:
        yield sandbox


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    directory = tmp_path / "volume"
    directory.mkdir()
    return directory

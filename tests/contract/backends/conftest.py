"""Fixtures of backend checks."""

from __future__ import annotations

import pytest
from tests.contract.backends.support import host_image

from paddock.model.sandbox import Image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return host_image(tmp_path_factory.mktemp("images"))

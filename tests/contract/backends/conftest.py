"""Fixtures of backend checks."""

from __future__ import annotations

import pytest
from tests.contract.backends.support import host_image

from paddock.model.sandbox import Image


@pytest.fixture(scope="session", params=[False, True], ids=["user", "root"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The `host` image, for sandboxes of its user and for sandboxes in root mode."""
    return host_image(tmp_path_factory.mktemp("images")).model_copy(update={"root_mode": request.param})

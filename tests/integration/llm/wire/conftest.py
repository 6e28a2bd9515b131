"""All tests of this package run on both event loops."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}

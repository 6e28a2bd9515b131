"""Shared by all tests."""

from __future__ import annotations

import os

import pytest

from paddock.config.environment import VARIABLES

for name in VARIABLES:  # Whatever keys a developer has, tests are the same for everybody.
    os.environ.pop(name, None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

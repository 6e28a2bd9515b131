"""Shared by all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from paddock.config.environment import VARIABLES

for name in VARIABLES:  # Whatever keys a developer has, tests are the same for everybody.
    os.environ.pop(name, None)

# How long it takes to think of an example says something of the machine, and nothing of what is tested.
settings.register_profile("paddock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("paddock")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

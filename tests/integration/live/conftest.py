"""Fixtures for tests that share one server; each module defines its `server` fixture."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.server import Server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made

"""What the tests of one server share; each module says which server that is."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serving import Server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made
